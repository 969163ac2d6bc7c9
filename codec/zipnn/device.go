package zipnn

import (
	"encoding/binary"
	"fmt"

	"github.com/tensorcache/tensorcache/codec"
)

// Layout of the device metadata, in bytes: see kernels/coder_zipnn.h.
const (
	deviceValues = 16           // the values of constant planes, and at
	deviceRegion = 8            // 2^32 / regions, rounded up
	deviceTable  = 2 << maxCode // table of a coded plane, if there are two or more
	devicePairs  = 4 << maxCode // table of the only coded plane
	longRow      = 8 << 10      // rows of this length or more are not assembled in shared memory: LONG_ROW of the kernels
)

// DeviceForm implements codec.OnDevice. There are kernels for each element length.
func (c *Codec) DeviceForm() codec.DeviceForm {
	f := codec.DeviceForm{Kernel: fmt.Sprint("zipnn", c.layout.ElementBytes), Head: c.field}
	if len(c.coded) == 0 {
		f.Head = 1 // all stored rows have the same length
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

// An entry of the table of a single coded plane. Its index is the next maxCode bits, the first being the lowest:
//
//	[0:8]   bits of the values' codes, 0 if the first is an escape
//	[8:24]  two values
//	[24:28] bits of the first code
//	[28]    the first code is an escape
//	[30:32] number of values, 0 to 2, whose whole codes the bits hold, up to the first escape
const (
	pairValues = 8
	pairFirst  = 24
	pairEscape = 28
	pairCount  = 30
)

// appendPairs appends the device's table of a single coded plane.
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
