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
	"github.com/tensorcache/tensorcache/hashmap"
)

const (
	// sampledShare is the share of accesses that are sampled. Caches that refresh sample by default twice as many, and all misses.
	sampledShare = 1. / 16
	// onlineTurns is how often sampling and not sampling take turns.
	onlineTurns = 5
	// churn is the share of the cached rows that is replaced a second while refreshing is measured.
	churn = 0.01
	// A turn of refreshing lasts for refreshCycles cycles or more, until enough is replaced, or for about refreshAtMost. Cycles begin at
	// least refreshEvery apart. One takes longer where millions of rows are ranked.
	refreshCycles = 2
	refreshEvery  = 250 * time.Millisecond
	refreshAtMost = 10 * time.Second
	// refreshTurns is the number of turns with refreshing, and of turns without.
	refreshTurns = 2
	// refreshGathers is how many Gathers, for each of Options.Runs, a turn has at least: enough for a p99.
	refreshGathers = 100
)

// sampling measures what it costs to sample some accesses.
func (r *runner) sampling() {
	source := r.normalRows().host.Bytes()
	var all [3]*served // without sampling, with 1/16 of the accesses, and with the shares that refreshing has by default
	cached := int64(math.MaxInt64)
	for i, o := range []cache.RefreshOptions{{}, {Accesses: sampledShare}, {Accesses: 2 * sampledShare, Misses: 1}} {
		all[i] = r.serve(source, smallRow, cache.Options{Budget: r.o.TableBytes / 2, Refresh: o})
		defer all[i].cache.Close()
		cached = min(cached, all[i].cached)
	}
	for _, s := range all {
		s.cached = cached
	}
	out := r.alloc(int64(r.o.Batch) * smallRow)
	for _, c := range []struct {
		label string
		hits  int
	}{{"hits", r.o.Batch}, {"80 % hits", r.o.Batch * 8 / 10}} {
		t := all[0].mixed(c.hits, r.o.Batch-c.hits)
		var seconds [len(all)][]float64
		for range onlineTurns {
			for i, s := range all {
				seconds[i] = append(seconds[i], s.timeGathers(r.o.Runs, nil, t, out))
			}
		}
		for i, what := range []string{fmt.Sprintf("1/%.0f of the accesses", 1/sampledShare), fmt.Sprintf("1/%.0f of the hits, all misses", 1/(2*sampledShare))} {
			if i == 1 && c.hits == r.o.Batch {
				continue // no misses
			}
			with := all[1+i]
			changes := get(with.cache.Stats()).Changes
			x := with.result("sampling", r.o.Batch)
			x.Codec, x.Unit, x.Value, x.Baseline, x.BaselineValue = c.label, "us", median(seconds[1+i])*1e6, "without sampling", median(seconds[0])*1e6
			if i == 1 {
				x.Codec = allMisses
			}
			x.Detail = fmt.Sprintf("%s; %d turns each; so far %d samples read, %d overwritten", what, onlineTurns, changes.SampledAccesses, changes.LostAccesses)
			r.add(x)
		}
	}
}

// rotating is a policy that wants rows of consecutive numbers. While it is on, the first number grows with time.
type rotating struct {
	problem admission.Problem
	cached  int64 // rows; the share churn of them is replaced a second

	mu struct {
		sync.Mutex
		on    bool
		began time.Time     // when it was turned on
		cycle time.Duration // that the last cycle took
		base  int64         // the first row wanted when it was turned on
		from  int64         // the first row wanted now
	}
}

func (p *rotating) Name() string                     { return "rotating" }
func (p *rotating) Start(of admission.Problem) error { p.problem = of; return nil }
func (p *rotating) Observe(int, []int64)             {}
func (p *rotating) Resize(capacity int64)            { p.problem.Capacity = capacity }
func (p *rotating) Close()                           {}

// turn turns the policy on or off and returns the first row that it wants.
func (p *rotating) turn(on bool) (from int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.on, p.mu.began, p.mu.base = on, time.Now(), p.mu.from
	return p.mu.from
}

// took says how long a cycle took.
func (p *rotating) took(cycle time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.cycle = cycle
}

// advance returns the first row that is wanted at the end of the cycle that asks, if this cycle takes as long as the one before.
func (p *rotating) advance() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.on {
		gone := time.Since(p.mu.began) + p.mu.cycle
		p.mu.from = max(p.mu.from, p.mu.base+int64(math.Ceil(gone.Seconds()*churn*float64(p.cached))))
	}
	return p.mu.from
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

