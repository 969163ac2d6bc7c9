package zipnn

import (
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
	"github.com/tensorcache/tensorcache/internal/dtype"
)

// layoutsOf returns how elements of a type may be coded: float16 and integers as they are, and float64, whose exponent is no whole
// byte, either way.
func layoutsOf(t codec.DType) []Layout {
	switch t {
	case dtype.BFloat16, dtype.Float32:
		return []Layout{{t.Size(), 8}}
	case dtype.Float64:
		return []Layout{{8, 11}, {8, 0}}
	}
	return []Layout{{t.Size(), 0}}
}

// Family is that of the registry. It serves all element types.
var Family = codec.Family{
	Name: "zipnn", GPURate: codec.RateOnGPU("zipnn"),
	Train: func(sample []byte, rowBytes int, dtype codec.DType) (codec.Codec, error) {
		if layoutsOf(dtype)[0].check() != nil {
			return nil, codec.DTypeError("zipnn", "element (%v, %d bytes) must have 1, 2, 4 or 8", dtype, dtype.Size())
		}
		return rowcodec.AsCodec(Train(sample, rowBytes, layoutsOf(dtype)...))
	},
	Unmarshal: func(metadata []byte) (codec.Codec, error) { return rowcodec.AsCodec(Unmarshal(metadata)) },
}
