package sleek

import (
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
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
	if err := rowcodec.CheckSample("sleek", sample, rowBytes); err != nil {
		return nil, err
	}
	var codecs []*Codec
	for subchunk := maxSubchunk; subchunk >= minSubchunk; subchunk /= 2 {
		c, err := newCodec(l, rowBytes, subchunk, b)
		if err != nil {
			return nil, err
		}
		codecs = append(codecs, c)
	}
	var best *Codec
	fewest := int64(0)
	for i, n := range sampleBytes(sample, codecs) {
		if best == nil || n < fewest {
			best, fewest = codecs[i], n
		}
	}
	return best, nil
}

// sampleBytes is what the sample's rows take by each of the codecs, each with half as long subchunks as the one
// before. Rows that do not shrink are counted raw.
func sampleBytes(sample []byte, codecs []*Codec) []int64 {
	sums := make([]int64, len(codecs))
	finest := codecs[len(codecs)-1]
	var codes [maxSubchunk / 8]uint64
	widths := make([]uint8, finest.subchunks) // of the subchunks of a codec: a longer one's is that of the wider half
	for rowBytes := finest.rowBytes; len(sample) > 0; sample = sample[rowBytes:] {
		row := sample[:rowBytes]
		for i := range widths {
			widths[i] = uint8(finest.code(codes[:], row[i*finest.subchunk:min((i+1)*finest.subchunk, rowBytes)]))
		}
		for k := len(codecs) - 1; k >= 0; k-- {
			c, bits := codecs[k], 0
			if c != finest {
				for i := range c.subchunks {
					widths[i] = widths[2*i]
					if next := 2*i + 1; next < codecs[k+1].subchunks {
						widths[i] = max(widths[i], widths[next])
					}
				}
			}
			for _, n := range widths[:c.subchunks] {
				bits += int(n)
			}
			bits = bits*c.full - int(widths[c.subchunks-1])*(c.full-c.last)
			sums[k] += int64(min(c.subchunks+(bits+7)/8, rowBytes))
		}
	}
	return sums
}
