package trace

import (
	"io"

	"github.com/tensorcache/tensorcache/bench/workload"
)

// FromWorkload returns the batches of a workload as a trace of gets: IDs are row numbers, times batch numbers, sizes the
// workload's, or rowBytes where it does not say.
func FromWorkload(w workload.Workload, rowBytes int64) Reader {
	r := &workloadReader{w: w, cursor: w.NewCursor(), rowBytes: rowBytes}
	r.tabled, _ = w.(workload.Tabled)
	return r
}

type workloadReader struct {
	w        workload.Workload
	tabled   workload.Tabled // nil: rows have no lengths of their own
	cursor   workload.Cursor
	rowBytes int64
	batch    int // the next one
	rows     []int64
	left     []int64 // of the current batch
}

// Read implements Reader.
func (r *workloadReader) Read(dst []Request) (int, error) {
	for len(r.left) == 0 {
		if r.batch == r.w.Batches() {
			return 0, io.EOF
		}
		r.rows = r.cursor.Batch(r.batch, r.rows[:0])
		r.left = r.rows
		r.batch++
	}
	n := min(len(dst), len(r.left))
	for i, row := range r.left[:n] {
		q := Request{ID: uint64(row), Size: r.rowBytes, Next: Unknown, Time: int64(r.batch - 1)}
		if r.tabled != nil {
			if size := r.tabled.RowBytes(row); size > 0 {
				q.Size = size
			}
		}
		dst[i] = q
	}
	r.left = r.left[n:]
	return n, nil
}

// Close implements Reader.
func (r *workloadReader) Close() error { return nil }
