package ndzip

import (
	"strconv"

	"github.com/tensorcache/tensorcache/codec"
)

// DeviceForm implements codec.OnDevice.
func (c *Codec) DeviceForm() codec.DeviceForm {
	return codec.DeviceForm{
		Kernel: name + strconv.Itoa(8*c.word),
		Params: [codec.Params]uint32{uint32(c.groups)},
		Head:   c.groups * c.word,
	}
}
