//go:build cuda && linux

package gpu

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
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
	// churn is the share of the cache that is replaced a second while refreshing is measured, by cycles at least refreshEvery apart:
	// one takes longer than that where millions of rows are ranked. A turn lasts for two of them, and at most refreshAtMost, by when
	// least of what is to be replaced must have been.
	churn         = 0.01
	refreshEvery  = 250 * time.Millisecond
	refreshTurns  = 3
	refreshAtMost = 10 * time.Second
	least         = 0.9
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

// rotating is a policy that wants rows of consecutive numbers: with the time that passes while it is on others, the next ones instead
// of the first.
type rotating struct {
	problem admission.Problem
	clock   struct {
		sync.Mutex
		cached  int64
		on      bool
		began   time.Time     // when it was turned on
		before  time.Duration // that it had been on before
		asked   time.Time     // the last time for a ranking, and how long after the time before
		between time.Duration
		from    int64
	}
}

func (p *rotating) Name() string                     { return "rotating" }
func (p *rotating) Start(of admission.Problem) error { p.problem = of; return nil }
func (p *rotating) Observe(int, []int64)             {}
func (p *rotating) Resize(capacity int64)            { p.problem.Capacity = capacity }
func (p *rotating) Close()                           {}

// turn turns the clock on or off, and returns the first row that is wanted.
func (p *rotating) turn(on bool) (from int64) {
	c := &p.clock
	c.Lock()
	defer c.Unlock()
	if c.on && !on {
		c.before += time.Since(c.began)
	}
	c.on, c.began, c.asked = on, time.Now(), time.Time{}
	return c.from
}

// advance returns the first row that is wanted now: what is to be replaced by the end of the cycle that asks, if it takes as long as
// the one before.
func (p *rotating) advance() int64 {
	c := &p.clock
	c.Lock()
	defer c.Unlock()
	if !c.on {
		return c.from
	}
	now := time.Now()
	if !c.asked.IsZero() {
		c.between = now.Sub(c.asked)
	}
	c.asked = now
	c.from = max(c.from, int64(math.Ceil((c.before+now.Sub(c.began)+c.between).Seconds()*churn*float64(c.cached))))
	return c.from
}

func (p *rotating) Rank() iter.Seq[uint64] {
	from := p.advance()
	return func(yield func(uint64) bool) {
		for used, i := int64(0), int64(0); used < p.problem.Capacity && i < p.problem.Rows[0]; i++ {
			key := hashmap.Key(0, (from+i)%p.problem.Rows[0])
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
		Budget: r.o.TableBytes / 2, Admission: policy, Refresh: cache.RefreshOptions{MaxChurn: churn * refreshAtMost.Seconds()},
	})
	if err != nil {
		return err
	}
	defer s.cache.Close()
	policy.clock.cached = s.cached
	out, err := r.alloc(int64(r.o.Batch) * smallRow)
	if err != nil {
		return err
	}
	var times [2][]float64
	var replaced, cycles int64
	var refreshed float64 // seconds
	for range refreshTurns {
		t, err := s.lasting(policy.turn(false))
		if err != nil {
			return err
		}
		took, err := s.byTheClock(t, out, func() (bool, error) { return true, nil })
		if err != nil {
			return err
		}
		times[0] = append(times[0], took...)
		before, err := s.cache.Stats()
		if err != nil {
			return err
		}
		policy.turn(true)
		start, stop := time.Now(), s.refreshing()
		var rows, n int64
		took, err = s.byTheClock(t, out, func() (bool, error) {
			now, err := s.cache.Stats()
			if err != nil {
				return false, err
			}
			rows, n = now.Changes.AdmittedRows-before.Changes.AdmittedRows, now.Changes.Cycles-before.Changes.Cycles
			passed := time.Since(start)
			a, want := float64(rows)/float64(s.cached)/passed.Seconds(), least*churn
			if n >= 2 && a >= want {
				return true, nil
			}
			if passed > refreshAtMost {
				return false, fmt.Errorf("cycles (%d in %.1f s) have replaced %.3f %% of the cache a second, which must be at least %.3f", n, passed.Seconds(), 100*a, 100*want)
			}
			return false, nil
		})
		passed := time.Since(start).Seconds()
		policy.turn(false)
		if err = errors.Join(err, stop()); err != nil {
			return err
		}
		if err := s.check("Gather", out, s.source, t.numbers[0], s.rowBytes); err != nil {
			return err
		}
		times[1] = append(times[1], took...)
		replaced, cycles, refreshed = replaced+rows, cycles+n, refreshed+passed
	}
	x := s.result("refresh", r.o.Batch)
	x.Codec, x.Unit, x.Baseline = "80 % hits", "us", "p99 without refreshing"
	x.Value, x.BaselineValue = p99(times[1])*1e6, p99(times[0])*1e6
	x.Further = []Further{{"median", median(times[1]) * 1e6}, {"median without refreshing", median(times[0]) * 1e6}}
	x.Detail = fmt.Sprintf("GatherDevice and Wait by the host's clock, of %d Gathers and %d without; %.2f %% of the cache replaced a second, by %d cycles; medians %.0f and %.0f",
		len(times[1]), len(times[0]), 100*float64(replaced)/float64(s.cached)/refreshed, cycles, x.Further[0].Value, x.Further[1].Value)
	r.add(x)
	return nil
}

// lasting returns batches with 80 % hits that stay so while a turn of refreshing replaces rows, which are those from from on.
func (s *served) lasting(from int64) (turns, error) {
	margin := int64(math.Ceil(float64(s.cached) * 2 * churn * refreshAtMost.Seconds()))
	hits := s.o.Batch * 8 / 10
	numbers := make([][]int64, sets)
	for i := range numbers {
		seed := uint64(i) + uint64(from)
		n := slices.Concat(randomRows(hits, from+margin, from+s.cached-margin, seed), randomRows(s.o.Batch-hits, from+s.cached+margin, from+s.rows-margin, seed))
		for k := range n {
			n[k] %= s.rows
		}
		rand.New(rand.NewPCG(seed, 3)).Shuffle(len(n), func(a, b int) { n[a], n[b] = n[b], n[a] })
		numbers[i] = n
	}
	return s.upload(numbers)
}

// byTheClock returns how long each of many Gathers took, the last one of the first set. It ends when done says so, which is asked
// now and then.
func (s *served) byTheClock(t turns, out device.Buffer, done func() (bool, error)) (times []float64, err error) {
	view, handle := s.cache.On(0), s.stream.(*cuda.Stream).Handle()
	for i := 0; ; i++ {
		if i >= refreshGathers*s.o.Runs && i%refreshGathers == 1 {
			if end, err := done(); end || err != nil {
				return times, err
			}
		}
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
