package admission

import (
	"cmp"
	"math/rand/v2"
	"slices"
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
	if len(keys) != len(seen) {
		t.Fatalf("%d rows are offered, %d were seen", len(keys), len(seen))
	}
	residents := 0
	cost := int64(0)
	for i, k := range keys {
		if seen[k] == 0 {
			t.Fatalf("key %#x was never seen", k)
		}
		_, resident := p.lfu.Get(k)
		if !resident {
			continue
		}
		if residents++; i != residents-1 {
			t.Fatalf("a resident comes at place %d, after %d residents", i, residents-1)
		}
		cost += int64(p.problem.SlotBytes(k))
	}
	if cost > capacity || cost < capacity/2 {
		t.Errorf("%d residents take %d slot bytes, capacity %d", residents, cost, capacity)
	}
	for what, part := range map[string][]uint64{"residents": keys[:residents], "others": keys[residents:]} {
		if !slices.IsSortedFunc(part, func(a, b uint64) int {
			if seen[a] != seen[b] {
				return seen[b] - seen[a]
			}
			return cmp.Compare(hashmap.Hash(a), hashmap.Hash(b))
		}) {
			t.Errorf("%s are not ranked by how often they were seen", what)
		}
	}
}

func TestTinyLFU_FrequentRowsAreResident(t *testing.T) {
	if raceDetector {
		t.Skip("under the race detector sync.Pool drops the buffers in which ristretto collects accesses, so it counts hardly any")
	}
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

// TestTinyLFU_AllFit: with room for all, everything seen is offered, the most frequent first.
func TestTinyLFU_AllFit(t *testing.T) {
	p := start(t, NewTinyLFU(), problem([]int64{4}, nil))
	p.Observe(0, []int64{2, 0, 2, 3, 2, 0})
	wantRank(t, p, key(0, 2), key(0, 0), key(0, 3))
}

func TestTinyLFU_NoCapacity(t *testing.T) {
	for _, capacity := range []int64{0, 1, 15} {
		problem := problem([]int64{4}, nil)
		problem.Capacity = capacity
		p := start(t, NewTinyLFU(), problem)
		p.Observe(0, []int64{2, 0, 2})
		wantRank(t, p, key(0, 2), key(0, 0)) // nothing is resident, all is offered
	}
}
