package rank

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/tensorcache/tensorcache/codec"
)

// Rows of several classes name theirs in front: in the length field, above the length's 12 bits, or, in rows without one, in the first
// bits of the stream.

// classShift is the bits of the length field below the class.
const classShift = 12

// front returns the class that a stored row names, modulo the number of classes, and the bit position of its first segment.
func (c *Codec) front(src []byte) (class, pos int) {
	switch {
	case c.header != 0:
		if c.bases != nil {
			class = int(src[1]>>(classShift-8)) & (1<<c.classBits - 1)
		}
		return class, 8 * c.header
	case c.classBits != 0 && len(src) > 0:
		class = int(src[0]) & (1<<c.classBits - 1)
	}
	return class, c.classBits
}

// checkFront returns an error if the length field names a class that there is none of. REQUIRES: c.header != 0.
func (c *Codec) checkFront(src []byte) error {
	if class := int(src[1] >> (classShift - 8)); c.bases != nil && class >= len(c.shape.Bases) {
		return codec.CorruptError("rank", "stored row's class (%d) must be below %d", class, len(c.shape.Bases))
	}
	return nil
}

// classProbes is the most columns by which a row's class is narrowed down to two.
const classProbes = 32

// classOf returns the class by which a row is stored, which GPUs find in the same way. Of the two classes that take the fewest bits for up
// to 32 columns at even distances, it is the one that takes fewer for all of them. The lower one wins where two take as many.
func (c *Codec) classOf(row []byte) int {
	if c.classBits == 0 {
		return 0
	}
	var tops [maxBasedRow / 2]uint16
	n := c.tops(&tops, row)
	probes := min(n, classProbes)
	step := n / max(1, probes)
	first, second := 0, 0
	least, next := math.MaxInt, math.MaxInt
	for k := range c.shape.Bases {
		switch cost := c.cost(tops[:probes*step], k, step); {
		case cost < least:
			first, second, least, next = k, first, cost, least
		case cost < next:
			second, next = k, cost
		}
	}
	if probes == n {
		return first
	}
	if first > second {
		first, second = second, first
	}
	if c.cost(tops[:n], second, 1) < c.cost(tops[:n], first, 1) {
		return second
	}
	return first
}

// tops writes the leading 16 bits of a row's rotated elements, and returns how many there are.
func (c *Codec) tops(tops *[maxBasedRow / 2]uint16, row []byte) int {
	n, rotate := c.elements, c.shape.Rotate
	if c.shape.ElementBytes == 2 {
		for i := range n {
			tops[i] = bits.RotateLeft16(binary.LittleEndian.Uint16(row[2*i:]), rotate)
		}
	} else {
		for i := range n {
			tops[i] = uint16(bits.RotateLeft32(binary.LittleEndian.Uint32(row[4*i:]), rotate) >> 16)
		}
	}
	return n
}

// cost returns the bits of the symbols of every step-th element, given the leading bits of all, if the row is of a class.
func (c *Codec) cost(tops []uint16, class, step int) (sum int) {
	bases, shift := c.shape.Bases[class][:len(tops)], (16-c.shape.SymbolBits)&15
	for i := 0; i < len(tops); i += step {
		sum += int(c.bits[c.codes[(tops[i]-bases[i])>>shift]>>4])
	}
	return sum
}
