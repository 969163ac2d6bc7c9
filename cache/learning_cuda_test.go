//go:build long && cuda && linux

package cache_test

import (
	"slices"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// TestLong_LearnsOnGPU: as TestLong_LearnsInTheBackground, on a GPU, with 16 GiB in rows of 512 bytes (with -short, 8 MiB) and batches that lie in
// its memory, one every 20 ms. Gathers meanwhile take at most 3 % longer than those of the same cache while no cycle runs and nothing is sampled.
func TestLong_LearnsOnGPU(t *testing.T) {
	gputest.Require(t)
	bytes, pace := 16<<30, 20*time.Millisecond
	if testing.Short() {
		bytes, pace = 8<<20, time.Millisecond
	}
	const rowBytes, count = 512, 500
	rows := bytes / rowBytes
	l := &learning{rows, rows * 41 / (10 * count), count, cache.BackendCUDA, rowBytes, make([]byte, bytes)}
	batches, measured := l.draw(l.batches, 1), l.draw(20, 2)
	best := l.counted(t, batches, measured)
	d := gputest.Open(t)
	b := putBatch(t, d, batches[0], rowBytes)
	serve := func(c *cache.Cache, all [][]int64, pace time.Duration) (hitRate float64, median time.Duration) {
		before := stats(t, c)
		var took []time.Duration
		for _, ids := range all {
			if err := device.Upload(d, b.rows, cache.AsBytes(ids)); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			g, err := c.On(0).GatherDevice(ctx, 0, 0, b.rows, b.out)
			if err == nil {
				err = g.Wait()
			}
			if err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(begin))
			time.Sleep(pace)
		}
		slices.Sort(took)
		s := stats(t, c).Sub(before).Tables[0]
		return float64(s.Hits) / float64(s.Lookups), took[len(took)/2]
	}
	c := l.open(t, cache.Options{Refresh: cache.RefreshOptions{Interval: 100 * time.Millisecond}})
	serve(c, batches, pace)
	n := stats(t, c).Changes
	hitRate, learning := serve(c, measured, pace)
	t.Logf("%.4f after %d batches of %d, %.4f with true counts; %d cycles, %.2f of the accesses sampled, %d lost", hitRate, count, l.batch, best, n.Cycles,
		float64(n.SampledAccesses)/float64(l.batch*count), n.LostAccesses)
	if !testing.Short() && hitRate < best-0.01 {
		t.Errorf("hit rate %.4f, %.4f with true counts", hitRate, best)
	}
	// The same rows in a cache that does not change.
	path := t.TempDir() + "/learnt"
	if err := c.Snapshot(path); err != nil {
		t.Fatal(err)
	}
	c.Close()
	still := l.open(t, cache.Options{Admission: cache.AdmissionOptions{Restore: path}})
	rate, alone := serve(still, measured, pace)
	t.Logf("median Gather %v while learning at a hit rate of %.4f, %v without at %.4f", learning, hitRate, alone, rate)
	if !testing.Short() && float64(learning) > 1.03*float64(alone) {
		t.Errorf("a Gather takes %v while the cache learns, %v otherwise", learning, alone)
	}
}