// refresh measures the times of Gathers, as their caller sees them, while the cache replaces rows and while it does not.
func (r *runner) refresh() {
	policy := &rotating{}
	s := r.serve(r.normalRows().host.Bytes(), smallRow, cache.Options{
		Budget: r.o.TableBytes / 2, Admission: cache.AdmissionOptions{Policy: policy}, Refresh: cache.RefreshOptions{MaxChurn: churn * refreshAtMost.Seconds()},
	})
	defer s.cache.Close()
	policy.cached = s.cached
	start := time.Now()
	must(s.cache.Refresh(context.Background()))
	policy.took(time.Since(start))
	out := r.alloc(int64(r.o.Batch) * smallRow)
	var times [2][]float64 // without and with
	var all churned
	for range refreshTurns {
		t := s.lasting(policy.turn(false))
		ended := make(chan struct{})
		close(ended)
		times[0] = append(times[0], s.byTheClock(t, out, ended)...)
		policy.turn(true)
		ended = make(chan struct{})
		var c churned
		var failed error
		go func() {
			defer close(ended)
			failed = try(func() { c = s.refreshing(policy) })
		}()
		err := try(func() { times[1] = append(times[1], s.byTheClock(t, out, ended)...) })
		<-ended
		must(errors.Join(err, failed))
		check(s.d, "Gather", out, s.source, t.numbers[0], s.rowBytes)
		all.rows, all.cycles, all.seconds = all.rows+c.rows, all.cycles+c.cycles, all.seconds+c.seconds
	}
	x := s.result("refresh", r.o.Batch)
	x.Codec, x.Unit, x.Baseline = "80 % hits", "us", "p99 without refreshing"
	x.Value, x.BaselineValue = quantile(times[1], 0.99)*1e6, quantile(times[0], 0.99)*1e6
	x.Further = []Further{{Name: "median", Value: median(times[1]) * 1e6}, {Name: "median without refreshing", Value: median(times[0]) * 1e6}}
	x.Detail = fmt.Sprintf("Enqueue and Wait by the host's clock, of %d Gathers and %d without; %.2f %% of the cache replaced a second, by %d cycles; medians %.0f and %.0f",
		len(times[1]), len(times[0]), 100*all.rate(s.cached), all.cycles, x.Further[0].Value, x.Further[1].Value)
	r.add(x)
	x.Unit, x.Value, x.Baseline, x.BaselineValue = churnUnit, 100*all.rate(s.cached), "", 0
	x.Further, x.Detail = nil, "of the cached rows replaced meanwhile"
	r.add(x)
}

// lasting returns batches of 80 % hits when the cache holds the rows from from on. The share stays while refreshing replaces rows.
func (s *served) lasting(from int64) turns {
	margin := int64(math.Ceil(float64(s.cached) * 2 * churn * refreshAtMost.Seconds()))
	hits := s.o.Batch * 8 / 10
	return s.batches(func(set uint64) []int64 {
		seed := set + uint64(from)
		n := slices.Concat(randomRows(hits, from+margin, from+s.cached-margin, seed), randomRows(s.o.Batch-hits, from+s.cached+margin, from+s.rows-margin, seed))
		for k := range n {
			n[k] %= s.rows
		}
		rand.New(rand.NewPCG(seed, 3)).Shuffle(len(n), func(a, b int) { n[a], n[b] = n[b], n[a] })
		return n
	})
}

// byTheClock returns the times of many Gathers, until ended is closed. The last Gather is of the first set.
func (s *served) byTheClock(t turns, out device.Buffer, ended <-chan struct{}) (times []float64) {
	for i := 0; ; i++ {
		if i >= refreshGathers*s.o.Runs && i%sets == 1 {
			select {
			case <-ended:
				return times
			default:
			}
		}
		begin := time.Now()
		must(s.gather(t.rows[i%sets], out))
		if i >= warmups {
			times = append(times, time.Since(begin).Seconds())
		}
	}
}

// churned is what cycles have replaced.
type churned struct {
	rows, cycles int64
	seconds      float64
}

// rate is the share of so many cached rows that was replaced a second.
func (c *churned) rate(cached int64) float64 { return float64(c.rows) / float64(cached) / c.seconds }

// refreshing refreshes the cache by refreshCycles, or more until the share churn a second is replaced.
func (s *served) refreshing(policy *rotating) (c churned) {
	start := time.Now()
	for {
		before := get(s.cache.Stats()).Changes.AdmittedRows
		begin := time.Now()
		must(s.cache.Refresh(context.Background()))
		after := get(s.cache.Stats()).Changes.AdmittedRows
		took := time.Since(begin)
		policy.took(took)
		c.rows, c.cycles, c.seconds = c.rows+after-before, c.cycles+1, time.Since(start).Seconds()
		if c.cycles >= refreshCycles && (c.rate(s.cached) >= leastChurn/100 || c.seconds > refreshAtMost.Seconds()) {
			return c
		}
		time.Sleep(refreshEvery - took)
	}
}
