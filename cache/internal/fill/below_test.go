package fill

import (
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/hashmap"
)

// TestByPage: rows are in the order of their pages, and each row's page is asked for once.
func TestByPage(t *testing.T) {
	asked := 0
	page := func(row int64) int64 { return row * 7 % 10 }
	table := cold.New(nil, cold.Options{PageOf: func(row int64) uint32 {
		asked++
		return uint32(page(row)) + 1
	}})
	var rows []int64
	for row := range int64(100) {
		rows = append(rows, 99-row)
	}
	byPage := func(rows []int64) []int64 {
		keys := []uint64{hashmap.Key(0, 5), hashmap.Key(2, 5)} // of other tables
		for _, row := range rows {
			keys = append(keys, hashmap.Key(1, row))
		}
		sorted, memory := byPage(keys, 1, int64(len(rows)), table)
		defer memory.Free()
		return slices.Clone(sorted)
	}
	sorted := byPage(rows)
	if asked != len(rows) {
		t.Errorf("pages were asked for %d times, for %d rows", asked, len(rows))
	}
	if !slices.IsSortedFunc(sorted, func(a, b int64) int { return int(page(a) - page(b)) }) {
		t.Errorf("order %v", sorted)
	}
	slices.Sort(sorted)
	if slices.Sort(rows); !slices.Equal(sorted, rows) {
		t.Errorf("rows %v", sorted)
	}
	if sorted := byPage([]int64{5}); !slices.Equal(sorted, []int64{5}) {
		t.Errorf("of one row: %v", sorted)
	}
}
