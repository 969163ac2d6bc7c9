package zipnn

import (
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
	"github.com/tensorcache/tensorcache/dtype"
)

// layoutsOf returns the layouts that training tries for an element type. float16 and integers are not reordered. float64 is tried
// both ways, because its exponent is not a whole byte.
func layoutsOf(t dtype.Type) []Layout {
	switch t {
	case dtype.BFloat16, dtype.Float32:
		return []Layout{{t.Size(), 8}}
	case dtype.Float64:
		return []Layout{{8, 11}, {8, 0}}
	}
	return []Layout{{t.Size(), 0}}
}

// Families are those of the registry.
var Families = []codec.Family{Family}

// Family is the codec's. It serves all element types.
var Family = codec.Family{
	Name: "zipnn", GPURate: codec.RateOnGPU("zipnn"),
	Train: func(sample []byte, rowBytes int, of dtype.Type) (codec.Codec, error) {
		if layoutsOf(of)[0].check() != nil {
			return nil, codec.DTypeError("zipnn", "element (%v, %d bytes) must have 1, 2, 4 or 8", of, of.Size())
		}
		return rowcodec.AsCodec(Train(sample, rowBytes, layoutsOf(of)...))
	},
	Unmarshal: func(metadata []byte) (codec.Codec, error) { return rowcodec.AsCodec(Unmarshal(metadata)) },
}
