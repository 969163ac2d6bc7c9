package cache_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
)

// learning is a table of rows that are looked up by Zipf's law of exponent 1.05, and batches of them: about 4 lookups a row in all,
// of which a cache for a tenth of the rows hits 85 to 90 %.
type learning struct {
	rows, batch, batches int
	backend              cache.Backend
	rowBytes             int
	data                 []byte
}

func newLearning(rows, batch, batches int) *learning {
	return &learning{rows, batch, batches, cache.BackendHost, 64, make([]byte, rows*64)}
}

// draw returns batches, others for every seed.
func (l *learning) draw(batches int, seed uint64) (all [][]int64) {
	all = make([][]int64, batches)
	host.Workers(0).For(batches, 1, func(from, to int) {
		for b := from; b < to; b++ {
			z := rand.NewZipf(rand.New(rand.NewPCG(seed, uint64(b))), 1.05, 1, uint64(l.rows-1))
			all[b] = make([]int64, l.batch)
			for i := range all[b] {
				all[b][i] = int64(z.Uint64() * 7919 % uint64(l.rows)) // 7919 is prime: every rank has a row of its own
			}
		}
	})
	return all
}

// open opens a cache for a tenth of the table's bytes.
func (l *learning) open(t *testing.T, o cache.Options) *cache.Cache {
	t.Helper()
	table, err := cache.FromBytes("x", dtype.Float32, l.data, l.rowBytes)
	if err != nil {
		t.Fatal(err)
	}
	o.Host.NoEqualRows = true // they are all zeros
	o.Tables, o.Budget, o.Codec, o.Devices.Backend = []cache.Table{table}, int64(len(l.data)/10), "none", l.backend
	return newCache(t, o)
}

// serve gathers batches and returns the share of their lookups that hit, and the median time of a Gather.
func (l *learning) serve(t *testing.T, c *cache.Cache, batches [][]int64, after func(i int)) (hitRate float64, median time.Duration) {
	t.Helper()
	out := make([]byte, l.batch*l.rowBytes)
	before := stats(t, c)
	var took []time.Duration
	for i, rows := range batches {
		begin := time.Now()
		if err := c.Gather(ctx, cache.Request{Rows: rows, Out: out}); err != nil {
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
	race.SkipSequential(t)
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

// weighing is a scripted policy that keeps which rows it observes with which weight.
type weighing struct {
	scripted
	hits   map[uint64]int
	weight float64
}

func (p *weighing) ObserveWeighted(table int, rows []int64, weight float64) {
	p.weight = weight
	for _, r := range rows {
		p.hits[hashmap.Key(table, r)]++
	}
}

// TestSampling_TellsMissesFromHits: whichever kernels serve a batch, every miss is observed once and an eighth of the hits with weight 8.
// Capture has an eighth of both.
func TestSampling_TellsMissesFromHits(t *testing.T) {
	backends := []cache.Backend{cache.BackendHost}
	if gpu, reason := gputest.OpenIfAny(t); gpu != nil {
		backends = append(backends, cache.BackendCUDA)
	} else {
		t.Log(reason)
	}
	for _, backend := range backends {
		run := func(t *testing.T) { tellsMissesFromHits(t, backend) }
		t.Run(string(backend)+"/together", run)
		t.Run(string(backend)+"/apart", func(t *testing.T) {
			defer cache.ServeApart()()
			run(t)
		})
		t.Run(string(backend)+"/hits first", func(t *testing.T) {
			defer cache.ServeApart()()
			cache.ServeHitsFirst()
			run(t)
		})
	}
}

func tellsMissesFromHits(t *testing.T, backend cache.Backend) {
	const rows, rowBytes, cached, batches, n = 4000, 64, 2000, 10, 3000
	data := normalTable(rows, rowBytes/4, 1)
	p := &weighing{scripted: scripted{ranking: rowKeys(0, cached)}, hits: map[uint64]int{}}
	captured := int64(0)
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Codec: "none", Budget: cached*(rowBytes+20) + 10_000, Devices: cache.DeviceOptions{Backend: backend},
		Admission: cache.AdmissionOptions{Policy: p}, Refresh: cache.RefreshOptions{Accesses: 1. / 8, Misses: 1, Interval: time.Hour},
		Capture: func(samples []cache.Sample, lost int64) { captured += int64(len(samples)) },
	})
	isCached := make([]bool, rows)
	for row := range isCached {
		e, err := c.Explain(0, []int64{int64(row)})
		if err != nil {
			t.Fatal(err)
		}
		isCached[row] = e[0].Cached
	}
	r := rand.New(rand.NewPCG(1, 1))
	missed, hits := map[uint64]int{}, 0
	out := make([]byte, n*rowBytes)
	for range batches {
		ids := make([]int64, n)
		for i := range ids {
			ids[i] = r.Int64N(rows)
			if isCached[ids[i]] {
				hits++
			} else {
				missed[hashmap.Key(0, ids[i])]++
			}
		}
		if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
			t.Fatal(err)
		}
	}
	refresh(t, c) // the learner has all samples
	if p.weight != 8 || hits < 5000 || len(missed) < 500 {
		t.Fatalf("weight %g, %d hits, %d rows missed", p.weight, hits, len(missed))
	}
	if !maps.Equal(p.observed, missed) {
		t.Errorf("%d rows are observed as misses, %d missed, or how often differs", len(p.observed), len(missed))
	}
	sampled := 0
	for key, times := range p.hits {
		if _, row := hashmap.SplitKey(key); !isCached[row] {
			t.Errorf("row %d, which missed, is observed as a hit", row)
		}
		sampled += times
	}
	if share := float64(sampled) / float64(hits); share < 0.11 || share > 0.14 {
		t.Errorf("%.3f of the hits are observed, want 1/8", share)
	}
	if share := float64(captured) / float64(batches*n); share < 0.11 || share > 0.14 {
		t.Errorf("%.3f of the accesses are captured, want 1/8", share)
	}
}
