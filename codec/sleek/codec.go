package sleek

import (
	"fmt"

	"github.com/tensorcache/tensorcache/slab"
)

// The lengths a subchunk may have, in bytes, all powers of two between these.
const (
	minSubchunk = 16
	maxSubchunk = 1024
)

// Codec is SLEEK for the rows of one table. It implements [codec.Codec].
type Codec struct {
	layout
	lanes     lanes
	rowBytes  int
	subchunk  int // G
	subchunks int // ⌈R/G⌉
	bounded   *bounded
}

func newCodec(l layout, rowBytes, subchunk int, b *bounded) (*Codec, error) {
	if rowBytes < 1 || rowBytes > slab.MaxRowBytes {
		return nil, fmt.Errorf("sleek: row (%d bytes) must be 1 to %d", rowBytes, slab.MaxRowBytes)
	}
	if subchunk < minSubchunk || subchunk > maxSubchunk || subchunk&(subchunk-1) != 0 {
		return nil, fmt.Errorf("sleek: subchunk (%d bytes) must be a power of two from %d to %d", subchunk, minSubchunk, maxSubchunk)
	}
	return &Codec{
		layout: l, lanes: lanesOf(l), rowBytes: rowBytes, subchunk: subchunk,
		subchunks: (rowBytes + subchunk - 1) / subchunk, bounded: b,
	}, nil
}

// Name implements codec.Codec: "sleek", or with the bound in force "sleek:0.5".
func (c *Codec) Name() string {
	if c.bounded == nil {
		return Name
	}
	return fmt.Sprintf("%s:%g", Name, c.Bound())
}

// Bound returns the largest absolute difference between an element and what is read back, 0 if there is none.
func (c *Codec) Bound() float64 {
	if c.bounded == nil {
		return 0
	}
	return c.bounded.bound()
}

// RowBytes implements codec.Codec.
func (c *Codec) RowBytes() int { return c.rowBytes }

// SubchunkBytes returns the length of a subchunk, G.
func (c *Codec) SubchunkBytes() int { return c.subchunk }

// words returns the number of words of subchunk i, the row's last one being padded.
func (c *Codec) words(i int) int {
	return (min(c.subchunk, c.rowBytes-i*c.subchunk) + c.word - 1) / c.word
}
