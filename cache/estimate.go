package cache

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/tensorcache/tensorcache/cache/mrc"
)

// Estimate says what the hit rate would be at other budgets, were the cache filled by LRU: about what it can expect, since
// policies that follow frequency hit more than that more often than not. It is made by package mrc from every access, since New,
// to a share of the keys, and is as good as the keys are many.
type Estimate struct {
	// Accesses are the lookups that it stands for; Keys are how many keys it keeps, of a share Rate of all.
	Accesses int64
	Keys     int
	Rate     float64
	// Budgets are the hit rates at half, once, twice and four times the budget.
	Budgets []BudgetEstimate
}

// BudgetEstimate is the hit rate, 0 to 1, at so many times the budget.
type BudgetEstimate struct{ Times, HitRate float64 }

// estimatedTimes are what budgets are multiplied by.
var estimatedTimes = [...]float64{0.5, 1, 2, 4}

const (
	// estimatedKeys bounds the keys that are kept, and with that the memory: about 1 MiB. On the traces that miss-ratio curves are
	// tested with, curves are then off by at most 0.005 on average (docs/simulation.md).
	estimatedKeys = 8192
	// estimatedSteps is how many sizes the curve has between one and its double: the nearest smaller one is 4.4 % off at most.
	estimatedSteps = 16
)

// estimator is what Stats.Estimate is made from.
type estimator struct {
	sync.Mutex
	shards  *mrc.Shards // nil where no keys are sampled
	lookups int64       // of all tables, at the last drain
	// requests are those of them whose samples were read, not overwritten.
	requests float64
}

func (e *estimator) open(o *Options) (err error) {
	if o.Refresh.Keys == 0 {
		return nil
	}
	var sizes []int64
	for i := 10 * estimatedSteps; i <= 62*estimatedSteps; i++ {
		sizes = append(sizes, int64(math.Exp2(float64(i)/estimatedSteps)))
	}
	e.shards, err = mrc.NewShards(mrc.ShardsOptions{Sizes: sizes, MaxIDs: estimatedKeys, GivenRate: o.Refresh.Keys, Seed: o.Seed})
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	return nil
}

// access hears of an access to a sampled key.
func (e *estimator) access(key uint64, slotBytes int) {
	e.Lock()
	defer e.Unlock()
	e.shards.Access(key, int64(slotBytes))
}

// drained says how many records were read and lost since the last call, lookups having been made in all by then.
func (e *estimator) drained(lookups, read, lost int64) {
	e.Lock()
	defer e.Unlock()
	share := 1.0 // a batch may well have no samples
	if lost > 0 {
		share = float64(read) / float64(read+lost)
	}
	e.requests += share * float64(lookups-e.lookups)
	e.lookups = lookups
}

// estimate returns what is known, nil if nothing. slots is the slot bytes of all devices' budgets, which hold fixed bytes whatever
// their size.
func (e *estimator) estimate(budget, fixed, slots int64) *Estimate {
	e.Lock()
	defer e.Unlock()
	if e.shards == nil || e.requests == 0 {
		return nil
	}
	out := &Estimate{Accesses: int64(e.requests), Keys: e.shards.IDs(), Rate: e.shards.Rate()}
	curve := e.shards.CurveOf(int64(e.requests), 0)
	share := float64(slots) / float64(max(1, budget-fixed)) // the rest is the hashmap, which grows with the slots
	for _, times := range estimatedTimes {
		size := int64(share * (times*float64(budget) - float64(fixed)))
		at, found := slices.BinarySearchFunc(curve, size, func(p mrc.Point, size int64) int {
			switch {
			case p.Size < size:
				return -1
			case p.Size > size:
				return 1
			}
			return 0
		})
		if !found {
			at-- // the next smaller one, not to promise too much
		}
		b := BudgetEstimate{Times: times}
		if at >= 0 {
			b.HitRate = 1 - curve[at].MissRatio
		}
		out.Budgets = append(out.Budgets, b)
	}
	return out
}

// lookups is how many rows were looked up in all tables.
func (c *Cache) lookups() (n int64) {
	for _, t := range c.tables {
		ts := TableStats{}
		t.counts.read(&ts)
		n += ts.Lookups
	}
	return n
}
