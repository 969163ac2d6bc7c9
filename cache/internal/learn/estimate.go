package learn

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/tensorcache/tensorcache/cache/mrc"
)

// Estimate is the hit rate at other budgets.
type Estimate struct {
	Accesses int64   // lookups that the estimate stands for
	Keys     int     // keys that are kept
	Rate     float64 // share of all keys that are kept
	HitRates [len(EstimatedTimes)]float64
}

// EstimatedTimes are the multiples of the budget for which hit rates are estimated.
var EstimatedTimes = [...]float64{0.5, 1, 2, 4}

const (
	// estimatedKeys bounds the keys that are kept, and with that the memory: about 1 MiB. On the traces that miss-ratio curves are
	// tested with, curves are then off by at most 0.005 on average (docs/simulation.md).
	estimatedKeys = 8192
	// estimatedSteps is how many sizes the curve has between one and its double: the nearest smaller one is 4.4 % off at most.
	estimatedSteps = 16
)

// estimator makes Estimates from the accesses to sampled keys.
type estimator struct {
	sync.Mutex
	shards  *mrc.Shards // nil where no keys are sampled
	lookups int64       // of all tables, at the last drain
	// requests are the lookups whose samples were read, not overwritten.
	requests float64
}

// open begins to estimate from a share of all keys.
func (e *estimator) open(keys float64, seed uint64) (err error) {
	var sizes []int64
	for i := 10 * estimatedSteps; i <= 62*estimatedSteps; i++ {
		sizes = append(sizes, int64(math.Exp2(float64(i)/estimatedSteps)))
	}
	e.shards, err = mrc.NewShards(mrc.ShardsOptions{Sizes: sizes, MaxIDs: estimatedKeys, GivenRate: keys, Seed: seed})
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

// at returns what the hit rate would be at other budgets, nil if none of the keys that it follows has been accessed. budget is the bytes of all devices'
// budgets together, slots their slot bytes, and fixed the bytes in them that do not depend on their size.
func (e *estimator) at(budget, fixed, slots int64) *Estimate {
	e.Lock()
	defer e.Unlock()
	if e.shards == nil || e.requests == 0 || e.shards.IDs() == 0 {
		return nil
	}
	out := &Estimate{Accesses: int64(e.requests), Keys: e.shards.IDs(), Rate: e.shards.Rate()}
	curve := e.shards.CurveOf(int64(e.requests), 0)
	share := float64(slots) / float64(max(1, budget-fixed)) // the rest is the hashmap, which grows with the slots
	for i, times := range EstimatedTimes {
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
		if at >= 0 {
			out.HitRates[i] = 1 - curve[at].MissRatio
		}
	}
	return out
}
