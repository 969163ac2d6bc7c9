package experiment

import "github.com/tensorcache/tensorcache/cache"

// Series is the hit rate of a cell over time. Point i covers the batches [i, i+1) × BatchesPerPoint, fewer at the end.
type Series struct {
	BatchesPerPoint int `json:"batches_per_point"`
	// HitRate is hits ÷ lookups.
	HitRate []float64 `json:"hit_rate"`
}

// maxPoints keeps a cell to some 20 KB, whatever the number of batches.
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
	m.before = now
	return nil
}
