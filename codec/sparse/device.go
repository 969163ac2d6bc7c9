package sparse

import (
	"encoding/binary"
	"fmt"

	"github.com/tensorcache/tensorcache/codec"
)

// DeviceForm implements codec.OnDevice. There are kernels for each element length. They read, as kernels/coder_sparse.h says, the symbols by
// digit, 16 bits each, and the codes by symbol, 8 bits each.
func (c *Codec) DeviceForm() codec.DeviceForm {
	s := &c.shape
	f := codec.DeviceForm{Kernel: fmt.Sprint("sparse", s.ElementBytes), Head: max(1, c.head())}
	for i := range maxSymbols {
		f.Metadata = binary.LittleEndian.AppendUint16(f.Metadata, uint16(c.symbols[i]>>c.rest))
	}
	f.Metadata = append(f.Metadata, c.codes...)
	for len(f.Metadata)%16 != 0 {
		f.Metadata = append(f.Metadata, 0)
	}
	f.Params = [codec.Params]uint32{
		uint32(c.elements), uint32(c.count) | uint32(s.Rotate)<<8 | uint32(s.SymbolBits)<<16, uint32(s.Background), uint32(s.Background >> 32),
	}
	// For each word of a segment's bitmap the word, and the number of entries before it in 16 bits.
	words := (min(c.elements, segmentElements) + 31) / 32
	f.Scratch = (6*words + 127) &^ 127 // whole lines of shared memory, for rows lie behind it
	f.EncodeScratch = (6*words+15)&^15 + 8*maxPalette
	return f
}

// MetadataBytes implements codec.Codec.
func (c *Codec) MetadataBytes() int64 { return int64(2*maxSymbols + (len(c.codes)+15)&^15) }
