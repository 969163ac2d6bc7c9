package ndzip

import (
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

// NDZip makes the codecs. It serves floats of 2, 4 and 8 bytes.
var NDZip = codec.Family{
	Name: name, GPURate: codec.RateOnGPU(name),
	Train: func(sample []byte, rowBytes int, dtype codec.DType) (codec.Codec, error) {
		return rowcodec.AsCodec(train(sample, rowBytes, dtype))
	},
	Unmarshal: func(b []byte) (codec.Codec, error) { return rowcodec.AsCodec(Unmarshal(b)) },
}

// train returns New's codec, which learns nothing, after checking the sample.
func train(sample []byte, rowBytes int, dtype codec.DType) (*Codec, error) {
	c, err := New(dtype, rowBytes)
	if err != nil {
		return nil, err
	}
	return c, rowcodec.CheckSample(name, sample, rowBytes)
}
