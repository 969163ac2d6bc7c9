package registry

import (
	"fmt"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/dtype"
)

// Codecs are compared on so many bytes of a sample, of which they are trained on every other row.
const smallestBytes = 2 << 20

// Of codecs that save equally much but for this share of the rows, the one that GPUs decode fastest is taken.
const smallestEqual = 0.005

// Smallest trains the codec that stores rows like the sample's in the fewest bytes, among those that lose nothing, and returns raw ÷ stored bytes. nil: none saves any.
func Smallest(sample []byte, rowBytes int, of dtype.Type) (codec.Codec, float64, error) {
	if rowBytes < 1 || len(sample) == 0 || len(sample)%rowBytes != 0 {
		return nil, 0, fmt.Errorf("codec: sample (%d bytes) must be a positive multiple of the row (%d bytes)", len(sample), rowBytes)
	}
	learnt, judged := sample, sample
	if rows := len(sample) / rowBytes; rows > 1 {
		n := max(1, min(rows/2, smallestBytes/2/rowBytes))
		learnt, judged = spread(sample, rowBytes, n, 0), spread(sample, rowBytes, n, 1)
	}
	all, err := train(learnt, rowBytes, of, Terms{})
	if err != nil {
		return nil, 0, err
	}
	best, least := -1, len(judged)
	for i := range all {
		c := &all[i]
		if c.Skipped != "" || c.codec == nil {
			continue
		}
		encoded, err := encodeAll(c.codec, judged, rowBytes)
		if err != nil {
			return nil, 0, fmt.Errorf("codec: %s: %w", c.Codec, err)
		}
		stored := 0
		for _, row := range encoded {
			stored += len(row)
		}
		c.Ratio = float64(len(judged)) / float64(max(1, stored))
		margin := int(smallestEqual * float64(len(judged)))
		if stored < least-margin || stored < least+margin && best >= 0 && c.rate() > all[best].rate() || stored < least && best < 0 {
			best, least = i, min(stored, least)
		}
	}
	if best < 0 {
		return nil, 1, nil
	}
	c, err := Train(all[best].Codec, sample, rowBytes, of)
	return c, all[best].Ratio, err
}
