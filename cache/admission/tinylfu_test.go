package admission

import (
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/hashmap"
)

// trained returns a policy that has seen batches in which the first 50 of each table's 4000 rows are asked for far more
// often than the others, and how often each row was.
func trained(t testing.TB, capacity int64) (*tinyLFU, map[uint64]int) {
	t.Helper()
	stored := map[uint64]int{}
	r := rand.New(rand.NewPCG(1, 1))
	for row := range int64(4000) {
		stored[key(0, row)], stored[key(1, row)] = 1+r.IntN(200), 1+r.IntN(200)
	}
	p := problem([]int64{4000, 4000}, stored)
	p.Capacity = capacity
	lfu := start(t, NewTinyLFU(), p).(*tinyLFU)
	seen := map[uint64]int{}
	for range 60 {
		for table := range 2 {
			rows := make([]int64, 0, 400)
			for range 200 {
				rows = append(rows, r.Int64N(50), r.Int64N(4000))
			}
			for _, row := range rows {
				seen[key(table, row)]++
			}
			lfu.Observe(table, rows)
		}
	}
	return lfu, seen
}

func TestTinyLFU_ResidentsFirstWithinCapacity(t *testing.T) {
	const capacity = 40_000
	p, seen := trained(t, capacity)
	keys := rank(t, p)
	residents := 0
	cost := int64(0)
	for i, k := range keys {
		if seen[k] == 0 {
			t.Fatalf("key %#x was never seen", k)
		}
		row, resident := p.lfu.Entry(k)
		if !resident {
			if !p.refused.Contains(k) || !p.Explain(k).Rejected {
				t.Fatalf("key %#x is offered, neither resident nor refused", k)
			}
			continue
		}
		if residents++; i != residents-1 {
			t.Fatalf("a resident comes at place %d, after %d residents", i, residents-1)
		}
		if row.Hits > int64(seen[k]) || p.Explain(k).Rejected {
			t.Errorf("key %#x has %d hits, was seen %d times: %+v", k, row.Hits, seen[k], p.Explain(k))
		}
		if before, _ := p.lfu.Entry(keys[max(0, i-1)]); before.Hits*row.Size < row.Hits*before.Size {
			t.Errorf("%d hits in %d bytes come before %d in %d", before.Hits, before.Size, row.Hits, row.Size)
		}
		cost += row.Size
	}
	if cost > capacity || cost < capacity/2 {
		t.Errorf("%d residents take %d slot bytes, capacity %d", residents, cost, capacity)
	}
	if limit := int(p.problem.rowsIn(capacity)); residents == len(keys) || len(keys)-residents > limit {
		t.Errorf("%d refused rows are offered, want 1 to %d", len(keys)-residents, limit)
	}
}

// TestTinyLFU_Resize: a smaller cache holds less, a larger one more.
func TestTinyLFU_Resize(t *testing.T) {
	p, _ := trained(t, 40_000)
	for _, capacity := range []int64{5_000, 60_000} {
		p.Resize(capacity)
		r := rand.New(rand.NewPCG(5, 6))
		for range 20_000 {
			p.Observe(0, []int64{r.Int64N(4000)})
		}
		cost := int64(0)
		for k := range p.Rank() {
			if row, ok := p.lfu.Entry(k); ok {
				cost += row.Size
			}
		}
		if cost > capacity || cost < capacity/2 {
			t.Errorf("residents take %d slot bytes, capacity %d", cost, capacity)
		}
	}
}

func TestTinyLFU_FrequentRowsAreResident(t *testing.T) {
	p, _ := trained(t, 40_000) // the 100 frequent rows take about 11,000
	frequent := 0
	for _, k := range rank(t, p)[:100] {
		if _, row := hashmap.SplitKey(k); row < 50 {
			frequent++
		}
	}
	if frequent < 80 {
		t.Errorf("%d of the first 100 rows are frequent ones, want nearly all", frequent)
	}
}

// TestTinyLFU_AllFit: with room for all, everything seen is offered, the most hits first.
func TestTinyLFU_AllFit(t *testing.T) {
	p := start(t, NewTinyLFU(), problem([]int64{4}, nil)).(*tinyLFU)
	for _, row := range []int64{2, 0, 2, 3, 2, 0} {
		p.Observe(0, []int64{row})
	}
	wantRank(t, p, key(0, 2), key(0, 0), key(0, 3))
}

func TestTinyLFU_NoCapacity(t *testing.T) {
	for _, capacity := range []int64{0, 1, 15} {
		problem := problem([]int64{4}, nil)
		problem.Capacity = capacity
		p := start(t, NewTinyLFU(), problem)
		p.Observe(0, []int64{2, 0, 2, 3})
		wantRank(t, p, key(0, 3)) // nothing is resident; of what was refused, as much is offered as one place allows
	}
}
