package sleek

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
	"github.com/tensorcache/tensorcache/internal/dtype"
)

// layout is how the words of a row are made up: one bit of sign, the exponent's bits, the mantissa's.
type layout struct{ word, exponent int } // bytes, bits

// layouts are those of the element types that the codec takes.
var layouts = map[codec.DType]layout{dtype.Float16: {2, 5}, dtype.BFloat16: {2, 8}, dtype.Float32: {4, 8}, dtype.Float64: {8, 11}}

func layoutOf(of codec.DType) (layout, error) {
	l, ok := layouts[of]
	if !ok {
		return l, codec.DTypeError(name, "element type (%v) must be float16, bfloat16, float32 or float64", of)
	}
	return l, nil
}

func (l layout) mantissa() int { return 8*l.word - 1 - l.exponent }

// lanes holds constants that work on all words of a 64-bit group at once: four of 16 bits, two of 32 or one of 64.
// The low bit of a word is that of its lane, and no operation carries from lane to lane.
type lanes struct {
	width uint   // bits of a lane, W
	full  uint64 // 2^W - 1: a lane's bit, times this, fills the lane
	low   uint64 // the low bit of each lane
	body  uint64 // all bits but the high one of each lane
	carry uint64 // 2^(W-1) - 2^(W-E) in each lane: added to x < 2^(W-1), gives the high bit iff x ≥ 2^(W-E)
	fold  uint64 // 2^(W-1) + 2^(W-E) - 1 in each lane: what exponents below the middle are subtracted from
}

func lanesOf(l layout) lanes {
	width := uint(8 * l.word)
	full := ^uint64(0) >> (64 - width)
	low := ^uint64(0) / full
	high, one := uint64(1)<<(width-1), uint64(1)<<(width-uint(l.exponent))
	return lanes{width: width, full: full, low: low, body: low * (high - 1), carry: low * (high - one), fold: low * (high + one - 1)}
}

// forward maps words to codes that are small when the exponent is near its middle, or the word near zero: the sign
// becomes the lowest bit of the word; exponents 1 to 2^(E-1), so turned, are subtracted from fold (the lowest bit of
// the code says so); what is left of the exponent begins at 0.
func (l *lanes) forward(x uint64) uint64 {
	v := x<<1&^l.low | x>>((l.width-1)&63)&l.low
	u := v & l.body
	s := ((u + l.carry) ^ v) >> ((l.width - 1) & 63) & l.low
	u ^= (u ^ (l.fold-u)&l.body) & (s * l.full)
	return u<<1 | s
}

// inverseAll undoes forward in groups of eight bytes, for codes that forward never gives as well.
func (l *lanes) inverseAll(groups []byte) {
	// Constants in registers; multiplications instead of shifts, which need one of their own.
	low, body, carry, fold, full, high := l.low, l.body, l.carry, l.fold, l.full, uint64(1)<<((l.width-1)&63)
	p := unsafe.SliceData(groups)
	for i := 0; i+8 <= len(groups); i += 8 {
		z := bitio.Load(p, i)
		s, u := z&low, z>>1&body
		v := u | (u+carry)&^body
		v ^= (v ^ (fold - u)) & (s * full)
		bitio.Store(p, i, v>>1&body|v&low*high)
	}
}

// inverse undoes forward in one group.
func (l *lanes) inverse(z uint64) uint64 {
	var group [8]byte
	binary.LittleEndian.PutUint64(group[:], z)
	l.inverseAll(group[:])
	return binary.LittleEndian.Uint64(group[:])
}

// widest returns the bits that the widest of the group's words takes; x may be the words of several groups, ORed.
func (l *lanes) widest(x uint64) uint {
	for shift := uint(32); shift >= l.width; shift >>= 1 {
		x |= x >> shift
	}
	return uint(bits.Len64(x & l.full))
}
