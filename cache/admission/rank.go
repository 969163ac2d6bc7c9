package admission

import (
	"cmp"
	"iter"
	"runtime"
	"slices"

	"github.com/tensorcache/tensorcache/hashmap"
)

// scored is a row with its value, as a ranking compares it.
type scored struct {
	hash  uint64 // of the key
	value float64
}

func (a scored) compare(b scored) int {
	switch {
	case a.value > b.value:
		return -1
	case a.value < b.value:
		return 1
	}
	return cmp.Compare(a.hash, b.hash)
}

// scores ranks rows by value, highest first, and rows of equal value by hash. Row numbers often correlate with popularity: to
// break ties by them would favour policies with many ties. Values must be numbers.
func scores(score iter.Seq2[uint64, float64]) []uint64 {
	var all []scored
	for key, value := range score {
		all = append(all, scored{hashmap.Hash(key), value})
	}
	sortScored(all, runtime.GOMAXPROCS(0))
	keys := make([]uint64, len(all))
	for i, s := range all {
		keys[i] = hashmap.Unhash(s.hash)
	}
	return keys
}

// serialSort is the number of rows below which a goroutine sorts them alone.
const serialSort = 1 << 14

// sortScored sorts rows by so many goroutines, in place.
func sortScored(all []scored, workers int) {
	if workers < 2 || len(all) < serialSort {
		slices.SortFunc(all, scored.compare)
		return
	}
	// The pivot is the median of a sample, so that the halves are about equal.
	var sample [65]scored
	for i := range sample {
		sample[i] = all[i*(len(all)/len(sample))]
	}
	slices.SortFunc(sample[:], scored.compare)
	pivot := sample[len(sample)/2]
	i, j := 0, len(all)-1
	for i <= j {
		for all[i].compare(pivot) < 0 {
			i++
		}
		for pivot.compare(all[j]) < 0 {
			j--
		}
		if i <= j {
			all[i], all[j] = all[j], all[i]
			i++
			j--
		}
	}
	halves := [2][]scored{all[:j+1], all[i:]}
	concurrently(2, func(half int) { sortScored(halves[half], (workers+1)/2) })
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
