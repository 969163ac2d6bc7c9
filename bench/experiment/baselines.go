package experiment

import (
	"fmt"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/tensorcache/tensorcache/codec"
)

// Everyday compressors, a row at a time, beside the codecs: what random access to rows costs them. The cache has none of them.
var baselines = map[string]func(rowBytes int) (codec.Codec, error){
	"zstd": func(rowBytes int) (codec.Codec, error) {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true))
		if err != nil {
			return nil, err
		}
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return &zstdRows{raw{rowBytes}, e, d}, nil
	},
	"lz4": func(rowBytes int) (codec.Codec, error) { return &lz4Rows{raw: raw{rowBytes}}, nil },
}

// baselineNames are the baselines in listing order.
var baselineNames = []string{"zstd", "lz4"}

// zstdRows stores each row as a zstd frame at the default level.
type zstdRows struct {
	raw
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

func (z *zstdRows) Name() string     { return "zstd" }
func (z *zstdRows) EncodeBound() int { return z.rowBytes }
func (z *zstdRows) Encode(dst, row []byte) (int, error) {
	out := z.encoder.EncodeAll(row, dst[:0])
	if len(out) >= z.rowBytes {
		return 0, codec.ErrIncompressible
	}
	return copy(dst, out), nil // dst itself, unless it was too short for a moment
}
func (z *zstdRows) Decode(row, src []byte) (int, error) {
	out, err := z.decoder.DecodeAll(src, row[:0])
	if err == nil && len(out) != z.rowBytes {
		err = fmt.Errorf("zstd: frame of %d bytes, want %d", len(out), z.rowBytes)
	}
	return len(src), err
}

// lz4Rows stores each row as an lz4 block.
type lz4Rows struct {
	raw
	compressor lz4.Compressor
}

func (z *lz4Rows) Name() string     { return "lz4" }
func (z *lz4Rows) EncodeBound() int { return z.rowBytes }
func (z *lz4Rows) Encode(dst, row []byte) (int, error) {
	n, err := z.compressor.CompressBlock(row, dst[:z.rowBytes])
	if err != nil || n == 0 || n >= z.rowBytes { // it says so by an error or by 0
		return 0, codec.ErrIncompressible
	}
	return n, nil
}
func (z *lz4Rows) Decode(row, src []byte) (int, error) {
	n, err := lz4.UncompressBlock(src, row)
	if err == nil && n != z.rowBytes {
		err = fmt.Errorf("lz4: block of %d bytes, want %d", n, z.rowBytes)
	}
	return len(src), err
}
