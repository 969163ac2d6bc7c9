package web

import (
	"slices"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/internal/statjson"
	"github.com/tensorcache/tensorcache/serve/catalog"
)

const (
	historyStep = 5 * time.Second
	historyKeep = 720 // points: an hour
)

// Point is what happened in a stretch of time.
type Point struct {
	Time           float64          `json:"time"`    // seconds since 1970, at its end
	Seconds        float64          `json:"seconds"` // its length
	Lookups        int64            `json:"lookups"`
	Hits           int64            `json:"hits"`
	MissesByReason map[string]int64 `json:"misses_by_reason"`
	RowsCached     int64            `json:"rows_cached"` // at its end
	AdmittedRows   int64            `json:"admitted_rows"`
	EvictedRows    int64            `json:"evicted_rows"`
}

// history keeps points.
type history struct {
	end   chan struct{}
	ended sync.WaitGroup
	mu    struct {
		sync.Mutex
		all []Point
	}
}

func newHistory(of func() (*catalog.Catalog, error)) *history {
	h := &history{end: make(chan struct{})}
	h.ended.Go(func() { h.keep(of, historyStep) })
	return h
}

func (h *history) close() {
	close(h.end)
	h.ended.Wait()
}

// keep adds a point each step.
func (h *history) keep(of func() (*catalog.Catalog, error), step time.Duration) {
	tick := time.NewTicker(step)
	defer tick.Stop()
	var last *statjson.Stats
	var at time.Time
	for {
		if c, err := of(); err == nil {
			if now, err := c.Stats(); err == nil {
				if t := time.Now(); last != nil {
					h.add(pointOf(last, now, at, t))
					at = t
				} else {
					at = t
				}
				last = now
			}
		}
		select {
		case <-h.end:
			return
		case <-tick.C:
		}
	}
}

func pointOf(last, now *statjson.Stats, from, to time.Time) Point {
	p := Point{
		Time: float64(to.UnixMilli()) / 1e3, Seconds: to.Sub(from).Seconds(), Lookups: now.Lookups - last.Lookups, Hits: now.Hits - last.Hits,
		RowsCached: now.CachedRows, MissesByReason: map[string]int64{},
		AdmittedRows: now.Refresh.AdmittedRows - last.Refresh.AdmittedRows, EvictedRows: now.Refresh.EvictedRows - last.Refresh.EvictedRows,
	}
	for reason, n := range now.MissesByReason {
		p.MissesByReason[reason] = n - last.MissesByReason[reason]
	}
	return p
}

func (h *history) add(p Point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.all = append(h.mu.all, p); len(h.mu.all) > historyKeep {
		h.mu.all = slices.Delete(h.mu.all, 0, len(h.mu.all)-historyKeep)
	}
}

// points returns the points, the oldest first.
func (h *history) points() []Point {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Point{}, h.mu.all...)
}
