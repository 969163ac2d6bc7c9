package zipnn

import (
	"encoding/binary"
	"fmt"

	"github.com/tensorcache/tensorcache/codec"
)

// What the kernels read: see kernels/coder_zipnn.h.
const (
	deviceValues = 16           // bytes: the constant planes' values
	deviceTable  = 2 << maxCode // bytes of a coded plane's table
	longRow      = 8 << 10      // rows from here on are not put together in shared memory: the kernels' LONG_ROW
)

// DeviceForm implements codec.OnDevice. The kernels are those for the element's length.
func (c *Codec) DeviceForm() codec.DeviceForm {
	f := codec.DeviceForm{Kernel: fmt.Sprint("zipnn", c.layout.ElementBytes), Head: c.field}
	if len(c.coded) == 0 {
		f.Head = 1 // the length is known
	}
	f.Metadata = make([]byte, deviceValues, c.MetadataBytes())
	var kinds uint32
	for i := range c.planes {
		f.Metadata[i] = c.planes[i].Value
		kinds |= uint32(c.planes[i].Kind) << (2 * i)
	}
	for i := range c.coded {
		for _, e := range c.coded[i].ahead {
			f.Metadata = binary.LittleEndian.AppendUint16(f.Metadata, uint16(e))
		}
	}
	f.Params = [codec.Params]uint32{
		uint32(c.elements), uint32(c.layout.ExponentBits | c.field<<8 | c.regions<<16 | len(c.coded)<<24), kinds,
		uint32(c.head | len(c.raw)<<16),
	}
	if c.rowBytes < longRow {
		f.Scratch = len(c.coded) * ((c.elements + 15) &^ 15)
	}
	return f
}

// MetadataBytes implements codec.Codec.
func (c *Codec) MetadataBytes() int64 { return int64(deviceValues + len(c.coded)*deviceTable) }
