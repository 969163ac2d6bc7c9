package demand

import (
	"math"
	"testing"
	"time"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/tensorcache/tensorcache/internal/race"
)

// TestTinyLFU_MissesAsRistretto: a ristretto cache that is given time to count every 64 accesses, and so drops none, misses as often, but for
// chance: both draw what they evict.
func TestTinyLFU_MissesAsRistretto(t *testing.T) {
	if race.Enabled {
		t.Skip("under the race detector sync.Pool drops the buffers in which ristretto collects accesses, so it counts hardly any")
	}
	tr := load(t, "gli").Unit()
	for _, capacity := range []int64{250, 500, 1000, 2000} {
		want := 0.0
		for tries := 0; ; tries++ {
			misses, dropped := ristrettoMisses(t, tr, capacity)
			if want = float64(misses) / float64(len(tr.IDs)); dropped == 0 {
				break
			}
			if tries == 20 {
				t.Skip("ristretto dropped accesses 20 times: the machine is too busy")
			}
		}
		if got := simulate(t, tr, "tinylfu", capacity).MissRatio(); math.Abs(got-want) > 0.02 {
			t.Errorf("%d rows: miss ratio %.4f, ristretto's %.4f", capacity, got, want)
		}
	}
}

func ristrettoMisses(t *testing.T, tr *Trace, capacity int64) (misses int, dropped uint64) {
	t.Helper()
	const buffer = 64
	c, err := ristretto.NewCache(&ristretto.Config[uint32, struct{}]{
		NumCounters: 10 * capacity, MaxCost: capacity, BufferItems: buffer, IgnoreInternalCost: true, Metrics: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i, row := range tr.IDs {
		_, hit := c.Get(row)
		if i%buffer == buffer-1 {
			time.Sleep(20 * time.Microsecond)
		}
		if !hit {
			misses++
			c.Set(row, struct{}{}, 1)
			c.Wait()
		}
	}
	return misses, c.Metrics.GetsDropped()
}

// TestTinyLFU_AnyCapacity: a cache far larger than the trace holds every row, and its counters take no more memory than the rows need.
func TestTinyLFU_AnyCapacity(t *testing.T) {
	tr := &Trace{IDs: []uint32{0, 1, 2, 0, 1, 2}, Rows: 3}
	for _, capacity := range []int64{3, 1000, math.MaxInt64 / 4} {
		if out := simulate(t, tr, "tinylfu", capacity); out.Misses != 3 {
			t.Errorf("%d rows: %d misses, want 3", capacity, out.Misses)
		}
	}
}
