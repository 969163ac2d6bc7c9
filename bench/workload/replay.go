package workload

import (
	"errors"
	"fmt"
)

// Replay is the access pattern of a list of row numbers, cut into batches.
type Replay[T int64 | uint32] struct {
	ids       []T
	batchSize int
}

// NewReplay cuts ids into batches of batchSize; the last may be shorter. It
// keeps ids, which must not change afterwards.
func NewReplay[T int64 | uint32](ids []T, batchSize int) (*Replay[T], error) {
	if len(ids) == 0 {
		return nil, errors.New("workload: replay: row numbers (0) must be at least 1")
	}
	if batchSize < 1 {
		return nil, fmt.Errorf("workload: replay: batch size (%d) must be at least 1", batchSize)
	}
	return &Replay[T]{ids: ids, batchSize: batchSize}, nil
}

// Kind returns "ids".
func (w *Replay[T]) Kind() string { return "ids" }

// Batches is the number of batches.
func (w *Replay[T]) Batches() int { return (len(w.ids)-1)/w.batchSize + 1 }

// NewCursor returns w, which needs no scratch.
func (w *Replay[T]) NewCursor() Cursor { return w }

// Batch implements Cursor.
func (w *Replay[T]) Batch(i int, dst []int64) []int64 {
	checkBatch(i, w.Batches())
	lo := i * w.batchSize
	for _, id := range w.ids[lo : lo+min(w.batchSize, len(w.ids)-lo)] {
		dst = append(dst, int64(id))
	}
	return dst
}
