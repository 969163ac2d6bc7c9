package kernels_test

import (
	"fmt"
	"testing"

	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
)

// phaseLengths are row lengths up to 1040 bytes whose rows begin at every place within 16 bytes, and all kinds of those of 17 to 20 quads,
// which have kernels of their own.
func phaseLengths() (lengths []int) {
	step := 7
	if short() {
		step = 37
	}
	for n := 4; n <= 1040; n += step {
		lengths = append(lengths, n)
	}
	return race.Some(append(lengths, 257, 258, 260, 264, 272, 276, 284, 288, 296, 300, 302, 304, 308, 316, 320, 321))
}

// TestDecode_Phases decodes rows that begin and end anywhere within the 16 bytes of a store, by tiles that have several rows each: every row
// is right, and no byte outside the output is written.
func TestDecode_Phases(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	codecs := []string{"none", "ibp4", "ibp8"}
	for i, rowBytes := range phaseLengths() {
		for j, name := range codecs {
			if short() && rowBytes%16 == 0 && i%len(codecs) != j {
				continue
			}
			skew := int64([]int{0, 4, 8, 1, 12, 2}[(i+j)%6])
			t.Run(fmt.Sprintf("row=%d/%s/skew=%d", rowBytes, name, skew), func(t *testing.T) {
				n, kind := max(200, min(20_000, 4_000_000/rowBytes)), "mixed"
				if short() {
					n = 401
				}
				if i%4 == 3 {
					kind = "sparse"
				}
				data := gputest.Rows(kind, 101, rowBytes, uint64(rowBytes))
				c := trained(t, name, data, rowBytes)
				slabs, hits := encodeSlabs(c, data, rowBytes, n, 2)
				both(t, gpu, reason, func(b *bench) decodeResult {
					k, out := decodeOf(b, c, slabs, hits, rowBytes, skew)
					k.Leave = 100
					b.launch(k)
					return decodeResult{b.counters(k.Counters), out.read(b)}
				}, func(t *testing.T, want, got decodeResult) {
					equalSources(t, want, got, hits, data, rowBytes)
				})
			})
		}
	}
}
