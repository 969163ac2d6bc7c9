package zipnn

import (
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/internal/dtype"
)

// LayoutsOf returns how elements of a type may be coded: float16 and integers as they are, and float64, whose exponent is no whole
// byte, either way.
func LayoutsOf(t codec.DType) []Layout {
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
	Train: func(sample []byte, rowBytes int, dtype codec.DType) (codec.Codec, error) {
		if LayoutsOf(dtype)[0].check() != nil {
			return nil, codec.DTypeError("zipnn", "element (%v, %d bytes) must have 1, 2, 4 or 8", dtype, dtype.Size())
		}
		c, err := Train(sample, rowBytes, LayoutsOf(dtype)...)
		if err != nil {
			return nil, err
		}
		return c, nil
	},
	Unmarshal: func(metadata []byte) (codec.Codec, error) {
		c, err := Unmarshal(metadata)
		if err != nil {
			return nil, err
		}
		return c, nil
	},
}
