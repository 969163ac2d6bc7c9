package sleek

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
	"github.com/tensorcache/tensorcache/dtype"
)

// layout describes a floating-point word: one bit of sign, the exponent, the mantissa.
type layout struct{ word, exponent int } // bytes, bits

// layouts has the layouts of the element types that the codec serves.
var layouts = map[dtype.Type]layout{dtype.Float16: {2, 5}, dtype.BFloat16: {2, 8}, dtype.Float32: {4, 8}, dtype.Float64: {8, 11}}

func layoutOf(of dtype.Type) (layout, error) {
	l, ok := layouts[of]
	if !ok {
		return l, codec.DTypeError(name, "element type (%v) must be float16, bfloat16, float32 or float64", of)
	}
	return l, nil
}

func (l layout) mantissa() int { return 8*l.word - 1 - l.exponent }

// lanes holds constants for operations on all words of a 64-bit group at once: four lanes of 16 bits, two of 32 or one of 64. No
// operation carries from lane to lane.
type lanes struct {
	width uint   // bits of a lane, W
	full  uint64 // 2^W - 1; the product with a lane's low bit fills the lane
	low   uint64 // the low bit of each lane
	body  uint64 // all bits but the high one of each lane
	carry uint64 // 2^(W-1) - 2^(W-E) in each lane; added to x < 2^(W-1), it sets the high bit iff x ≥ 2^(W-E)
	fold  uint64 // 2^(W-1) + 2^(W-E) - 1 in each lane; words with exponents below the middle are subtracted from it
}

func lanesOf(l layout) lanes {
	width := uint(8 * l.word)
	full := ^uint64(0) >> (64 - width)
	low := ^uint64(0) / full
	high, one := uint64(1)<<(width-1), uint64(1)<<(width-uint(l.exponent))
	return lanes{width: width, full: full, low: low, body: low * (high - 1), carry: low * (high - one), fold: low * (high + one - 1)}
}

// forward returns the codes of a group. They are small if the exponent is near the middle of its range, or the word near zero.
// It rotates each word left by one. Words with exponents from 1 to 2^(E-1) are subtracted from fold, which the code's lowest
// bit records. From the others the middle of the exponent's range is subtracted.
func (l *lanes) forward(x uint64) uint64 {
	v := x<<1&^l.low | x>>((l.width-1)&63)&l.low
	u := v & l.body
	s := ((u + l.carry) ^ v) >> ((l.width - 1) & 63) & l.low
	u ^= (u ^ (l.fold-u)&l.body) & (s * l.full)
	return u<<1 | s
}

// inverseAll undoes forward in groups of eight bytes. It accepts all codes, also those that forward never returns.
func (l *lanes) inverseAll(groups []byte) {
	// The constants stay in registers. Multiplications replace variable shifts, which need one more register.
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

// widest returns the bits of the largest word of a group. x may be the OR of several groups.
func (l *lanes) widest(x uint64) uint {
	for shift := uint(32); shift >= l.width; shift >>= 1 {
		x |= x >> shift
	}
	return uint(bits.Len64(x & l.full))
}
