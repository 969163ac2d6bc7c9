//go:build long

package sleek

import (
	"encoding/binary"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// TestLong_BoundedEveryFloat32 sends all 2^32 words of float32 through stored rows with each of three bounds, and losslessly.
func TestLong_BoundedEveryFloat32(t *testing.T) {
	const rowBytes = 16 << 10
	for _, bound := range []float64{0, 1e-30, 1e-3, 1e6} {
		c, err := testCodec(dtype.Float32, rowBytes, 256)
		if bound != 0 {
			c, err = testBounded(bound, dtype.Float32, rowBytes, 256)
		}
		if err != nil {
			t.Fatal(err)
		}
		var next, changed, worst atomic.Uint64
		var wg sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			wg.Go(func() {
				row, got, dst := make([]byte, rowBytes), make([]byte, rowBytes), make([]byte, c.EncodeBound())
				for !t.Failed() {
					first := next.Add(rowBytes/4) - rowBytes/4
					if first >= 1<<32 {
						return
					}
					for i := 0; i < rowBytes; i += 4 {
						binary.LittleEndian.PutUint32(row[i:], uint32(first)+uint32(i/4))
					}
					n := c.encode(dst, row)
					if m, err := c.Decode(got, dst[:n]); err != nil || m != n {
						t.Errorf("words from %08x: %d of %d bytes, %v", first, m, n, err)
						return
					}
					for i := 0; i < rowBytes; i += 4 {
						x, y := binary.LittleEndian.Uint32(row[i:]), binary.LittleEndian.Uint32(got[i:])
						if x == y {
							continue
						}
						changed.Add(1)
						a, b := float64(math.Float32frombits(x)), float64(math.Float32frombits(y))
						off := math.Abs(a - b) // exact: both are multiples of the smaller one's last bit, and close
						if x&0x7f800000 == 0x7f800000 || !(off <= bound) {
							t.Errorf("bound %g: %08x (%g) reads back as %08x (%g)", bound, x, a, y, b)
							return
						}
						for old := worst.Load(); math.Float64bits(off) > old && !worst.CompareAndSwap(old, math.Float64bits(off)); old = worst.Load() {
						}
					}
				}
			})
		}
		wg.Wait()
		t.Logf("bound %g, in force %g: %d of 2^32 words are changed, by %g at most", bound, c.Bound(), changed.Load(), math.Float64frombits(worst.Load()))
		if bound == 0 && changed.Load() != 0 || bound != 0 && math.Float64frombits(worst.Load()) != c.Bound() {
			t.Errorf("bound %g: the worst change is %g, want %g", bound, math.Float64frombits(worst.Load()), c.Bound())
		}
	}
}
