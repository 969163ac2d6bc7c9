package kernels

import (
	"math"
	"sync"
	"sync/atomic"
)

// Absent collects the rows of one batch that miss and that the host tier does not hold either: where a table's tier holds a part of its rows, the
// index says so by a word that is no location. The kernels leave the output of such rows as it is. Whoever launched them reads the rows from
// elsewhere. Only the host's executions fill it: on GPUs see AbsentBatch.
type Absent struct {
	mu sync.Mutex
	// Rows are row numbers, and Positions their indices in the batch, in any order.
	Rows      []int64
	Positions []uint32
}

// add notes a row. It is safe for concurrent use.
func (a *Absent) add(row int64, position uint32) {
	a.mu.Lock()
	a.Rows, a.Positions = append(a.Rows, row), append(a.Positions, position)
	a.mu.Unlock()
}

// Reset empties the list and keeps its memory.
func (a *Absent) Reset() { a.Rows, a.Positions = a.Rows[:0], a.Positions[:0] }

// isAbsent is the length that reading a row returns if the tier does not hold the row.
const isAbsent = math.MinInt

// Ahead is the part of a tier that holds rows which were read ahead of the batches that need them.
type Ahead struct {
	// From is the offset in the tier's memory from which such rows lie, and Unused has a bit a row, set until a batch reads the row there.
	From   int64
	Unused []uint64
	// Used counts the bits that batches have cleared.
	Used atomic.Int64
}

// use notes that a batch reads a row at an offset.
func (a *Ahead) use(row, offset int64) {
	if a == nil || offset < a.From {
		return
	}
	word, bit := &a.Unused[row>>6], uint64(1)<<(row&63)
	if atomic.LoadUint64(word)&bit != 0 && atomic.AndUint64(word, ^bit)&bit != 0 {
		a.Used.Add(1)
	}
}
