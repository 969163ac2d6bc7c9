package sparse

import (
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
	"github.com/tensorcache/tensorcache/dtype"
)

// Families are those of the registry.
var Families = []codec.Family{Family}

// Family is the codec's. It serves all element types.
var Family = codec.Family{
	Name: "sparse", GPURate: codec.RateOnGPU("sparse"),
	Train: func(sample []byte, rowBytes int, of dtype.Type) (codec.Codec, error) {
		if checkElement(of.Size()) != nil {
			return nil, codec.DTypeError("sparse", "element (%v, %d bytes) must have 1, 2, 4 or 8", of, of.Size())
		}
		return rowcodec.AsCodec(Train(sample, rowBytes, of.Size()))
	},
	Unmarshal: func(metadata []byte) (codec.Codec, error) { return rowcodec.AsCodec(Unmarshal(metadata)) },
}
