package learn

import (
	"iter"
	"maps"
	"slices"
	"sort"

	"github.com/tensorcache/tensorcache/cache/admission"
)

const (
	// AheadLookups bounds what is read of the training batches before the tables are loaded, 8 bytes each, and then kept for the policy.
	AheadLookups = 1 << 21
	// popularLookups are the fewest lookups of a table from which its Popularity is told.
	popularLookups = 2048
)

// TrainingBatch is one batch of Options.Training.
type TrainingBatch struct {
	Table int
	Rows  []int64
}

// ReadAhead reads training batches until they end or have lookups rows. all yields them again, once, and then the rest; stop ends the
// reading, and has to be called.
func ReadAhead(t admission.Training, lookups int) (read []TrainingBatch, all admission.Training, stop func()) {
	next, stop := iter.Pull2(t)
	for lookups > 0 {
		table, rows, ok := next()
		if !ok {
			break
		}
		read = append(read, TrainingBatch{table, slices.Clone(rows)})
		lookups -= len(rows)
	}
	return read, func(yield func(int, []int64) bool) {
		for _, b := range read {
			if !yield(b.Table, b.Rows) {
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

// Popularity is the distribution of a table's lookups over its rows: a curve of the share of lookups that the most popular rows get, by
// their number. The zero value knows nothing.
type Popularity []popular

type popular struct{ rows, share float64 }

// TablePopularity ranks a table's rows by the first half of its batches and counts what the second half asks of them: counts of the same
// lookups would promise rows that were looked up by chance to be so again.
func TablePopularity(batches []TrainingBatch, table int, rows int64) Popularity {
	batches = slices.DeleteFunc(slices.Clone(batches), func(b TrainingBatch) bool { return b.Table != table })
	var before, after []int64
	if len(batches) == 1 { // in turns: batches may be sorted
		for i, row := range batches[0].Rows {
			if i%2 == 0 {
				before = append(before, row)
			} else {
				after = append(after, row)
			}
		}
	} else {
		for i, b := range batches {
			if i < len(batches)/2 {
				before = append(before, b.Rows...)
			} else {
				after = append(after, b.Rows...)
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
	p, sum := Popularity{{}}, level{}
	for _, times := range slices.Backward(slices.Sorted(maps.Keys(levels))) {
		sum.rows += levels[times].rows
		sum.lookups += levels[times].lookups
		p = append(p, popular{float64(sum.rows), float64(sum.lookups) / float64(len(after))})
	}
	return p
}

// HitRatio returns the share of the lookups, 0 to 1, that so many cached rows get.
func (p Popularity) HitRatio(rows float64) float64 {
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
