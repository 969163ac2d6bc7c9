package cache

import (
	"iter"
	"maps"
	"slices"
	"sort"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
)

const (
	// aheadLookups bounds what is read of the training batches before the tables are loaded, 8 bytes each, and then kept for the policy.
	aheadLookups = 1 << 21
	// popularLookups are the fewest lookups of a table from which its popularity is told.
	popularLookups = 2048
)

// trainingBatch is one batch of Options.Training.
type trainingBatch struct {
	table int
	rows  []int64
}

// readAhead reads training batches until they end or have lookups rows. all yields them again, once, and then the rest; stop ends the
// reading, and has to be called.
func readAhead(t admission.Training, lookups int) (read []trainingBatch, all admission.Training, stop func()) {
	next, stop := iter.Pull2(t)
	for lookups > 0 {
		table, rows, ok := next()
		if !ok {
			break
		}
		read = append(read, trainingBatch{table, slices.Clone(rows)})
		lookups -= len(rows)
	}
	return read, func(yield func(int, []int64) bool) {
		for _, b := range read {
			if !yield(b.table, b.rows) {
				return
			}
		}
		for {
			table, rows, ok := next()
			if !ok || !yield(table, rows) {
				return
			}
		}
	}, stop
}

// trainAhead returns the first training batches, if there are tables whose codec is to be picked. stop is to be called once the
// policy is trained.
func (c *Cache) trainAhead() (read []trainingBatch, stop func()) {
	if !slices.ContainsFunc(c.opts.Tables, func(t Table) bool { return c.codecOf(t) == registry.Auto }) {
		return nil, func() {}
	}
	read, c.opts.Training, stop = readAhead(c.opts.Training, aheadLookups)
	return read, stop
}

// popularity is how the lookups of a table spread over its rows: point by point, the share of the lookups that so many rows get, those
// first that were looked up most before. The zero value knows nothing.
type popularity []popular

type popular struct{ rows, share float64 }

// tablePopularity ranks a table's rows by the first half of its batches and counts what the second half asks of them: counts of the same
// lookups would promise rows that were looked up by chance to be so again.
func tablePopularity(batches []trainingBatch, table int, rows int64) popularity {
	batches = slices.DeleteFunc(slices.Clone(batches), func(b trainingBatch) bool { return b.table != table })
	var before, after []int64
	if len(batches) == 1 { // in turns: batches may be sorted
		for i, row := range batches[0].rows {
			if i%2 == 0 {
				before = append(before, row)
			} else {
				after = append(after, row)
			}
		}
	} else {
		for i, b := range batches {
			if i < len(batches)/2 {
				before = append(before, b.rows...)
			} else {
				after = append(after, b.rows...)
			}
		}
	}
	if len(before)+len(after) < popularLookups || len(before) == 0 || len(after) == 0 {
		return nil
	}
	slices.Sort(before)
	slices.Sort(after)
	// Rows that were looked up equally often: how many, and what was asked of them later.
	type level struct{ rows, lookups int64 }
	levels, seen, asked := map[int]level{}, int64(0), int64(0)
	for i, j := 0, 0; i < len(before); {
		row, times := before[i], 0
		for ; i < len(before) && before[i] == row; i++ {
			times++
		}
		for ; j < len(after) && after[j] < row; j++ {
		}
		l := levels[times]
		l.rows++
		for ; j < len(after) && after[j] == row; j++ {
			l.lookups++
			asked++
		}
		levels[times] = l
		seen++
	}
	levels[0] = level{max(0, rows-seen), int64(len(after)) - asked}
	p, sum := popularity{{}}, level{}
	for _, times := range slices.Backward(slices.Sorted(maps.Keys(levels))) {
		sum.rows += levels[times].rows
		sum.lookups += levels[times].lookups
		p = append(p, popular{float64(sum.rows), float64(sum.lookups) / float64(len(after))})
	}
	return p
}

// hitRatio returns the share of the lookups, 0 to 1, that so many cached rows get.
func (p popularity) hitRatio(rows float64) float64 {
	i := sort.Search(len(p), func(i int) bool { return p[i].rows >= rows })
	switch {
	case i == 0:
		return 0
	case i == len(p):
		return p[i-1].share
	}
	from, to := p[i-1], p[i]
	return from.share + (to.share-from.share)*(rows-from.rows)/(to.rows-from.rows)
}
