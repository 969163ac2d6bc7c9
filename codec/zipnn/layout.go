package zipnn

import (
	"encoding/binary"
	"fmt"
)

// Layout describes an element.
type Layout struct {
	// ElementBytes is 1, 2, 4 or 8.
	ElementBytes int
	// ExponentBits is the length of the exponent below the sign bit: 8 for bfloat16 and float32, 11 for float64. The exponent
	// is moved to the top, and the sign below it. 0 leaves elements as they are.
	ExponentBits int
}

// check returns an error if the layout is invalid.
func (l Layout) check() error {
	if l.ElementBytes != 1 && l.ElementBytes != 2 && l.ElementBytes != 4 && l.ElementBytes != 8 {
		return fmt.Errorf("zipnn: element (%d bytes) must be 1, 2, 4 or 8", l.ElementBytes)
	}
	if l.ExponentBits < 0 || l.ExponentBits > 8*l.ElementBytes-2 {
		return fmt.Errorf("zipnn: exponent (%d bits) must leave a sign and a mantissa in %d bytes", l.ExponentBits, l.ElementBytes)
	}
	return nil
}

// order reorders the bits of all elements in 8 bytes at once.
type order struct {
	exponent, sign, low uint64 // masks of the bits before reordering, in each element
	shift               uint   // shift of the sign
	as                  bool   // elements are not reordered
}

func (l Layout) order() order {
	w := 8 * l.ElementBytes
	low := uint64(1)<<(w-1-l.ExponentBits) - 1
	o := order{low: low, exponent: (uint64(1)<<(w-1) - 1) &^ low, sign: 1 << (w - 1), shift: uint(l.ExponentBits), as: l.ExponentBits == 0}
	for ; w < 64; w *= 2 {
		o.exponent |= o.exponent << w
		o.sign |= o.sign << w
		o.low |= o.low << w
	}
	return o
}

// apply moves the exponents to the top.
func (o *order) apply(x uint64) uint64 {
	return x&o.exponent<<1 | x&o.sign>>o.shift | x&o.low
}

// undo is the inverse of apply.
func (o *order) undo(x uint64) uint64 {
	return x>>1&o.exponent | x<<o.shift&o.sign | x&o.low
}

// applyAll applies the order to b, which holds whole elements.
func (o *order) applyAll(b []byte) {
	if o.as {
		return
	}
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, o.apply(binary.LittleEndian.Uint64(b)))
	}
	if len(b) > 0 {
		var last [8]byte
		copy(last[:], b)
		binary.LittleEndian.PutUint64(last[:], o.apply(binary.LittleEndian.Uint64(last[:])))
		copy(b, last[:])
	}
}
