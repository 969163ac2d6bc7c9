package kernels_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/codec/zipnn"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/slab"
)

// TestCoders_ZipnnCodes has rows whose highest plane, the only coded one, is of codes of one bit, of which a look-up has more than two, of
// codes so long that it has one, and of escapes in all places, in planes of any kind.
func TestCoders_ZipnnCodes(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	values := map[string]func(r *rand.Rand) byte{
		"bits":    func(r *rand.Rand) byte { return byte(r.IntN(2)) },
		"long":    func(r *rand.Rand) byte { return byte(bits.Len32(r.Uint32()|1) * r.IntN(8)) },
		"escapes": func(r *rand.Rand) byte { return byte(7 * (r.IntN(3) / 2) * r.IntN(37)) },
	}
	seen := map[string]func(r *rand.Rand) byte{
		"bits": values["bits"], "long": values["long"], "escapes": func(r *rand.Rand) byte { return byte(r.IntN(8) / 7) },
	}
	for name, value := range values {
		for _, layout := range []zipnn.Layout{{ElementBytes: 1}, {ElementBytes: 2}, {ElementBytes: 2, ExponentBits: 8}, {ElementBytes: 4},
			{ElementBytes: 4, ExponentBits: 8}, {ElementBytes: 4, ExponentBits: 5}, {ElementBytes: 8}} {
			for i, rowBytes := range race.Some([]int{8, 17, 31, 64, 520, 1031, 2500, 8200}) {
				t.Run(fmt.Sprintf("%s/element=%d/exponent=%d/row=%d", name, layout.ElementBytes, layout.ExponentBits, rowBytes), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(rowBytes), 5))
					rowsOf := func(rows int, of func(*rand.Rand) byte) []byte {
						data := make([]byte, rows*rowBytes)
						for i := range data {
							switch at := i % rowBytes % layout.ElementBytes; {
							case at == layout.ElementBytes-1 && layout.ExponentBits == 0:
								data[i] = of(r)
							case at == 0 && layout.ElementBytes > 1 && i/rowBytes%16 != 0:
								data[i] = byte(r.Uint32())
							}
						}
						for i := 0; layout.ExponentBits == 8 && i < len(data); i += rowBytes {
							for j := i; j+layout.ElementBytes <= i+rowBytes; j += layout.ElementBytes {
								top := data[j+layout.ElementBytes-2:]
								binary.LittleEndian.PutUint16(top, uint16(of(r))<<7|uint16(r.IntN(2))<<15|binary.LittleEndian.Uint16(top)&0x7f)
							}
						}
						return data
					}
					c, err := zipnn.Train(rowsOf(64, seen[name]), rowBytes, layout)
					if err != nil {
						t.Fatal(err)
					}
					n := max(6, min(100, batchFor(rowBytes)))
					data := rowsOf(n, value)
					slabs, hits := encodeSlabs(c, data, rowBytes, n, 1)
					both(t, gpu, reason, func(b *bench) decodeResult {
						k, out := decodeOf(b, c, slabs, hits, rowBytes, int64([]int{0, 4, 8, 1}[i%4]))
						b.launch(k)
						return decodeResult{b.counters(k.Counters), out.read(b)}
					}, func(t *testing.T, want, got decodeResult) {
						equalDecode(t, want, got)
						compressed := 0
						for i := range hits {
							if slab.Location(hits[i].Word).Compressed() {
								compressed++
							}
							if !bytes.Equal(got.out[i*rowBytes:][:rowBytes], data[i*7919%n*rowBytes:][:rowBytes]) {
								t.Fatalf("row %d differs from its source", i)
							}
						}
						if compressed == 0 && rowBytes >= 64 {
							t.Error("no row is compressed")
						}
					})
				})
			}
		}
	}
}
