package experiment

import (
	"fmt"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/tensorcache/tensorcache/codec"
)

// baselines are everyday compressors, a row at a time, beside the codecs: what random access to rows costs them. The cache has none of
// them.
var baselines = map[string]func(rowBytes int) (codec.Codec, error){
	"zstd": func(rowBytes int) (codec.Codec, error) { // a frame a row, at the default level
		// Like libzstd, code literals also in rows where nothing repeats. The package leaves such rows raw at this level.
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true), zstd.WithAllLitEntropyCompression(true))
		if err != nil {
			return nil, err
		}
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return &baseline{raw{rowBytes}, "zstd",
			func(dst, row []byte) int { return copy(dst, e.EncodeAll(row, dst[:0])) }, // dst itself, unless it was too short
			func(row, src []byte) (int, error) {
				out, err := d.DecodeAll(src, row[:0])
				return len(out), err
			}}, nil
	},
	"lz4": func(rowBytes int) (codec.Codec, error) { // a block a row
		var c lz4.Compressor
		return &baseline{raw{rowBytes}, "lz4",
			func(dst, row []byte) int {
				n, err := c.CompressBlock(row, dst)
				if err != nil || n == 0 { // a row that does not shrink is an error or 0
					return len(dst)
				}
				return n
			},
			func(row, src []byte) (int, error) { return lz4.UncompressBlock(src, row) }}, nil
	},
}

// Baseline says whether a result of Compress is of a compressor that the cache does not have.
func Baseline(name string) bool { return baselines[name] != nil }

// baselineNames are the baselines in listing order.
var baselineNames = []string{"zstd", "lz4"}

// baseline stores rows as a general compressor does. encode gets a dst of a row's length, and returns at least that if it is too short.
type baseline struct {
	raw
	name   string
	encode func(dst, row []byte) int
	decode func(row, src []byte) (int, error)
}

func (b *baseline) Name() string     { return b.name }
func (b *baseline) EncodeBound() int { return b.rowBytes }
func (b *baseline) Encode(dst, row []byte) (int, error) {
	n := b.encode(dst[:b.rowBytes], row)
	if n >= b.rowBytes {
		return 0, codec.ErrIncompressible
	}
	return n, nil
}
func (b *baseline) Decode(row, src []byte) (int, error) {
	n, err := b.decode(row, src)
	if err == nil && n != b.rowBytes {
		err = fmt.Errorf("%s: %d bytes decoded, want %d", b.name, n, b.rowBytes)
	}
	return len(src), err
}
