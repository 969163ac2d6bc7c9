package experiment

import (
	"context"
	"iter"
	"math/bits"

	"github.com/tensorcache/tensorcache/bench/workload"
)

// looked numbers the rows that some batches look up, 0 and on in the order of their row numbers. A plan for a table of a billion rows keeps something of each of these
// only. It takes 1.5 bits of memory for each row of the table. The nil looked has all rows, under their own numbers.
type looked struct {
	words  []uint64
	before []uint32 // rows in the words before each
	n      int64
}

// lookedUp returns the rows of the batches of some workloads. n is the table's rows.
func lookedUp(ctx context.Context, n int64, batches ...iter.Seq2[int, []int64]) (*looked, error) {
	l := &looked{words: make([]uint64, (n+63)/64)}
	for _, all := range batches {
		for _, rows := range all {
			for _, row := range rows {
				l.words[row/64] |= 1 << (row % 64)
			}
		}
	}
	l.before = make([]uint32, len(l.words))
	for i, word := range l.words {
		l.before[i] = uint32(l.n)
		l.n += int64(bits.OnesCount64(word))
	}
	return l, ctx.Err()
}

// index returns the number of a row. REQUIRES: the row was looked up.
func (l *looked) index(row int64) int64 {
	if l == nil {
		return row
	}
	return int64(l.before[row/64]) + int64(bits.OnesCount64(l.words[row/64]&(1<<(row%64)-1)))
}

// rows yields number and row number of each.
func (l *looked) rows(yield func(int64, int64) bool) {
	i := int64(0)
	for w, word := range l.words {
		for ; word != 0; word &= word - 1 {
			if !yield(i, int64(w)*64+int64(bits.TrailingZeros64(word))) {
				return
			}
			i++
		}
	}
}

// numbered is a workload whose rows have the numbers of looked.
type numbered struct {
	workload.Workload
	by *looked
}

// renumbered returns w with the numbers of l. Both may be nil.
func renumbered(w workload.Workload, l *looked) workload.Workload {
	if w == nil || l == nil {
		return w
	}
	return numbered{w, l}
}

// NewCursor implements workload.Workload.
func (n numbered) NewCursor() workload.Cursor { return numberedCursor{n.Workload.NewCursor(), n.by} }

type numberedCursor struct {
	workload.Cursor
	by *looked
}

// Batch implements workload.Cursor.
func (c numberedCursor) Batch(i int, dst []int64) []int64 {
	from := len(dst)
	dst = c.Cursor.Batch(i, dst)
	for k := range dst[from:] {
		dst[from+k] = c.by.index(dst[from+k])
	}
	return dst
}
