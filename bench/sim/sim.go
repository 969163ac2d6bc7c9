// Package sim computes what a cache would miss, without a cache. [Run] runs an admission policy over a stream of batches, with a
// model of a cache that is refreshed as it runs: no row contents and no devices, only the set of admitted rows and their slot
// bytes. The figures of docs/admission.md come from it. [Simulate] runs policies over a trace, at many cache sizes side by side: those
// of package demand, whose caches are filled on every miss, and admission policies by Run. [MissRatios] computes LRU's whole
// miss-ratio curve from a trace. Nothing here is safe for concurrent use.
package sim

import (
	"cmp"

	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/faults"
)

// Stream is a sequence of batches over one table, and what its rows weigh.
type Stream struct {
	Name string
	// Batches are all accesses; the first Warmup are not measured.
	Batches workload.Workload
	Warmup  int
	// Phase is the number of batches between two changes of the hot rows, counted from the first measured batch; 0: they do not change.
	Phase int
	// Slot and Stored are the slot bytes and stored bytes of each row.
	Slot, Stored []uint32
	// Cost is the time that lookups take. The zero value stands for that of admission.Problem.
	Cost admission.Cost
	// Capacity is the slot bytes of the cache.
	Capacity int64
	// MapBytes is that of admission.Problem: what policies count for the hashmap.
	MapBytes int
	// Graph is what was sampled; without one, policies that learn from it cannot run.
	Graph *workload.Graph
}

// Options say how the cache is refreshed.
type Options struct {
	// Every is the batches between refreshes. Default 4.
	Every int
	// Static fills the cache once, and does not refresh it: after FillAfter batches, by default after the warm-up.
	Static    bool
	FillAfter int
	// Churn is the slot bytes that a refresh may write, as a share of the capacity, above 0. Default 1.
	Churn float64
	// Evict is the slot bytes that a refresh may take from cached rows, as a share of the capacity, above 0. Default 1.
	Evict float64
	// Sampling is the share of accesses that the policy observes, in (0, 1]. Default 1.
	Sampling float64
	// Seed picks the samples.
	Seed uint64
}

// EnsureDefaults replaces zero fields by their defaults.
func (o *Options) EnsureDefaults() {
	o.Every = cmp.Or(o.Every, 4)
	o.Churn = cmp.Or(o.Churn, 1)
	o.Evict = cmp.Or(o.Evict, 1)
	o.Sampling = cmp.Or(o.Sampling, 1)
}

// Validate reports every field out of range.
func (o *Options) Validate() error {
	f := faults.List{}
	f.If(o.FillAfter < 0, "sim: FillAfter (%d) must not be negative", o.FillAfter)
	f.If(o.Every < 1, "sim: Every (%d) must be at least 1", o.Every)
	f.If(!(o.Churn > 0), "sim: Churn (%g) must be above 0", o.Churn)
	f.If(!(o.Evict > 0), "sim: Evict (%g) must be above 0", o.Evict)
	f.If(!(o.Sampling > 0 && o.Sampling <= 1), "sim: Sampling (%g) must be above 0 and at most 1", o.Sampling)
	return f.Err()
}

// Outcome is what a policy achieved over the measured batches.
type Outcome struct {
	Lookups, Hits int64
	// LookupBytes and HitBytes are the slot bytes of their rows.
	LookupBytes, HitBytes int64
	// Seconds is the time of all lookups by Stream.Cost, hits and misses one after the other.
	Seconds float64
	// Churned is the slot bytes written by refreshes, Refreshes their number.
	Churned   int64
	Refreshes int
	// ByBatch is the hit ratio of each measured batch.
	ByBatch []float64
}

