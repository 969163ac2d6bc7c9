package change

import (
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/hashmap"
)

// TestByPage: keys are in the order of tables, pages and rows, and each row's page is asked for once.
func TestByPage(t *testing.T) {
	asked := 0
	pageOf := func(row int64) uint32 {
		asked++
		return uint32(row*7%10) + 1
	}
	table := &read.Table{Cold: cold.New(nil, cold.Options{PageOf: pageOf})}
	w := &Writer{set: &read.Set{Tables: []*read.Table{table, table}}}
	var keys []uint64
	for row := range int64(100) {
		keys = append(keys, hashmap.Key(1, row), hashmap.Key(0, 99-row))
	}
	w.byPage(keys)
	if asked != len(keys) {
		t.Errorf("pages were asked for %d times, for %d rows", asked, len(keys))
	}
	order := func(key uint64) [3]int64 {
		table, row := hashmap.SplitKey(key)
		return [3]int64{int64(table), row * 7 % 10, row}
	}
	if !slices.IsSortedFunc(keys, func(a, b uint64) int { x, y := order(a), order(b); return slices.Compare(x[:], y[:]) }) {
		t.Errorf("order %v", keys)
	}
}
