package admission

import (
	"cmp"
	"iter"
	"slices"

	"github.com/tensorcache/tensorcache/hashmap"
)

// scores ranks rows by value, highest first, and rows of equal value by hash. Row numbers often correlate with popularity: to
// break ties by them would favour policies with many ties.
func scores(score iter.Seq2[uint64, float64]) []uint64 {
	type scored struct {
		key   uint64
		value float64
	}
	var all []scored
	for key, value := range score {
		all = append(all, scored{key, value})
	}
	slices.SortFunc(all, func(a, b scored) int {
		if c := cmp.Compare(b.value, a.value); c != 0 {
			return c
		}
		return cmp.Compare(hashmap.Hash(a.key), hashmap.Hash(b.key))
	})
	keys := make([]uint64, len(all))
	for i, s := range all {
		keys[i] = s.key
	}
	return keys
}

// counts holds the number of accesses to each row of each table.
type counts [][]uint32

func newCounts(p Problem) counts {
	c := make(counts, len(p.Rows))
	for t, n := range p.Rows {
		c[t] = make([]uint32, n)
	}
	return c
}

func (c counts) observe(table int, rows []int64) {
	for _, r := range rows {
		c[table][r]++
	}
}

// each yields the key of every accessed row and value(key, count).
func (c counts) each(value func(key uint64, count float64) float64) iter.Seq2[uint64, float64] {
	return func(yield func(uint64, float64) bool) {
		for t, rows := range c {
			for r, n := range rows {
				if n == 0 {
					continue
				}
				key := hashmap.Key(t, int64(r))
				if !yield(key, value(key, float64(n))) {
					return
				}
			}
		}
	}
}
