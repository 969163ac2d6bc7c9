package sleek

import (
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/slab"
)

// Train makes the codec whose subchunk length stores the sample's rows, of dtype's elements and back to back, in the fewest bytes.
func Train(sample []byte, rowBytes int, dtype codec.DType) (*Codec, error) {
	l, err := layoutOf(dtype)
	if err != nil {
		return nil, err
	}
	return train(sample, rowBytes, l, nil)
}

// TrainBounded is Train for the error-bounded mode: see [NewBounded].
func TrainBounded(sample []byte, rowBytes int, dtype codec.DType, bound float64) (*Codec, error) {
	l, err := layoutOf(dtype)
	if err != nil {
		return nil, err
	}
	if err := checkBound(bound); err != nil {
		return nil, err
	}
	return train(sample, rowBytes, l, newBounded(l, bound))
}

// train makes the codec whose subchunk length stores the sample's rows in the fewest bytes; of two as good, the longer.
func train(sample []byte, rowBytes int, l layout, b *bounded) (*Codec, error) {
	switch {
	case rowBytes < 1 || rowBytes > slab.MaxRowBytes:
		return nil, fmt.Errorf("sleek: row (%d bytes) must be 1 to %d", rowBytes, slab.MaxRowBytes)
	case len(sample) == 0:
		return nil, errors.New("sleek: sample (0 rows) must have at least one row")
	case len(sample)%rowBytes != 0:
		return nil, fmt.Errorf("sleek: sample (%d bytes) must be a multiple of the row (%d bytes)", len(sample), rowBytes)
	}
	var best *Codec
	fewest := int64(0)
	for subchunk := maxSubchunk; subchunk >= minSubchunk; subchunk /= 2 {
		c, err := newCodec(l, rowBytes, subchunk, b)
		if err != nil {
			return nil, err
		}
		if n := c.sampleBytes(sample); best == nil || n < fewest {
			best, fewest = c, n
		}
	}
	return best, nil
}

// sampleBytes is what the sample's rows take, those that do not shrink counted raw.
func (c *Codec) sampleBytes(sample []byte) (sum int64) {
	var codes [maxSubchunk / 8]uint64
	for ; len(sample) > 0; sample = sample[c.rowBytes:] {
		row, bits := sample[:c.rowBytes], 0
		for i := range c.subchunks {
			n := c.code(codes[:], row[i*c.subchunk:min((i+1)*c.subchunk, len(row))])
			bits += c.words(i) * int(n)
		}
		sum += int64(min(c.subchunks+(bits+7)/8, c.rowBytes))
	}
	return sum
}
