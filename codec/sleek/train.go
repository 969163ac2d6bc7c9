package sleek

import (
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
	"github.com/tensorcache/tensorcache/dtype"
)

// Train makes the codec with the subchunk length that stores the sample in the fewest bytes. The sample is rows back to back,
// of elements of dtype.
func Train(sample []byte, rowBytes int, of dtype.Type) (*Codec, error) {
	l, err := layoutOf(of)
	if err != nil {
		return nil, err
	}
	return train(sample, rowBytes, l, nil)
}

// TrainBounded is Train for the error-bounded mode: no finite element of a decoded row differs from the original by more than
// bound, which must be positive and finite and is rounded down to a power of two.
func TrainBounded(sample []byte, rowBytes int, of dtype.Type, bound float64) (*Codec, error) {
	l, err := layoutOf(of)
	if err != nil {
		return nil, err
	}
	if err := checkBound(bound); err != nil {
		return nil, err
	}
	return train(sample, rowBytes, l, newBounded(l, bound))
}

// train tries all subchunk lengths. Of two that are equally good, it takes the longer.
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

// sampleBytes returns the stored bytes of the sample by each of the codecs. The subchunks of each codec must be half as long as
// those of the one before. Rows that do not shrink count as raw.
func sampleBytes(sample []byte, codecs []*Codec) []int64 {
	sums := make([]int64, len(codecs))
	finest := codecs[len(codecs)-1]
	var codes [maxSubchunk / 8]uint64
	widths := make([]uint8, finest.subchunks) // of the subchunks; a longer subchunk has the width of its wider half
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
