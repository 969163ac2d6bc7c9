package parts

import (
	"encoding/binary"

	"github.com/tensorcache/tensorcache/codec"
)

const (
	devicePlane = 32  // bytes of a plane in device metadata
	scratchLine = 128 // rows lie behind the scratch memory, and are copied there in lines
)

// DeviceForm implements codec.OnDevice: see kernels/coder_parts.h.
func (c *Codec) DeviceForm() codec.DeviceForm {
	f := codec.DeviceForm{Kernel: name, Head: max(1, c.head), Scratch: (block*c.blocks + scratchLine - 1) &^ (scratchLine - 1)}
	f.Metadata = make([]byte, 0, c.MetadataBytes())
	table := len(c.planes) * devicePlane / 4
	i := 0
	for _, part := range c.parts {
		for range part.Planes {
			p := &c.planes[i]
			i++
			for _, word := range []int{
				p.first, p.elements, table, int(p.Kind) | p.SymbolBits<<8 | int(p.Value)<<16 | p.limit<<24, p.restAt, p.at, p.stride | part.Rotate<<8, 0,
			} {
				f.Metadata = binary.LittleEndian.AppendUint32(f.Metadata, uint32(word))
			}
			table += len(p.table)
		}
	}
	for i := range c.planes {
		for _, e := range c.planes[i].table {
			f.Metadata = binary.LittleEndian.AppendUint32(f.Metadata, uint32(e))
		}
	}
	f.Params = [codec.Params]uint32{
		uint32(c.regions | c.field<<8 | len(c.planes)<<16), uint32(c.blocks), uint32(c.codes),
	}
	return f
}

// MetadataBytes implements codec.Codec.
func (c *Codec) MetadataBytes() int64 {
	n := len(c.planes) * devicePlane
	for i := range c.planes {
		n += 4 * len(c.planes[i].table)
	}
	return int64(n)
}
