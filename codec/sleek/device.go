package sleek

import (
	"math/bits"
	"strconv"

	"github.com/tensorcache/tensorcache/codec"
)

// DeviceForm implements codec.OnDevice.
func (c *Codec) DeviceForm() codec.DeviceForm {
	const quadBytes = 16
	f := codec.DeviceForm{
		Kernel: name + strconv.Itoa(8*c.word),
		Params: [codec.Params]uint32{uint32(bits.TrailingZeros(uint(c.subchunk / quadBytes))), uint32(c.subchunks), uint32(c.exponent)},
		Head:   c.subchunks,
	}
	if c.bounded != nil {
		f.Params[3] = uint32(c.bounded.threshold)
	}
	return f
}
