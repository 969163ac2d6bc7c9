package cache_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/dtype"
)

// learning is a table of 64-byte rows that are looked up by Zipf's law of exponent 1.05, and batches of them: about 4 lookups a row in all,
// of which a cache for a tenth of the rows hits 85 to 90 %.
type learning struct {
	rows, batch, batches int
	data                 []byte
}

const learningRowBytes = 64

func newLearning(rows, batch, batches int) *learning {
	return &learning{rows, batch, batches, make([]byte, rows*learningRowBytes)}
}

// draw returns batches, others for every seed.
func (l *learning) draw(batches int, seed uint64) (all [][]int64) {
	r := rand.New(rand.NewPCG(seed, 1))
	z := rand.NewZipf(r, 1.05, 1, uint64(l.rows-1))
	for range batches {
		rows := make([]int64, l.batch)
		for i := range rows {
			rows[i] = int64(z.Uint64() * 7919 % uint64(l.rows)) // 7919 is prime: every rank has a row of its own
		}
		all = append(all, rows)
	}
	return all
}

// open opens a cache for a tenth of the table's bytes.
func (l *learning) open(t *testing.T, o cache.Options) *cache.Cache {
	t.Helper()
	table, err := cache.FromBytes("x", dtype.Float32, l.data, learningRowBytes)
	if err != nil {
		t.Fatal(err)
	}
	o.Tables, o.Budget, o.Codec, o.Devices.Backend = []cache.Table{table}, int64(len(l.data)/10), "none", cache.BackendHost
	return newCache(t, o)
}

// serve gathers batches and returns the share of their lookups that hit, and the median time of a Gather.
func (l *learning) serve(t *testing.T, c *cache.Cache, batches [][]int64, after func(i int)) (hitRate float64, median time.Duration) {
	t.Helper()
	out := make([]byte, l.batch*learningRowBytes)
	before := stats(t, c)
	var took []time.Duration
	for i, rows := range batches {
		begin := time.Now()
		if err := c.Gather(ctx, 0, rows, out); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(begin))
		if after != nil {
			after(i)
		}
	}
	slices.Sort(took)
	s := stats(t, c).Sub(before).Tables[0]
	return float64(s.Hits) / float64(s.Lookups), took[len(took)/2]
}

// counted returns the hit rate of a cache that was filled with the rows that all these batches look up most.
func (l *learning) counted(t *testing.T, training, measured [][]int64) float64 {
	t.Helper()
	c := l.open(t, cache.Options{Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency(), Training: func(yield func(int, []int64) bool) {
		for _, rows := range training {
			if !yield(0, rows) {
				return
			}
		}
	}}})
	hitRate, _ := l.serve(t, c, measured, nil)
	c.Close()
	return hitRate
}

// TestRefresh_LearnsAsWellAsCounting: a cache that is opened without training and refreshed with the default options, every 20 batches,
// hits after 500 batches as much as one that is filled with the true counts of these batches, less a point. While an access in sixteen was
// sampled, it hit 5 points less.
func TestRefresh_LearnsAsWellAsCounting(t *testing.T) {
	l := newLearning(100_000, 820, 500)
	batches, measured := l.draw(l.batches, 1), l.draw(50, 2)
	best := l.counted(t, batches, measured)
	c := l.open(t, cache.Options{Refresh: cache.RefreshOptions{Interval: time.Hour}}) // cycles run by number of batches, to be alike everywhere
	l.serve(t, c, batches, func(i int) {
		if i%20 == 19 {
			refresh(t, c)
		}
	})
	n := stats(t, c).Changes
	hitRate, _ := l.serve(t, c, measured, nil)
	t.Logf("%.4f after %d batches, %.4f with true counts; %.2f of the accesses sampled, %d lost", hitRate, l.batches, best,
		float64(n.SampledAccesses)/float64(l.batch*l.batches), n.LostAccesses)
	if hitRate < best-0.01 {
		t.Errorf("hit rate %.4f after %d batches, %.4f with their true counts", hitRate, l.batches, best)
	}
}

// TestRefresh_LearningWithoutWeights: policies that cannot weigh accesses observe the same share of hits and misses.
func TestRefresh_LearningWithoutWeights(t *testing.T) {
	l := newLearning(2000, 1000, 20)
	for _, p := range []admission.Policy{admission.NewLRU(), admission.NewFrequency()} {
		_, weighs := p.(admission.Weigher)
		c := l.open(t, cache.Options{Admission: cache.AdmissionOptions{Policy: p}, Refresh: cache.RefreshOptions{Interval: time.Hour}})
		hitRate, _ := l.serve(t, c, l.draw(l.batches, 1), nil)
		refresh(t, c)
		sampled := float64(stats(t, c).Changes.SampledAccesses) / float64(l.batch*l.batches)
		want := 1. / 8
		if weighs {
			want = hitRate/8 + (1 - hitRate)
		}
		if sampled < 0.9*want || sampled > 1.1*want {
			t.Errorf("%s: %.3f of the accesses sampled, want %.3f", p.Name(), sampled, want)
		}
	}
}
