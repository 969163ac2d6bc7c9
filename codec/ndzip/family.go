package ndzip

import (
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
	"github.com/tensorcache/tensorcache/dtype"
)

// Families are those of the registry.
var Families = []codec.Family{NDZip}

// NDZip is the codec's family.
var NDZip = codec.Family{
	Name: name, GPURate: codec.RateOnGPU(name),
	Train: func(sample []byte, rowBytes int, of dtype.Type) (codec.Codec, error) {
		return rowcodec.AsCodec(train(sample, rowBytes, of))
	},
	Unmarshal: func(b []byte) (codec.Codec, error) { return rowcodec.AsCodec(Unmarshal(b)) },
}

// train returns New's codec, which learns nothing, after checking the sample.
func train(sample []byte, rowBytes int, of dtype.Type) (*Codec, error) {
	c, err := New(of, rowBytes)
	if err != nil {
		return nil, err
	}
	return c, rowcodec.CheckSample(name, sample, rowBytes)
}
