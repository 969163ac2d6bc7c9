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
	// one takes longer than that where millions of rows are ranked. A turn lasts for refreshCycles of them at least, and until enough is replaced, or for about
	// refreshAtMost.
	churn         = 0.01
	refreshCycles = 2
	refreshEvery  = 250 * time.Millisecond
	refreshTurns  = 2 // of each: with and without
	refreshAtMost = 10 * time.Second
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

// rotating is a policy that wants rows of consecutive numbers, and, while it is on, with the time that passes the next ones instead of
// the first.
type rotating struct {
	problem admission.Problem
	cached  int64 // rows, of which churn are replaced a second

	mu struct {
		sync.Mutex
		on    bool
		began time.Time     // when it was turned on
		cycle time.Duration // that the last cycle took
		base  int64         // the first row that was wanted then
		from  int64         // the first one now
	}
}

func (p *rotating) Name() string                     { return "rotating" }
func (p *rotating) Start(of admission.Problem) error { p.problem = of; return nil }
func (p *rotating) Observe(int, []int64)             {}
func (p *rotating) Resize(capacity int64)            { p.problem.Capacity = capacity }
func (p *rotating) Close()                           {}

// turn turns it on or off and returns the first row that is wanted.
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

// advance returns the first row that is wanted: what is to be replaced by the end of the cycle that asks, if it takes as long as the one
// before.
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
	policy.cached = s.cached
	start := time.Now()
	if err := s.cache.Refresh(context.Background()); err != nil {
		return err
	}
	policy.took(time.Since(start))
	out, err := r.alloc(int64(r.o.Batch) * smallRow)
	if err != nil {
		return err
	}
	var times [2][]float64
	var all churned
	for range refreshTurns {
		t, err := s.lasting(policy.turn(false))
		if err != nil {
			return err
		}
		ended := make(chan struct{})
		close(ended)
		took, err := s.byTheClock(t, out, ended)
		if err != nil {
			return err
		}
		times[0] = append(times[0], took...)
		policy.turn(true)
		ended = make(chan struct{})
		var c churned
		var failed error
		go func() {
			defer close(ended)
			c, failed = s.refreshing(policy)
		}()
		took, err = s.byTheClock(t, out, ended)
		<-ended
		if err = errors.Join(err, failed); err != nil {
			return err
		}
		if err := s.check("Gather", out, s.source, t.numbers[0], s.rowBytes); err != nil {
			return err
		}
		times[1] = append(times[1], took...)
		all.rows, all.cycles, all.seconds = all.rows+c.rows, all.cycles+c.cycles, all.seconds+c.seconds
	}
	x := s.result("refresh", r.o.Batch)
	x.Codec, x.Unit, x.Baseline = "80 % hits", "us", "p99 without refreshing"
	x.Value, x.BaselineValue = p99(times[1])*1e6, p99(times[0])*1e6
	x.Further = []Further{{"median", median(times[1]) * 1e6}, {"median without refreshing", median(times[0]) * 1e6}}
	x.Detail = fmt.Sprintf("GatherDevice and Wait by the host's clock, of %d Gathers and %d without; %.2f %% of the cache replaced a second, by %d cycles; medians %.0f and %.0f",
		len(times[1]), len(times[0]), 100*all.rate(s.cached), all.cycles, x.Further[0].Value, x.Further[1].Value)
	r.add(x)
	x.Unit, x.Value, x.Baseline, x.BaselineValue = churnUnit, 100*all.rate(s.cached), "", 0
	x.Further, x.Detail = nil, "of the cached rows replaced meanwhile"
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

// byTheClock returns how long each of many Gathers took, the last one of the first set. They go on until ended is closed.
func (s *served) byTheClock(t turns, out device.Buffer, ended <-chan struct{}) (times []float64, err error) {
	view, handle := s.cache.On(0), s.stream.(*cuda.Stream).Handle()
	for i := 0; ; i++ {
		if i >= refreshGathers*s.o.Runs && i%sets == 1 {
			select {
			case <-ended:
				return times, nil
			default:
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

// churned is what cycles have replaced.
type churned struct {
	rows, cycles int64
	seconds      float64
}

// rate is the share of so many cached rows that was replaced a second.
func (c *churned) rate(cached int64) float64 { return float64(c.rows) / float64(cached) / c.seconds }

// refreshing refreshes the cache by two cycles, or more, until as much is replaced as is to be.
func (s *served) refreshing(policy *rotating) (c churned, err error) {
	start := time.Now()
	for {
		before, err := s.cache.Stats()
		if err != nil {
			return c, err
		}
		begin := time.Now()
		if err := s.cache.Refresh(context.Background()); err != nil {
			return c, err
		}
		after, err := s.cache.Stats()
		if err != nil {
			return c, err
		}
		took := time.Since(begin)
		policy.took(took)
		c.rows, c.cycles, c.seconds = c.rows+after.Changes.AdmittedRows-before.Changes.AdmittedRows, c.cycles+1, time.Since(start).Seconds()
		if c.cycles >= refreshCycles && (c.rate(s.cached) >= leastChurn/100 || c.seconds > refreshAtMost.Seconds()) {
			return c, nil
		}
		time.Sleep(refreshEvery - took)
	}
}

func p99(times []float64) float64 {
	slices.Sort(times)
	return times[len(times)*99/100]
}
