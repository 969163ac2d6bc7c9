package kernels

import (
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// Codec is a table's codec as the kernels of a device see it. The zero value is for tables whose rows are all raw.
type Codec struct {
	codec.Codec
	// Meta is the device metadata, in the device's memory, and Form what else the kernels need. Both are empty without a codec.
	Meta device.Buffer
	Form codec.DeviceForm
}

// AddsAsDecoded says whether GPUs add rows of that length up where they decode them, in one launch, faster than in two, of which the first writes the rows
// (docs/notebook/pooled.md).
func (c Codec) AddsAsDecoded(rowBytes int) bool {
	name, k, _ := coderOf(c.Form)
	row := abi.RowCodec{RowBytes: uint32(rowBytes), Params: c.Form.Params}
	if rowBytes%16 != 0 {
		row.Store = abi.Store1
	}
	return k.pairs && (rowBytes <= 32*16 || name == raw) || k.addsBytes(&row) && k.floats == 4
}

// metaAlign is what the length of metadata is rounded up to. Blocks copy them to the beginning of shared memory, and asynchronous copies of a
// row that begins within a line of shared memory ask twice for some sectors of the host tier.
const metaAlign = 128

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
	padded := make([]byte, (len(k.Form.Metadata)+metaAlign-1)/metaAlign*metaAlign)
	copy(padded, k.Form.Metadata)
	var err error
	k.Meta, err = device.AllocCopy(d, false, padded, "codec metadata")
	return k, err
}