// HitRatio is hits ÷ lookups.
func (o *Outcome) HitRatio() float64 { return ratio(o.Hits, o.Lookups) }

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// Run starts with an empty cache and refreshes it as the policy ranks.
func Run(s *Stream, p admission.Policy, o Options) (*Outcome, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	defer p.Close()
	if err := p.Start(s.problem()); err != nil {
		return nil, err
	}
	c := &cache{stream: s, admitted: make([]bool, len(s.Slot)), ranked: make([]uint32, len(s.Slot))}
	out := &Outcome{}
	cursor := s.Batches.NewCursor()
	sampled := uint64(o.Sampling * (1 << 32))
	problem := s.problem()
	cost := problem.Cost(0)
	fill := s.Warmup
	if o.FillAfter > 0 {
		fill = o.FillAfter
	}
	var rows, seen []int64
	for i := range s.Batches.Batches() {
		rows = cursor.Batch(i, rows[:0])
		if i >= s.Warmup {
			hits := int64(0)
			for _, r := range rows {
				slot := int64(s.Slot[r])
				out.LookupBytes += slot
				if c.admitted[r] {
					hits++
					out.HitBytes += slot
					out.Seconds += cost.Hit
				} else {
					out.Seconds += cost.Miss(int(s.Stored[r]))
				}
			}
			out.Hits, out.Lookups = out.Hits+hits, out.Lookups+int64(len(rows))
			out.ByBatch = append(out.ByBatch, ratio(hits, int64(len(rows))))
		}
		seen = seen[:0]
		for j, r := range rows {
			if hashmap.Hash(hashmap.Hash(o.Seed^uint64(i))^uint64(j))>>32 < sampled { // as the lookup kernel does
				seen = append(seen, r)
			}
		}
		p.Observe(0, seen)
		if o.Static && i+1 == fill || !o.Static && (i+1)%o.Every == 0 {
			written := c.refresh(p, int64(o.Churn*float64(s.Capacity)), int64(o.Evict*float64(s.Capacity)))
			if i >= s.Warmup {
				out.Churned += written
				out.Refreshes++
			}
		}
	}
	return out, nil
}

func (s *Stream) problem() admission.Problem {
	row := func(key uint64) int64 { _, r := hashmap.SplitKey(key); return r }
	return admission.Problem{
		Rows: []int64{int64(len(s.Slot))}, Capacity: s.Capacity, MapBytes: s.MapBytes, Costs: []admission.Cost{s.Cost},
		SlotBytes:   func(key uint64) int { return int(s.Slot[row(key)]) },
		StoredBytes: func(key uint64) int { return int(s.Stored[row(key)]) },
	}
}

// cache is the model: which rows are admitted.
type cache struct {
	stream   *Stream
	admitted []bool
	count    int // of admitted rows
	used     int64
	cycle    uint32
	ranked   []uint32 // the last cycle in which a row was ranked
}

// refresh admits the prefix of the ranking that fits, as far as limit goes, best first, and evicts no more than that takes
// and than evict allows: rows that are not ranked before rows that are, the worst first. It returns the slot bytes written.
func (c *cache) refresh(p admission.Policy, limit, evict int64) (written int64) {
	c.cycle++
	room, fits := c.stream.Capacity, true
	var newcomers, losers []int64 // losers: the last goes first
	unseen := c.count             // admitted rows that the ranking has not come to
	for key := range p.Rank() {
		_, r := hashmap.SplitKey(key)
		slot := int64(c.stream.Slot[r])
		if !fits && !c.admitted[r] {
			continue
		}
		if fits = fits && slot <= room; fits {
			room -= slot
		}
		switch {
		case c.admitted[r]:
			c.ranked[r] = c.cycle
			unseen--
			if !fits {
				losers = append(losers, r)
			}
		case fits:
			newcomers = append(newcomers, r)
		}
		if !fits && unseen == 0 {
			break // the others do not matter
		}
	}
	if unseen > 0 {
		for r, in := range c.admitted {
			if in && c.ranked[r] != c.cycle {
				losers = append(losers, int64(r))
			}
		}
	}
	for _, r := range newcomers {
		slot := int64(c.stream.Slot[r])
		if written+slot > limit {
			break
		}
		for c.used+slot > c.stream.Capacity && len(losers) > 0 && evict > 0 {
			l := losers[len(losers)-1]
			losers = losers[:len(losers)-1]
			freed := int64(c.stream.Slot[l])
			c.admitted[l] = false
			c.count--
			c.used, evict = c.used-freed, evict-freed
		}
		if c.used+slot > c.stream.Capacity {
			break
		}
		written += slot
		c.admitted[r] = true
		c.count++
		c.used += slot
	}
	return written
}
