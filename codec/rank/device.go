package rank

import (
	"encoding/binary"
	"fmt"

	"github.com/tensorcache/tensorcache/codec"
)

// DeviceForm implements codec.OnDevice. There are kernels for each element length. They read, as kernels/coder_rank.h says,
// the symbols by level and digit, 16 bits each, the codes by symbol, 8 bits each, and, with bases, the bits of a symbol by level, the
// symbols again, a byte each, and the bases by class and column, an element each.
func (c *Codec) DeviceForm() codec.DeviceForm {
	s := &c.shape
	shape := uint32(s.Rotate | s.SymbolBits<<8 | len(s.Digits)<<16)
	f := codec.DeviceForm{Kernel: fmt.Sprint("rank", s.ElementBytes), Head: c.header}
	if f.Head == 0 {
		f.Head = c.rowBytes // the length follows from the digits of the whole row
	}
	var digits uint32
	for k := range maxLevels {
		var symbols [1 << maxDigitBits]uint16
		if k < len(c.levels) {
			digits |= uint32(c.levels[k].bits) << (4 * k)
			symbols = c.levels[k].symbols
		}
		for _, symbol := range symbols {
			f.Metadata = binary.LittleEndian.AppendUint16(f.Metadata, symbol>>c.symbolShift)
		}
	}
	f.Metadata = append(f.Metadata, c.codes...)
	for len(f.Metadata)%16 != 0 {
		f.Metadata = append(f.Metadata, 0)
	}
	front := uint32(c.header)
	if c.bases != nil {
		f.Kernel = fmt.Sprint("rankb", s.ElementBytes)
		front |= 1<<8 | uint32(c.classBits)<<9
		table, narrow := c.symbolBytes()
		if narrow {
			shape |= 1 << 24
		}
		f.Metadata = append(f.Metadata, c.bits[:]...)
		f.Metadata = append(f.Metadata, make([]byte, bitsBytes-len(c.bits))...)
		f.Metadata = append(append(f.Metadata, table[:]...), c.bases...)
	}
	f.Params = [codec.Params]uint32{uint32(c.elements), shape, digits, front}
	// For the symbols of a segment and two lists of its elements.
	f.Scratch = 4 * min(c.segment, (c.elements+15)&^15)
	f.EncodeScratch = f.Scratch
	return f
}

// symbolBytes returns the symbols by level and digit, a byte each, and whether a byte can hold each of them. One of fewer bits than 8 is at the
// byte's top. A symbol of 9 bits has a byte if its bit 7 is 0; bit 8 is then the byte's bit 7.
func (c *Codec) symbolBytes() (table [tableBytes / 2]byte, ok bool) {
	ok = c.shape.SymbolBits <= 9
	for k, l := range c.levels {
		for digit, x := range l.symbols[:1<<l.bits-1] {
			x >>= c.symbolShift
			ok = ok && (c.shape.SymbolBits < 9 || x&0x80 == 0)
			switch {
			case c.shape.SymbolBits == 9:
				x = x&0x7f | x>>1&0x80
			case c.shape.SymbolBits < 8:
				x <<= 8 - c.shape.SymbolBits
			}
			table[k<<maxDigitBits+digit] = byte(x)
		}
	}
	return table, ok
}

// bitsBytes is the device metadata's bytes of the bits by level.
const bitsBytes = 16

// MetadataBytes implements codec.Codec.
func (c *Codec) MetadataBytes() int64 {
	n := tableBytes + (len(c.codes)+15)&^15
	if c.bases != nil {
		n += bitsBytes + tableBytes/2 + len(c.bases)
	}
	return int64(n)
}
