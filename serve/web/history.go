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
	// Requests are those of Options.Latency. Half of them, and 99 of 100, took at most Half and Most.
	Requests int64   `json:"requests"`
	Half     float64 `json:"p50_s,omitempty"`
	Most     float64 `json:"p99_s,omitempty"`
}

// history keeps points.
type history struct {
	latency func() []int64 // Options.Latency
	end     chan struct{}
	ended   sync.WaitGroup
	mu      struct {
		sync.Mutex
		all []Point
	}
}

func newHistory(of func() (*catalog.Catalog, error), latency func() []int64) *history {
	h := &history{end: make(chan struct{}), latency: latency}
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
	var took []int64
	var at time.Time
	for {
		if c, err := of(); err == nil {
			if now, err := c.Stats(); err == nil {
				t, calls := time.Now(), took
				if h.latency != nil {
					calls = h.latency()
				}
				if last != nil && now.Lookups >= last.Lookups { // else a table has gone with its counters
					p := pointOf(last, now, at, t)
					p.quantiles(took, calls)
					h.add(p)
				}
				last, took, at = now, calls, t
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

// quantiles sets the times of the requests between two states of Options.Latency.
func (p *Point) quantiles(before, now []int64) {
	calls := slices.Clone(now)
	for i := range min(len(before), len(calls)) {
		calls[i] -= before[i]
	}
	for _, n := range calls {
		p.Requests += n
	}
	if p.Requests <= 0 {
		p.Requests = 0
		return
	}
	sum := int64(0)
	for i, n := range calls {
		bound := float64(int64(1)<<i) / 1e6
		if sum += n; p.Half == 0 && 2*sum >= p.Requests {
			p.Half = bound
		}
		if p.Most == 0 && 100*sum >= 99*p.Requests {
			p.Most = bound
		}
	}
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
