package zipnn

import (
	"encoding/binary"
	"fmt"

	"github.com/tensorcache/tensorcache/codec"
)

// What the kernels read: see kernels/coder_zipnn.h.
const (
	deviceValues = 16           // bytes: the constant planes' values, and
	deviceRegion = 8            // from here on 2^32 / regions
	deviceTable  = 2 << maxCode // bytes of a coded plane's table, where there are several
	devicePairs  = 4 << maxCode // of the only one's
	longRow      = 8 << 10      // rows from here on are not put together in shared memory: the kernels' LONG_ROW
)

// DeviceForm implements codec.OnDevice. The kernels are those for the element's length.
func (c *Codec) DeviceForm() codec.DeviceForm {
	f := codec.DeviceForm{Kernel: fmt.Sprint("zipnn", c.layout.ElementBytes), Head: c.field}
	if len(c.coded) == 0 {
		f.Head = 1 // the length is known
	}
	f.Metadata = make([]byte, deviceValues, c.MetadataBytes())
	if c.regions > 1 {
		binary.LittleEndian.PutUint32(f.Metadata[deviceRegion:], uint32((1<<32+uint64(c.regions)-1)/uint64(c.regions)))
	}
	var kinds uint32
	for i := range c.planes {
		f.Metadata[i] = c.planes[i].Value
		kinds |= uint32(c.planes[i].Kind) << (2 * i)
	}
	if len(c.coded) == 1 {
		f.Metadata = c.coded[0].appendPairs(f.Metadata)
	} else {
		for i := range c.coded {
			for _, e := range c.coded[i].ahead {
				f.Metadata = binary.LittleEndian.AppendUint16(f.Metadata, uint16(e))
			}
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
func (c *Codec) MetadataBytes() int64 {
	if len(c.coded) == 1 {
		return deviceValues + devicePairs
	}
	return int64(deviceValues + len(c.coded)*deviceTable)
}

// An entry of pairs, of the next maxCode bits, the first being the lowest:
//
//	[0:8]   bits of the values, 0 if the first is an escape
//	[8:24]  two values
//	[24:28] bits of the first
//	[28]    the first is an escape
//	[30:32] values whose codes the bits hold whole, at most 2, and up to the first escape
const (
	pairValues = 8
	pairFirst  = 24
	pairEscape = 28
	pairCount  = 30
)

// appendPairs appends the device's table of a plane that is the only coded one.
func (b *codebook) appendPairs(to []byte) []byte {
	for i, first := range b.ahead {
		e := uint32(first.length()) << pairFirst
		if first.symbol() == escape {
			e |= 1 << pairEscape
		} else {
			used := first.length()
			e |= uint32(first.symbol())<<pairValues | 1<<pairCount
			if second := b.ahead[i>>used]; second.symbol() != escape && used+second.length() <= maxCode {
				used += second.length()
				e += uint32(second.symbol())<<(pairValues+8) | 1<<pairCount
			}
			e |= uint32(used)
		}
		to = binary.LittleEndian.AppendUint32(to, e)
	}
	return to
}
