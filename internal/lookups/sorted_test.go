package lookups

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSorted: long and short lists, evenly spread or not, with numbers that are no rows, which training may have.
func TestSorted(t *testing.T) {
	for _, c := range []struct {
		n    int
		rows int64
		most int64
	}{{10, 1000, 1000}, {1 << 17, 1 << 30, 1 << 30}, {1 << 17, 3, 3}, {1<<16 + 1, 1 << 20, 300}, {1 << 16, 1000, 1 << 40}, {1 << 16, 1, 5}} {
		r := rand.New(rand.NewPCG(1, 2))
		list := make([]int64, c.n)
		for i := range list {
			list[i] = r.Int64N(c.most) - c.most/8
		}
		want := slices.Sorted(slices.Values(list))
		if !slices.Equal(sorted(list, c.rows), want) {
			t.Errorf("%+v: another order", c)
		}
	}
}

// TestAheadLookups is bounded, and more for larger tables.
func TestAheadLookups(t *testing.T) {
	for bytes, want := range map[float64]int{0: 2 << 20, 1 << 32: 2 << 20, 1 << 33: 4 << 20, 1 << 40: 8 << 20} {
		if got := AheadLookups(bytes); got != want {
			t.Errorf("%.0f bytes: %d lookups, want %d", bytes, got, want)
		}
	}
}
