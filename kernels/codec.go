package kernels

import (
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/device"
)

// Codec is a table's codec as the kernels of a device see it. The zero value is for tables whose rows are all raw.
type Codec struct {
	codec.Codec
	// Meta is the device metadata, in the device's memory, and Form what else the kernels need. Both are empty without a codec.
	Meta device.Buffer
	Form codec.DeviceForm
}

// AttachCodec puts a codec's metadata in a device's memory, where the caller frees it. c may be nil.
func AttachCodec(d device.Device, c codec.Codec) (Codec, error) {
	k := Codec{Codec: c}
	on, ok := c.(codec.OnDevice)
	if !ok {
		return k, nil
	}
	k.Form = on.DeviceForm()
	if len(k.Form.Metadata) == 0 {
		return k, nil
	}
	var err error
	k.Meta, err = device.AllocCopy(d, k.Form.Metadata, "codec metadata")
	return k, err
}
