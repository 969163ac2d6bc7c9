package sleek

import (
	"fmt"
	"strconv"

	"github.com/tensorcache/tensorcache/codec"
)

// The codecs' names. The bounded one's is followed by a colon and its bound.
const (
	name        = "sleek"
	boundedName = "sleek-eb"
)

// Families are those of the registry.
var Families = []codec.Family{SLEEK, Bounded}

var (
	// SLEEK is the lossless codec.
	SLEEK = codec.Family{
		Name: name, GPURate: codec.RateOnGPU(name),
		Train: func(sample []byte, rowBytes int, dtype codec.DType) (codec.Codec, error) {
			return asCodec(Train(sample, rowBytes, dtype))
		},
		Unmarshal: unmarshal,
	}
	// Bounded is the error-bounded mode. Its option is the largest absolute difference that an element may have.
	Bounded = codec.Family{
		Name: boundedName, Option: "BOUND", Lossy: true,
		WithOption: func(option string) (codec.Family, error) {
			bound, err := strconv.ParseFloat(option, 64)
			if err == nil {
				err = checkBound(bound)
			} else {
				err = fmt.Errorf("sleek: bound (%q) must be a number", option)
			}
			return codec.Family{
				Name: boundedName + ":" + option, Lossy: true,
				Train: func(sample []byte, rowBytes int, dtype codec.DType) (codec.Codec, error) {
					return asCodec(TrainBounded(sample, rowBytes, dtype, bound))
				},
				Unmarshal: unmarshal,
			}, err
		},
		Unmarshal: unmarshal,
	}
)

func unmarshal(b []byte) (codec.Codec, error) { return asCodec(Unmarshal(b)) }

// asCodec keeps a nil *Codec from becoming a non-nil interface.
func asCodec(c *Codec, err error) (codec.Codec, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}
