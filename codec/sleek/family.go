package sleek

import (
	"fmt"
	"strconv"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
	"github.com/tensorcache/tensorcache/dtype"
)

// The codecs' names. The name of the bounded one is followed by a colon and the bound.
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
		Train: func(sample []byte, rowBytes int, of dtype.Type) (codec.Codec, error) {
			return rowcodec.AsCodec(Train(sample, rowBytes, of))
		},
		Unmarshal: unmarshal,
	}
	// Bounded is the error-bounded mode. Its option is the largest absolute error of an element.
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
				Name: boundedName + ":" + option, Lossy: true, Bound: bound,
				Train: func(sample []byte, rowBytes int, of dtype.Type) (codec.Codec, error) {
					return rowcodec.AsCodec(TrainBounded(sample, rowBytes, of, bound))
				},
				Unmarshal: unmarshal,
			}, err
		},
		Unmarshal: unmarshal,
	}
)

func unmarshal(b []byte) (codec.Codec, error) { return rowcodec.AsCodec(Unmarshal(b)) }
