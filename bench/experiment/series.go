package experiment

import (
	"math"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/slab"
)

// Series is how a cell went over time. Point i covers the batches [i, i+1) × BatchesPerPoint, fewer at the end.
type Series struct {
	BatchesPerPoint int `json:"batches_per_point"`
	// HitRate is hits ÷ lookups.
	HitRate []float64 `json:"hit_rate"`
	// MissesByReason has a count for each point.
	MissesByReason map[string][]int64 `json:"misses_by_reason"`
	// Latency is of all batches, in microseconds.
	Latency Histogram `json:"latency_us"`
}

// Histogram counts values: Counts[i] of them are above Bounds[i-1] and not above Bounds[i]. The first count has no lower
// bound, and the last, one more than there are bounds, no upper one.
type Histogram struct {
	Bounds []float64 `json:"bounds"`
	Counts []int64   `json:"counts"`
}

// maxPoints keeps a cell to some 50 KB, whatever the number of batches.
const maxPoints = 1000

// seriesMaker makes the series of a cache's batches.
type seriesMaker struct {
	series  Series
	batches int // in all
	seen    int
	before  cache.TableStats
}

func newSeriesMaker(batches int, before cache.Stats) *seriesMaker {
	m := &seriesMaker{batches: batches, before: before.Tables[0]}
	m.series.BatchesPerPoint = max(1, (batches+maxPoints-1)/maxPoints)
	m.series.MissesByReason = map[string][]int64{}
	return m
}

// batch notes that the cache has served another batch.
func (m *seriesMaker) batch(c *cache.Cache) error {
	if m.seen++; m.seen%m.series.BatchesPerPoint != 0 && m.seen != m.batches {
		return nil
	}
	stats, err := c.Stats()
	if err != nil {
		return err
	}
	now := stats.Tables[0]
	m.series.HitRate = append(m.series.HitRate, ratio(now.Hits-m.before.Hits, now.Lookups-m.before.Lookups))
	for r := range slab.Reason(slab.NumReasons) {
		name := r.String()
		m.series.MissesByReason[name] = append(m.series.MissesByReason[name], now.MissesByReason[r]-m.before.MissesByReason[r])
	}
	m.before = now
	return nil
}

// end returns the series of batches that took so long.
func (m *seriesMaker) end(times []time.Duration) *Series {
	m.series.Latency = newHistogram(times)
	return &m.series
}

// newHistogram has four bins to a factor of two, from just below the least value to the greatest.
func newHistogram(times []time.Duration) Histogram {
	const bins = 4
	bin := func(t time.Duration) int { return int(math.Ceil(bins * math.Log2(max(1, float64(t))/1000))) }
	if len(times) == 0 {
		return Histogram{Bounds: []float64{}, Counts: []int64{0}}
	}
	first, last := bin(slices.Min(times))-1, bin(slices.Max(times))
	h := Histogram{Counts: make([]int64, last-first+2)}
	for _, t := range times {
		h.Counts[bin(t)-first]++
	}
	for b := first; b <= last; b++ {
		h.Bounds = append(h.Bounds, math.Exp2(float64(b)/bins))
	}
	return h
}
