package ndzip

import (
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
	"github.com/tensorcache/tensorcache/dtype"
)

const name = "ndzip"

// Codec stores the rows of one table. It implements [codec.Codec].
type Codec struct {
	word     int // bytes
	rowBytes int
	groups   int // whole groups of the row
}

// New returns the codec for rows of rowBytes with elements of a float type.
func New(of dtype.Type, rowBytes int) (*Codec, error) {
	switch of {
	case dtype.Float16, dtype.BFloat16, dtype.Float32, dtype.Float64:
		return newCodec(of.Size(), rowBytes)
	}
	return nil, codec.DTypeError(name, "element type (%v) must be float16, bfloat16, float32 or float64", of)
}

func newCodec(word, rowBytes int) (*Codec, error) {
	if err := rowcodec.CheckRow(name, rowBytes); err != nil {
		return nil, err
	}
	return &Codec{word, rowBytes, rowBytes / groupBytes(word)}, nil
}

// groupBytes returns the length of a group, which has as many words as a word has bits.
func groupBytes(word int) int { return 8 * word * word }

// Name implements codec.Codec.
func (c *Codec) Name() string { return name }

// RowBytes implements codec.Codec.
func (c *Codec) RowBytes() int { return c.rowBytes }

// MetadataBytes implements codec.Codec: nothing is learned of a table.
func (c *Codec) MetadataBytes() int64 { return 0 }

// EncodeBound implements codec.Codec: heads, all columns, the remainder, and a word that is written beyond the columns.
func (c *Codec) EncodeBound() int { return (c.groups+1)*c.word + c.rowBytes }

// Encode implements codec.Codec.
func (c *Codec) Encode(dst, row []byte) (int, error) {
	n := c.encode(dst[:c.EncodeBound()], row[:c.rowBytes])
	if n >= c.rowBytes {
		return 0, codec.ErrIncompressible
	}
	return n, nil
}

// encode writes the stored form, however long it is.
func (c *Codec) encode(dst, row []byte) int {
	n := encodeGroups(dst, row, c.word, c.groups)
	return n + copy(dst[n:], row[c.groups*groupBytes(c.word):])
}

// Decode implements codec.Codec.
func (c *Codec) Decode(row, src []byte) (int, error) {
	n, err := c.Stored(src)
	if err != nil {
		return 0, err
	}
	row = row[:c.rowBytes]
	rest := row[c.groups*groupBytes(c.word):]
	decodeGroups(row, src[:n-len(rest)], c.word, c.groups)
	copy(rest, src[n-len(rest):n])
	return n, nil
}

// Stored implements codec.Codec.
func (c *Codec) Stored(src []byte) (int, error) {
	heads := c.groups * c.word
	if len(src) < heads {
		return 0, codec.CorruptError(name, "stored row (%d bytes) is shorter than its heads (%d)", len(src), heads)
	}
	n := heads + columnBytes(src[:heads], c.word) + c.rowBytes - c.groups*groupBytes(c.word)
	if n > len(src) {
		return 0, codec.CorruptError(name, "stored row (%d bytes) ends before its columns and remainder (%d)", len(src), n)
	}
	return n, nil
}
