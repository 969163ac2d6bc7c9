package ndzip

import (
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/codec"
)

// Families are those of the registry.
var Families = []codec.Family{NDZip}

// NDZip is the codec's family.
var NDZip = codec.Family{
	Name: name, GPURate: codec.RateOnGPU(name),
	Train: func(sample []byte, rowBytes int, dtype codec.DType) (codec.Codec, error) {
		return asCodec(train(sample, rowBytes, dtype))
	},
	Unmarshal: func(b []byte) (codec.Codec, error) { return asCodec(Unmarshal(b)) },
}

// train is New, which has nothing to learn, for a sample that is one.
func train(sample []byte, rowBytes int, dtype codec.DType) (*Codec, error) {
	c, err := New(dtype, rowBytes)
	switch {
	case err != nil:
		return nil, err
	case len(sample) == 0:
		return nil, errors.New("ndzip: sample (0 rows) must have at least one row")
	case len(sample)%rowBytes != 0:
		return nil, fmt.Errorf("ndzip: sample (%d bytes) must be a multiple of the row (%d bytes)", len(sample), rowBytes)
	}
	return c, nil
}

// asCodec keeps a nil *Codec from becoming a non-nil interface.
func asCodec(c *Codec, err error) (codec.Codec, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}
