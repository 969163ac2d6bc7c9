package rank

import (
	"encoding/binary"
	"math/bits"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/bitio"
)

// EncodeBound implements codec.Codec. In the worst case every element has a digit in each level and its symbol as it is.
func (c *Codec) EncodeBound() int {
	return c.header + c.rowBytes + (c.classBits+c.elements*c.raw+7)/8 + bitio.Slack
}

// Encode implements codec.Codec.
func (c *Codec) Encode(dst, row []byte) (int, error) {
	row = row[:c.rowBytes]
	class := c.classOf(row)
	n := c.encode(dst[:c.EncodeBound()], row, class)
	if n >= c.rowBytes {
		return 0, codec.ErrIncompressible
	}
	field := n | class<<classShift
	for i := range c.header {
		dst[i] = byte(field >> (8 * i))
	}
	return n, nil
}

// encode writes the stored form of a row of the given class without its length field, and returns its length.
func (c *Codec) encode(dst, row []byte, class int) int {
	w := bitio.NewWriter(dst, 8*c.header)
	if c.header == 0 {
		w.Put(uint64(class), uint(c.classBits))
	}
	var bases []uint16
	if c.bases != nil {
		bases = c.shape.Bases[class]
	}
	whole := c.elements * c.shape.ElementBytes
	for at := 0; at < whole; at += segmentBytes {
		c.encodeSegment(&w, row[at:min(at+segmentBytes, whole)], bases)
		bases = bases[min(segmentBytes/c.shape.ElementBytes, len(bases)):]
	}
	for _, b := range row[whole:] {
		w.Put(uint64(b), 8)
	}
	return w.Finish()
}

// encodeSegment writes a segment. bases begins with those of its columns, if there are any.
func (c *Codec) encodeSegment(w *bitio.Writer, row []byte, bases []uint16) {
	var rests [segmentElements]uint64
	var symbols [segmentElements]uint16
	var codes, list [segmentElements]uint8
	n := c.split(rests[:], symbols[:], row, bases)
	for i := range n {
		codes[i] = c.codes[symbols[i]]
		list[i] = uint8(i)
	}
	passed := n // length of list: the elements whose symbols no level so far has
	for k := range c.levels {
		size := c.levels[k].bits
		escape := uint8(1<<size - 1)
		next := 0
		for _, i := range list[:passed] {
			digit := codes[i] & 15
			list[next] = i
			if int(codes[i]>>4) != k {
				digit = escape
				next++
			}
			w.Put(uint64(digit), size)
		}
		passed = next
	}
	for _, i := range list[:passed] {
		w.Put(uint64(symbols[i]), uint(c.shape.SymbolBits))
	}
	for _, x := range rests[:n] {
		w.Put(x, uint(c.rest))
	}
}

// split splits a segment's elements into symbols and rests, and returns how many there are.
func (c *Codec) split(rests []uint64, symbols []uint16, row []byte, bases []uint16) int {
	rotate, rest := c.shape.Rotate, uint(c.rest)
	mask := uint64(1)<<rest - 1
	n := len(row) / c.shape.ElementBytes
	baseShift, whole := uint(8*c.shape.ElementBytes-16), ^uint64(0)>>(64-8*c.shape.ElementBytes)
	if bases != nil {
		bases = bases[:n]
	}
	for i := range n {
		var x uint64
		switch c.shape.ElementBytes {
		case 2:
			x = uint64(bits.RotateLeft16(binary.LittleEndian.Uint16(row[2*i:]), rotate))
		case 4:
			x = uint64(bits.RotateLeft32(binary.LittleEndian.Uint32(row[4*i:]), rotate))
		default:
			x = bits.RotateLeft64(binary.LittleEndian.Uint64(row[8*i:]), rotate)
		}
		if bases != nil {
			x = (x - uint64(bases[i])<<baseShift) & whole
		}
		rests[i], symbols[i] = x&mask, uint16(x>>rest)
	}
	return n
}
