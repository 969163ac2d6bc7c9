package parts

import (
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
	"github.com/tensorcache/tensorcache/dtype"
)

// Families are those of the registry.
var Families = []codec.Family{Family}

// Family is the codec's. It serves rows of parts that are shorter than 8 KiB.
var Family = codec.Family{
	Name: name, GPURate: codec.RateOnGPU(name), Rows: true,
	Train: func(sample []byte, rowBytes int, of dtype.Type) (codec.Codec, error) {
		if !of.IsRow() || of.Size() != rowBytes {
			return nil, codec.DTypeError(name, "element type (%v, rows of %d bytes) must be a list of the row's parts, such as float8_e4m3fn*256,float8_e8m0fnu*8", of, rowBytes)
		}
		if rowBytes > MaxRow {
			return nil, codec.DTypeError(name, "row (%d bytes) must have at most %d", rowBytes, MaxRow)
		}
		return rowcodec.AsCodec(Train(sample, of.Parts()))
	},
	Unmarshal: func(metadata []byte) (codec.Codec, error) { return rowcodec.AsCodec(Unmarshal(metadata)) },
}
