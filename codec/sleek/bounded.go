package sleek

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// bounded maps words to the codes of the error-bounded mode and back. With quantum 2ε = 2^(exp+1), an element below the
// threshold, 2^m quanta, becomes the nearest multiple of the quantum; from the threshold on, a
// mantissa's last bit is worth a quantum or more, and the bit pattern is kept. Either way the magnitude's code is one
// of an unbroken range: the multiple, or the pattern less offset.
type bounded struct {
	layout
	exp       int    // ε = 2^exp
	m         uint   // bits of mantissa
	threshold uint64 // its biased exponent
	offset    uint64 // what is taken from patterns from the threshold on
}

func checkBound(bound float64) error {
	if !(bound > 0) || math.IsInf(bound, 1) {
		return fmt.Errorf("sleek: bound (%g) must be positive and finite", bound)
	}
	return nil
}

// newBounded rounds the bound down to a power of two.
func newBounded(l layout, bound float64) *bounded {
	_, exp := math.Frexp(bound) // bound in [2^(exp-1), 2^exp)
	return boundedAt(l, exp-1)
}

// boundedAt returns the mode with a bound of 2^exp, or the nearest of the layout: at the small end elements are multiples of the
// quantum anyway, and at the large end no finite element may be rounded to infinity.
func boundedAt(l layout, exp int) *bounded {
	toBiased := 1<<(l.exponent-1) - 1 + l.mantissa() + 1
	threshold := min(max(exp+toBiased, 1), 1<<l.exponent-2)
	m := uint(l.mantissa())
	return &bounded{layout: l, exp: threshold - toBiased, m: m, threshold: uint64(threshold), offset: uint64(threshold-1) << m}
}

func (b *bounded) bound() float64 { return math.Ldexp(1, b.exp) }

// codes maps the words of a 64-bit group.
func (b *bounded) codes(x uint64) (z uint64) {
	width := uint(8 * b.word)
	full := ^uint64(0) >> (64 - width)
	for lane := uint(0); lane < 64; lane += width {
		z |= b.code(x>>lane&full) << lane
	}
	return z
}

// decode replaces the codes that lie in part, whole groups, by their words.
func (b *bounded) decode(part []byte) {
	switch b.word {
	case 8:
		for ; len(part) >= 8; part = part[8:] {
			binary.LittleEndian.PutUint64(part, b.wordOf(binary.LittleEndian.Uint64(part)))
		}
	case 4:
		for ; len(part) >= 4; part = part[4:] {
			binary.LittleEndian.PutUint32(part, uint32(b.wordOf(uint64(binary.LittleEndian.Uint32(part)))))
		}
	default:
		for ; len(part) >= 2; part = part[2:] {
			binary.LittleEndian.PutUint16(part, uint16(b.wordOf(uint64(binary.LittleEndian.Uint16(part)))))
		}
	}
}

// code returns the code of a word: twice the magnitude's code less one, or 0 for both zeros; positive ones are one more than
// negative ones.
func (b *bounded) code(word uint64) uint64 {
	high := uint64(1) << (8*b.word - 1)
	magnitude, negative := word&(high-1), word&high != 0
	exponent := magnitude >> b.m
	if exponent >= b.threshold {
		magnitude -= b.offset
	} else {
		if exponent == 0 {
			exponent = 1 // subnormal: no leading one
		} else {
			magnitude = magnitude&(1<<b.m-1) | 1<<b.m
		}
		shift := b.threshold - exponent
		magnitude = (magnitude + 1<<shift>>1) >> shift // a shift of 64 or more gives 0
	}
	z := magnitude << 1
	if !negative {
		z++
	}
	return max(z, 1) - 1
}

// wordOf returns the word of a code.
func (b *bounded) wordOf(z uint64) uint64 {
	high := uint64(1) << (8*b.word - 1)
	z = (z + 1) & (high - 1 + high) // as code had it; it never gives all ones
	magnitude, sign := z>>1, (z&1^1)*high
	if magnitude == 0 {
		return 0
	}
	if magnitude >= 1<<b.m {
		return ((magnitude + b.offset) & (high - 1)) | sign
	}
	// The multiple's highest bit becomes the leading one; without enough room above exponent 1 it is subnormal.
	shift := min(b.m+1-uint(bits.Len64(magnitude)), uint(b.threshold-1))
	magnitude <<= shift
	exponent := b.threshold - 1 - uint64(shift) // less one where the leading one adds to it
	return magnitude + exponent<<b.m | sign
}
