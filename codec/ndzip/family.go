package ndzip

import (
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

// NDZip is the family of the registry.
var NDZip = codec.Family{
	Name: name, GPURate: codec.RateOnGPU(name),
	Train: func(sample []byte, rowBytes int, dtype codec.DType) (codec.Codec, error) {
		return rowcodec.AsCodec(train(sample, rowBytes, dtype))
	},
	Unmarshal: func(b []byte) (codec.Codec, error) { return rowcodec.AsCodec(Unmarshal(b)) },
}

// train is New, which has nothing to learn, for a sample that is one.
func train(sample []byte, rowBytes int, dtype codec.DType) (*Codec, error) {
	c, err := New(dtype, rowBytes)
	if err != nil {
		return nil, err
	}
	return c, rowcodec.CheckSample(name, sample, rowBytes)
}
