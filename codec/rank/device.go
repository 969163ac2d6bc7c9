package rank

import (
	"encoding/binary"
	"fmt"

	"github.com/tensorcache/tensorcache/codec"
)

// DeviceForm implements codec.OnDevice. There are kernels for each element length. They read, as kernels/coder_rank.h says,
// the symbols by level and digit, 16 bits each, the codes by symbol, 8 bits each, and the bases by column, an element each.
func (c *Codec) DeviceForm() codec.DeviceForm {
	s := &c.shape
	f := codec.DeviceForm{Kernel: fmt.Sprint("rank", s.ElementBytes), Head: c.header}
	based := uint32(0)
	if c.bases != nil {
		f.Kernel, based = fmt.Sprint("rankb", s.ElementBytes), 1<<8
	}
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
	f.Metadata = append(f.Metadata, c.bases...)
	f.Params = [codec.Params]uint32{
		uint32(c.elements), uint32(s.Rotate | s.SymbolBits<<8 | len(s.Digits)<<16), digits, uint32(c.header) | based,
	}
	// For the symbols of a segment and two lists of its elements.
	f.Scratch = 4 * min(c.segment, (c.elements+15)&^15)
	f.EncodeScratch = f.Scratch
	return f
}

// MetadataBytes implements codec.Codec.
func (c *Codec) MetadataBytes() int64 {
	return int64(tableBytes + (len(c.codes)+15)&^15 + len(c.bases))
}
