//go:build cuda && linux

package gpu

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/hashmap"
)

const (
	// sampledShare is the share of accesses that sampling is measured with, the default of caches that refresh.
	sampledShare = 1. / 16
	// onlineTurns is how often with and without take turns.
	onlineTurns = 5
	// churn is the share of the cache that is replaced a second while refreshing is measured, by cycles refreshEvery apart.
	churn        = 0.01
	refreshEvery = 250 * time.Millisecond
	// refreshGathers is how many Gathers, for each of Options.Runs, a turn has at least: enough for a p99.
	refreshGathers = 100
)

// sampling measures what it costs that some accesses are sampled.
func (r *runner) sampling() error {
	table, err := r.normalRows()
	if err != nil {
		return err
	}
	var both [2]*served
	for i, accesses := range []float64{0, sampledShare} {
		o := cache.Options{Budget: r.o.TableBytes / 2, Refresh: cache.RefreshOptions{Accesses: accesses}}
		if both[i], err = r.serve(table.host.Bytes(), smallRow, o); err != nil {
			return err
		}
		defer both[i].cache.Close()
	}
	without, with := both[0], both[1]
	without.cached = min(without.cached, with.cached)
	with.cached = without.cached
	out, err := r.alloc(int64(r.o.Batch) * smallRow)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		label string
		hits  int
	}{{"hits", r.o.Batch}, {"80 % hits", r.o.Batch * 8 / 10}} {
		mixed, _, _ := without.batches(c.hits, r.o.Batch-c.hits)
		t, err := r.upload(mixed)
		if err != nil {
			return err
		}
		var seconds [2][]float64
		for range onlineTurns {
			for i, s := range both {
				took, err := s.gather(t, out)
				if err != nil {
					return err
				}
				seconds[i] = append(seconds[i], took)
			}
		}
		stats, err := with.cache.Stats()
		if err != nil {
			return err
		}
		x := with.result("sampling", r.o.Batch)
		x.Codec, x.Unit, x.Value, x.Baseline, x.BaselineValue = c.label, "us", median(seconds[1])*1e6, "without sampling", median(seconds[0])*1e6
		x.Detail = fmt.Sprintf("1/%.0f of the accesses; %d turns each; so far %d samples read, %d overwritten", 1/sampledShare, onlineTurns,
			stats.Changes.SampledAccesses, stats.Changes.LostAccesses)
		r.add(x)
	}
	return nil
}

// rotating is a policy that wants rows of consecutive numbers, and every time others: step more, and as many less.
type rotating struct {
	problem admission.Problem
	from    int64
	step    atomic.Int64
}

func (p *rotating) Name() string                     { return "rotating" }
func (p *rotating) Start(of admission.Problem) error { p.problem = of; return nil }
func (p *rotating) Observe(int, []int64)             {}
func (p *rotating) Resize(capacity int64)            { p.problem.Capacity = capacity }
func (p *rotating) Close()                           {}
func (p *rotating) Rank() iter.Seq[uint64] {
	p.from += p.step.Load()
	return func(yield func(uint64) bool) {
		for used, i := int64(0), int64(0); used < p.problem.Capacity && i < p.problem.Rows[0]; i++ {
			key := hashmap.Key(0, (p.from+i)%p.problem.Rows[0])
			used += int64(p.problem.SlotBytes(key))
			if !yield(key) {
				return
			}
		}
	}
}

// refresh measures how long Gathers take, as their caller sees it, while the cache replaces rows, and while it does not.
func (r *runner) refresh() error {
	table, err := r.normalRows()
	if err != nil {
		return err
	}
	policy := &rotating{}
	s, err := r.serve(table.host.Bytes(), smallRow, cache.Options{
		Budget: r.o.TableBytes / 2, Admission: policy, Refresh: cache.RefreshOptions{MaxChurn: churn * refreshEvery.Seconds()},
	})
	if err != nil {
		return err
	}
	defer s.cache.Close()
	policy.step.Store(max(1, int64(float64(s.cached)*churn*refreshEvery.Seconds())))
	hits := r.o.Batch * 8 / 10
	mixed, _, _ := s.batches(hits, r.o.Batch-hits)
	t, err := r.upload(mixed)
	if err != nil {
		return err
	}
	out, err := r.alloc(int64(r.o.Batch) * smallRow)
	if err != nil {
		return err
	}
	var times [2][]float64
	var replaced int64
	var refreshed float64 // seconds
	for range onlineTurns {
		for with := range times {
			stop := func() error { return nil }
			before, err := s.cache.Stats()
			if err != nil {
				return err
			}
			start := time.Now()
			if with == 1 {
				stop = s.refreshing()
			}
			took, err := s.byTheClock(t, out, time.Duration(with)*2*refreshEvery)
			if err = errors.Join(err, stop()); err != nil {
				return err
			}
			times[with] = append(times[with], took...)
			if with == 1 {
				after, err := s.cache.Stats()
				if err != nil {
					return err
				}
				replaced += after.Changes.AdmittedRows - before.Changes.AdmittedRows
				refreshed += time.Since(start).Seconds()
			}
		}
	}
	if replaced == 0 {
		return errors.New("refreshing has replaced no row")
	}
	if err := s.check("Gather", out, s.source, t.numbers[0], s.rowBytes); err != nil {
		return err
	}
	x := s.result("refresh", r.o.Batch)
	x.Codec, x.Unit, x.Baseline = "80 % hits at first", "us", "p99 without refreshing"
	x.Value, x.BaselineValue = p99(times[1])*1e6, p99(times[0])*1e6
	x.Further = []Further{{"median", median(times[1]) * 1e6}, {"median without refreshing", median(times[0]) * 1e6}}
	x.Detail = fmt.Sprintf("p99 of GatherDevice and Wait by the host's clock, %d and %d without; %.2f %% of the cache replaced a second; medians %.0f and %.0f",
		len(times[1]), len(times[0]), 100*float64(replaced)/float64(s.cached)/refreshed, x.Further[0].Value, x.Further[1].Value)
	r.add(x)
	return nil
}

// byTheClock returns how long each of many Gathers took, the last one of the first set.
func (s *served) byTheClock(t turns, out device.Buffer, atLeast time.Duration) (times []float64, err error) {
	view, handle := s.cache.On(0), s.stream.(*cuda.Stream).Handle()
	for start, i := time.Now(), 0; i < refreshGathers*s.o.Runs || time.Since(start) < atLeast || i%sets != 1; i++ {
		begin := time.Now()
		b, err := view.GatherDevice(context.Background(), handle, 0, t.rows[i%sets], out)
		if err == nil {
			err = b.Wait()
		}
		if err != nil {
			return nil, err
		}
		if i >= warmups {
			times = append(times, time.Since(begin).Seconds())
		}
	}
	return times, nil
}

// refreshing refreshes the cache until the returned function is called.
func (s *served) refreshing() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() {
		ticker := time.NewTicker(refreshEvery)
		defer ticker.Stop()
		for ctx.Err() == nil && failed == nil {
			failed = s.cache.Refresh(context.Background())
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
	return func() error {
		cancel()
		wg.Wait()
		return failed
	}
}

func p99(times []float64) float64 {
	slices.Sort(times)
	return times[len(times)*99/100]
}
