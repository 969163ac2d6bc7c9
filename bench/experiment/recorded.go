package experiment

import (
	"context"
	"math"

	"github.com/tensorcache/tensorcache/bench/workload"
)

// recorded is batches of other workloads, kept so that they are computed once. It is read-only once it is made.
type recorded struct {
	kind string
	rows []uint32
	ends []int // of each batch in rows
}

// maxRecorded is how many row numbers are kept: 2 GiB.
const maxRecorded = 1 << 29

// Kind implements workload.Workload.
func (r *recorded) Kind() string { return r.kind }

// Batches implements workload.Workload.
func (r *recorded) Batches() int { return len(r.ends) }

// NewCursor implements workload.Workload.
func (r *recorded) NewCursor() workload.Cursor { return r }

// Batch implements workload.Cursor.
func (r *recorded) Batch(i int, dst []int64) []int64 {
	begin := 0
	if i > 0 {
		begin = r.ends[i-1]
	}
	for _, row := range r.rows[begin:r.ends[i]] {
		dst = append(dst, int64(row))
	}
	return dst
}

// add records batches [from, to) of a workload, which may be nil, and says whether they fit.
func (r *recorded) add(ctx context.Context, w workload.Workload, from, to int) (fits bool, err error) {
	for _, rows := range learnFrom(ctx, w, from, to) {
		if len(r.rows)+len(rows) > maxRecorded {
			return false, nil
		}
		for _, row := range rows {
			if row > math.MaxUint32 {
				return false, nil
			}
			r.rows = append(r.rows, uint32(row))
		}
		r.ends = append(r.ends, len(r.rows))
	}
	return true, ctx.Err()
}

// record replaces a workload that is computed by its batches, unless they are too many. What is replayed is in memory as
// it is.
func record(ctx context.Context, w workload.Workload) (workload.Workload, error) {
	if _, ok := w.(*workload.Replay[int64]); ok || w == nil {
		return w, nil
	}
	r := &recorded{kind: w.Kind()}
	if fits, err := r.add(ctx, w, 0, w.Batches()); err != nil || !fits {
		return w, err
	}
	return r, nil
}

// record is that of both workloads of the run.
func (r *run) record(ctx context.Context) (err error) {
	r.progress.Stage("sampling", 0)
	one := r.training == r.measured
	if r.measured, err = record(ctx, r.measured); err != nil {
		return err
	}
	if one {
		r.training = r.measured
		return nil
	}
	r.training, err = record(ctx, r.training)
	return err
}
