//go:build long

package cache_test

import (
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
)

// TestLong_LearnsInTheBackground: a cache of 2 M rows that is opened without training and refreshed in the background hits after 500 batches
// as much as one that is filled with the true counts of these batches, less a point. Batches come at the pace of a training loop: as
// many lookups a second as cycles and the learner keep up with on two processors.
func TestLong_LearnsInTheBackground(t *testing.T) {
	l := newLearning(2_000_000, 16_384, 500)
	batches, measured := l.draw(l.batches, 1), l.draw(50, 2)
	best := l.counted(t, batches, measured)
	static := l.open(t, cache.Options{})
	_, alone := l.serve(t, static, batches, nil)
	static.Close()
	for _, pace := range []time.Duration{0, 10 * time.Millisecond, 20 * time.Millisecond} {
		c := l.open(t, cache.Options{Refresh: cache.RefreshOptions{Interval: 100 * time.Millisecond}})
		begun := time.Now()
		_, median := l.serve(t, c, batches, func(int) { time.Sleep(pace) })
		took := time.Since(begun)
		n := stats(t, c).Changes
		hitRate, _ := l.serve(t, c, measured, nil)
		t.Logf("a batch every %v: %.4f after %d batches and %v, %.4f with true counts; %d cycles, %.2f of the accesses sampled, %d lost; a Gather %v, %v without refreshing",
			pace, hitRate, l.batches, took, best, n.Cycles, float64(n.SampledAccesses)/float64(l.batch*l.batches), n.LostAccesses, median, alone)
		if pace >= 20*time.Millisecond && hitRate < best-0.01 {
			t.Errorf("hit rate %.4f, %.4f with true counts", hitRate, best)
		}
		c.Close()
	}
}
