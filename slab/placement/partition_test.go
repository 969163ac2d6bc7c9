package placement_test

import (
	"math"
	"testing"

	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab/placement"
)

// TestPartition_Golden: rows of snapshots and of tests lie where they always did, with equal weights.
func TestPartition_Golden(t *testing.T) {
	if got := placement.NewPartition([]int64{1, 1, 1, 1, 1, 1, 1, 1}).Owner(1); got != 1 {
		t.Errorf("Owner(1) of 8 is %d", got)
	}
	for n := 1; n <= 8; n++ {
		weights := make([]int64, n)
		for i := range weights {
			weights[i] = 1 << 40
		}
		p := placement.NewPartition(weights)
		for row := range int64(5000) {
			key := hashmap.Key(3, row)
			if got, want := p.Owner(key), int(hashmap.Hash(key)&math.MaxUint32*uint64(n)>>32); got != want {
				t.Fatalf("row %d lies in slab %d of %d, want %d", row, got, n, want)
			}
		}
	}
}

// TestPartition_FollowsWeights: slabs get rows in proportion to their weights, and none for weight 0.
func TestPartition_FollowsWeights(t *testing.T) {
	const rows = 100_000
	for _, weights := range [][]int64{{1}, {3, 1}, {1, 0, 2}, {0, 0, 5}, {1 << 59, 1 << 58, 1 << 58}, {7, 1, 1, 1, 0, 3, 2, 1}} {
		p, count, sum := placement.NewPartition(weights), make([]int, len(weights)), 0.0
		for row := range int64(rows) {
			count[p.Owner(hashmap.Key(0, row))]++
		}
		for _, w := range weights {
			sum += float64(w)
		}
		for i, w := range weights {
			want := float64(w) / sum * rows
			if math.Abs(float64(count[i])-want) > 5*math.Sqrt(want) || w == 0 && count[i] != 0 {
				t.Errorf("weights %v: slab %d has %d rows, want about %.0f", weights, i, count[i], want)
			}
		}
	}
}

// TestPartition_Without: the rows of a slab that is taken out go to the others, by weight; all others stay.
func TestPartition_Without(t *testing.T) {
	p := placement.NewPartition([]int64{2, 1, 1, 2})
	q := p.Without(0)
	r := q.Without(3)
	moved := make([]int, 4)
	for row := range int64(50_000) {
		key := hashmap.Key(1, row)
		a, b, c := p.Owner(key), q.Owner(key), r.Owner(key)
		if a != 0 && a != b {
			t.Fatalf("row %d moved from slab %d to %d", row, a, b)
		}
		if b == 0 || c == 0 || c == 3 || b != 3 && a != 0 && b != c {
			t.Fatalf("row %d lies in slabs %d, %d, %d", row, a, b, c)
		}
		if a == 0 {
			moved[b]++
		}
	}
	if moved[1]*10 < moved[3]*4 || moved[3]*10 < moved[1]*18 {
		t.Errorf("rows of the slab went to %v", moved)
	}
	if r.Without(1).Without(2) != nil {
		t.Error("a partition without slabs")
	}
}
