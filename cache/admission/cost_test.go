package admission

import (
	"math"
	"testing"
)

func TestCost(t *testing.T) {
	c := Cost{MissRow: 10e-9, MissByte: 0.1e-9, Hit: 2e-9}
	for _, x := range []struct {
		stored      int
		miss, saved float64 // nanoseconds
	}{{1, 10, 8}, {100, 10, 8}, {101, 10.1, 8.1}, {1000, 100, 98}} {
		if miss, saved := 1e9*c.Miss(x.stored), 1e9*c.Saved(x.stored); math.Abs(miss-x.miss) > 1e-9 || math.Abs(saved-x.saved) > 1e-9 {
			t.Errorf("%d bytes: a miss takes %g ns, a hit saves %g ns; want %g and %g", x.stored, miss, saved, x.miss, x.saved)
		}
	}
	if c.LeastBytes() != 100 || (Cost{MissRow: 1}).LeastBytes() != 0 {
		t.Errorf("least bytes %d, %d", c.LeastBytes(), (Cost{MissRow: 1}).LeastBytes())
	}
	// Hits that take as long as misses: rows keep an order.
	if c.Hit = 1e-6; c.Saved(1000) <= c.Saved(101) || c.Saved(101) <= c.Saved(1) || c.Saved(1) <= 0 {
		t.Errorf("slow hits: %g, %g, %g", c.Saved(1), c.Saved(101), c.Saved(1000))
	}
	if slow, fast := GPUCost(512, 12e9), GPUCost(512, 55e9); slow.Miss(4096) < 4*fast.Miss(4096) || GPUCost(512, 0) != fast {
		t.Errorf("links of 12 and 55 GB/s: %+v, %+v", slow, fast)
	}
	p := Problem{Costs: []Cost{c, {}}}
	if p.Cost(0) != c || p.Cost(1) != GPUCost(512, 0) || p.Cost(2) != GPUCost(512, 0) {
		t.Errorf("costs %+v, %+v, %+v", p.Cost(0), p.Cost(1), p.Cost(2))
	}
}

// TestPolicies_CostOfTables: rows of a table whose misses take longer rank first, by every policy that knows frequencies.
func TestPolicies_CostOfTables(t *testing.T) {
	of := problem([]int64{10, 10}, nil)
	of.Costs = []Cost{{MissRow: 10e-9, MissByte: 1e-12}, {MissRow: 30e-9, MissByte: 1e-12}}
	for _, p := range []Policy{NewStaticFrequency(), NewFrequency(), NewTinyLFU(), NewStaticDegree([]uint32{5}, []uint32{3})} {
		start(t, p, of)
		for range 5 {
			p.Observe(0, []int64{0})
		}
		for range 3 {
			p.Observe(1, []int64{0})
		}
		wantRank(t, p, key(1, 0), key(0, 0))
	}
}
