package sleek

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// bounded maps words to the codes of the error-bounded mode and back. The quantum is 2ε = 2^(exp+1). The threshold is 2^m
// quanta. An element below it becomes the nearest multiple of the quantum. From the threshold on, the last bit of a mantissa is
// worth at least a quantum, and the bit pattern is kept. The code of the magnitude is the multiple, or the pattern less
// offset; together they are one range without gaps.
type bounded struct {
	layout
	exp       int    // ε = 2^exp
	m         uint   // bits of mantissa
	threshold uint64 // biased exponent of the threshold
	offset    uint64 // subtracted from patterns from the threshold on
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

// boundedAt returns the mode with a bound of 2^exp, limited to the range of the layout: below it all elements are multiples of
// the quantum anyway, and above it a finite element could be rounded to infinity.
func boundedAt(l layout, exp int) *bounded {
	toBiased := 1<<(l.exponent-1) - 1 + l.mantissa() + 1
	threshold := min(max(exp+toBiased, 1), 1<<l.exponent-2)
	m := uint(l.mantissa())
	return &bounded{layout: l, exp: threshold - toBiased, m: m, threshold: uint64(threshold), offset: uint64(threshold-1) << m}
}

func (b *bounded) bound() float64 { return math.Ldexp(1, b.exp) }

// codes returns the codes of the words of a 64-bit group.
func (b *bounded) codes(x uint64) (z uint64) {
	width := uint(8 * b.word)
	full := ^uint64(0) >> (64 - width)
	for lane := uint(0); lane < 64; lane += width {
		z |= b.code(x>>lane&full) << lane
	}
	return z
}

// decode replaces the codes in part, which is whole groups, by their words.
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

// code returns the code of a word whose magnitude has code c: 0 if c is 0, else 2c for positive and 2c - 1 for negative words.
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
	z = (z + 1) & (high - 1 + high) // code never returns all ones
	magnitude, sign := z>>1, (z&1^1)*high
	if magnitude == 0 {
		return 0
	}
	if magnitude >= 1<<b.m {
		return ((magnitude + b.offset) & (high - 1)) | sign
	}
	// The highest bit of the multiple becomes the implicit one. Below exponent 1 the result is subnormal.
	shift := min(b.m+1-uint(bits.Len64(magnitude)), uint(b.threshold-1))
	magnitude <<= shift
	exponent := b.threshold - 1 - uint64(shift) // one less, because the leading one adds 1
	return magnitude + exponent<<b.m | sign
}
