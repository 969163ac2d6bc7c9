// Package admission decides, on the host, which rows deserve slab bytes.
//
// A [Policy] is made for one cache, which calls its methods from one goroutine at a time: Start once, Observe for each
// batch of training accesses, Rank, Close. A policy is one file of this package; it knows rows by the keys of package
// hashmap.
package admission

import (
	"cmp"
	"iter"
	"slices"

	"github.com/tensorcache/tensorcache/hashmap"
)

// Policy ranks rows.
type Policy interface {
	// Name is the policy's name as the command line takes it.
	Name() string
	// Start tells the policy what it decides about.
	Start(Problem) error
	// Observe tells it of one batch of accesses; duplicates count.
	Observe(table int, rows []int64)
	// Rank yields the keys of the rows that the policy offers for admission, each once, those to admit first. The cache
	// admits them in this order as far as the space goes; it counts the others as rejected, and rows that are never
	// yielded as cold.
	Rank() iter.Seq[uint64]
	// Resize tells the policy that the slabs hold another number of slot bytes, all together.
	Resize(capacity int64)
	// Close releases what the policy holds. It may be called at any time, more than once.
	Close()
}

// Problem is what a policy decides about.
type Problem struct {
	// Rows is the number of rows of each table.
	Rows []int64
	// Capacity is about how many slot bytes the data store holds, all slabs together.
	Capacity int64
	// SlotBytes is what a row takes in a slab, and StoredBytes what a miss of it moves from the host.
	SlotBytes, StoredBytes func(key uint64) int
}

// Training is a sequence of batches from which a policy learns before the cache is filled.
type Training = iter.Seq2[int, []int64]

// scores ranks rows by value, highest first, equal ones by hash: row numbers often go with popularity, and a ranking that
// leans on them would flatter whichever cache has more ties.
func scores(score iter.Seq2[uint64, float64]) iter.Seq[uint64] {
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
	return func(yield func(uint64) bool) {
		for _, s := range all {
			if !yield(s.key) {
				return
			}
		}
	}
}

// counts is how often each row of each table was accessed.
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

// each yields every row that was accessed with value(key, count).
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
