// Package toy is the codec that a test adds: words of 4 bytes that are zero are left out. A stored row is a bit for each word, padded to
// whole words, and the words that are not zero.
package toy

import (
	"encoding/binary"
	"math/bits"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/dtype"
)

// Families are those of the registry.
var Families = []codec.Family{{Name: "toy", GPURate: codec.GPURate{Rate: 0.5}, Train: train, Unmarshal: unmarshal}}

type toy struct{ rowBytes int }

func train(_ []byte, rowBytes int, of dtype.Type) (codec.Codec, error) {
	if of.Size() == 1 || rowBytes%4 != 0 {
		return nil, codec.DTypeError("toy", "rows of %d bytes of %v", rowBytes, of)
	}
	return toy{rowBytes}, nil
}

func unmarshal(metadata []byte) (codec.Codec, error) {
	if len(metadata) != 4 {
		return nil, codec.CorruptError("toy", "metadata (%d bytes) must be 4", len(metadata))
	}
	return toy{int(binary.LittleEndian.Uint32(metadata))}, nil
}

func (c toy) Name() string         { return "toy" }
func (c toy) RowBytes() int        { return c.rowBytes }
func (c toy) EncodeBound() int     { return c.head() + c.rowBytes }
func (c toy) MetadataBytes() int64 { return 0 }
func (c toy) MarshalBinary() ([]byte, error) {
	return binary.LittleEndian.AppendUint32(nil, uint32(c.rowBytes)), nil
}
func (c toy) words() int { return c.rowBytes / 4 }
func (c toy) head() int  { return (c.words() + 31) / 32 * 4 }

func (c toy) Encode(dst, row []byte) (int, error) {
	n := c.head()
	clear(dst[:n])
	for w := range c.words() {
		if x := row[4*w:][:4]; binary.LittleEndian.Uint32(x) != 0 {
			dst[w/8] |= 1 << (w % 8)
			n += copy(dst[n:], x)
		}
	}
	if n >= c.rowBytes {
		return 0, codec.ErrIncompressible
	}
	return n, nil
}

func (c toy) Stored(src []byte) (int, error) {
	n := c.head()
	if len(src) < n {
		return 0, codec.CorruptError("toy", "stored row (%d bytes) has no head", len(src))
	}
	for w := 0; w < c.words(); w += 8 {
		n += 4 * bits.OnesCount8(src[w/8]&byte(1<<min(8, c.words()-w)-1))
	}
	if n > len(src) || n > c.rowBytes {
		return 0, codec.CorruptError("toy", "stored row (%d bytes) must have %d", len(src), n)
	}
	return n, nil
}

func (c toy) Decode(row, src []byte) (int, error) {
	n, err := c.Stored(src)
	if err != nil {
		return 0, err
	}
	at := src[c.head():]
	for w := range c.words() {
		x := row[4*w:][:4]
		clear(x)
		if src[w/8]>>(w%8)&1 != 0 {
			copy(x, at)
			at = at[4:]
		}
	}
	return n, nil
}

func (c toy) DeviceForm() codec.DeviceForm {
	return codec.DeviceForm{Kernel: "toy", Head: c.head(), Params: [codec.Params]uint32{uint32(c.words()), uint32(c.head() / 4)}}
}
