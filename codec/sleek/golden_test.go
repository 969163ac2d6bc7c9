package sleek

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/tensorcache/tensorcache/codec/internal/codectest"
	"github.com/tensorcache/tensorcache/dtype"
)

// testCodec returns the lossless codec with the given subchunk length.
func testCodec(of dtype.Type, rowBytes, subchunk int) (*Codec, error) {
	l, err := layoutOf(of)
	if err != nil {
		return nil, err
	}
	return newCodec(l, rowBytes, subchunk, nil)
}

// testBounded returns the error-bounded codec with the given subchunk length.
func testBounded(bound float64, of dtype.Type, rowBytes, subchunk int) (*Codec, error) {
	l, err := layoutOf(of)
	if err != nil {
		return nil, err
	}
	if err := checkBound(bound); err != nil {
		return nil, err
	}
	return newCodec(l, rowBytes, subchunk, newBounded(l, bound))
}

// TestEncode_GoldenFiles compares rows with files that an independent transcription of SLEEK's own programs wrote. Such a
// file is a row codec's output for rows of 16 KiB with subchunks of 512 bytes, in a frame:
//
//	0       8              8 + 2k
//	+-------+--------------+---------+---------+-----+
//	| size  | k lengths    | chunk 0 | chunk 1 | ... |    k = ⌈size / 16384⌉
//	| int64 | uint16 each  |         |         |     |
//	+-------+--------------+---------+---------+-----+
//
// A chunk is a stored row and the length of its data in 2 bytes, or, if that is not shorter, the data. The last row is
// padded with zeros.
func TestEncode_GoldenFiles(t *testing.T) {
	const chunkBytes = 16 << 10
	for file, of := range map[string]dtype.Type{"sz_testfloat": dtype.Float32, "sz_testdouble": dtype.Float64} {
		t.Run(file, func(t *testing.T) {
			data, _ := codectest.Table(t, file+".npy")
			golden := codectest.File(t, "golden", file+".sleek")
			c, err := testCodec(of, chunkBytes, 512)
			if err != nil {
				t.Fatal(err)
			}
			if size := binary.LittleEndian.Uint64(golden); size != uint64(len(data)) {
				t.Fatalf("golden file of %d bytes of data, want %d", size, len(data))
			}
			chunks := (len(data) + chunkBytes - 1) / chunkBytes
			lengths, rest := golden[8:], golden[8+2*chunks:]
			dst, back := make([]byte, c.EncodeBound()), make([]byte, chunkBytes)
			coded := 0
			for i := range chunks {
				want := rest[:binary.LittleEndian.Uint16(lengths[2*i:])]
				rest = rest[len(want):]
				part := data[i*chunkBytes : min((i+1)*chunkBytes, len(data))]
				row := append(bytes.Clone(part), make([]byte, chunkBytes-len(part))...)
				n := c.encode(dst, row)
				if n+2 >= len(part) {
					if !bytes.Equal(want, part) {
						t.Errorf("chunk %d: %d bytes, want the data", i, len(want))
					}
					continue
				}
				coded++
				if got := binary.LittleEndian.AppendUint16(dst[:n:n], uint16(len(part))); !bytes.Equal(got, want) {
					t.Errorf("chunk %d: %d bytes differ from the golden %d", i, len(got), len(want))
				}
				if m, err := c.Decode(back, want[:len(want)-2]); err != nil || m != n || !bytes.Equal(back, row) {
					t.Errorf("golden chunk %d: decoded %d of %d bytes, %v", i, m, n, err)
				}
			}
			if len(rest) != 0 || coded == 0 {
				t.Errorf("%d bytes after %d chunks, %d of them coded", len(rest), chunks, coded)
			}
		})
	}
}
