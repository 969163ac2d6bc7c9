package sleek

import (
	"fmt"

	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

// Subchunk lengths in bytes are the powers of two from minSubchunk to maxSubchunk.
const (
	minSubchunk = 16
	maxSubchunk = 1024
)

// Codec stores the rows of one table. It implements [codec.Codec].
type Codec struct {
	layout
	lanes     lanes
	rowBytes  int
	subchunk  int // G
	subchunks int // ⌈R/G⌉
	bounded   *bounded

	perGroup   uint // words in eight bytes
	full, last int  // words in a whole subchunk, and in the last one
	blocks     blocks
}

// newCodec returns the codec for rows of rowBytes in subchunks of the given length; b is nil for the lossless mode.
func newCodec(l layout, rowBytes, subchunk int, b *bounded) (*Codec, error) {
	if err := rowcodec.CheckRow("sleek", rowBytes); err != nil {
		return nil, err
	}
	if subchunk < minSubchunk || subchunk > maxSubchunk || subchunk&(subchunk-1) != 0 {
		return nil, fmt.Errorf("sleek: subchunk (%d bytes) must be a power of two from %d to %d", subchunk, minSubchunk, maxSubchunk)
	}
	c := &Codec{
		layout: l, lanes: lanesOf(l), rowBytes: rowBytes, subchunk: subchunk,
		subchunks: (rowBytes + subchunk - 1) / subchunk, bounded: b, perGroup: uint(8 / l.word), full: subchunk / l.word,
	}
	c.last = c.words(c.subchunks - 1)
	c.blocks = blocksOf(c)
	return c, nil
}

// Name implements codec.Codec: "sleek", or "sleek-eb:0.5" with the rounded bound.
func (c *Codec) Name() string {
	if c.bounded == nil {
		return name
	}
	return fmt.Sprintf("%s:%g", boundedName, c.Bound())
}

// Bound returns the largest absolute error of an element, 0 in the lossless mode.
func (c *Codec) Bound() float64 {
	if c.bounded == nil {
		return 0
	}
	return c.bounded.bound()
}

// MetadataBytes implements codec.Codec. It is 0: kernels have all parameters in their arguments.
func (c *Codec) MetadataBytes() int64 { return 0 }

// RowBytes implements codec.Codec.
func (c *Codec) RowBytes() int { return c.rowBytes }

// SubchunkBytes returns the length of a subchunk, G.
func (c *Codec) SubchunkBytes() int { return c.subchunk }

// words returns the number of words of subchunk i, a padded last word included.
func (c *Codec) words(i int) int {
	return (min(c.subchunk, c.rowBytes-i*c.subchunk) + c.word - 1) / c.word
}
