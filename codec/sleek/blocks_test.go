package sleek

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestDecodeBlocks_AsSubchunks decodes payloads of arbitrary bytes, of all widths, in blocks and as rows without blocks are decoded.
func TestDecodeBlocks_AsSubchunks(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	for _, of := range dtypes {
		for subchunk := minSubchunk; subchunk <= maxSubchunk; subchunk *= 2 {
			for range 200 {
				rowBytes := 1 + r.IntN(3*subchunk)
				c, err := testCodec(of, rowBytes, subchunk)
				if err != nil {
					t.Fatal(err)
				}
				if c.blocks == (blocks{}) {
					continue
				}
				src := make([]byte, c.EncodeBound())
				for i := range src {
					src[i] = byte(r.Uint32())
				}
				same := r.UintN(c.lanes.width + 1)
				for i := range c.subchunks {
					if src[i] = byte(same); r.IntN(2) == 0 {
						src[i] = byte(r.UintN(c.lanes.width + 1))
					}
				}
				n, err := c.Stored(src)
				if err != nil {
					t.Fatal(err)
				}
				got, want := make([]byte, rowBytes), make([]byte, rowBytes)
				if m, err := c.Decode(got, src[:n:n]); err != nil || m != n {
					t.Fatalf("%d of %d bytes, %v", m, n, err)
				}
				if c.decodeSubchunks(want, src); !bytes.Equal(got, want) {
					t.Fatalf("%v row %d in subchunks of %d, widths %v: %x, want %x", of, rowBytes, subchunk, src[:c.subchunks], got, want)
				}
			}
		}
	}
}
