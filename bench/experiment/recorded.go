package experiment

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/tensorcache/tensorcache/bench/workload"
)

// recorded is batches of other workloads, kept so that they are computed once. It is read-only once it is made.
type recorded struct {
	kind string
	rows []uint32
	ends []int // batch i is rows[ends[i]:ends[i+1]]
}

// maxRecorded is how many row numbers are kept: 2 GiB.
const maxRecorded = 1 << 29

// errTooLong says that batches are too many to be kept, or their row numbers too large.
var errTooLong = errors.New("experiment: workload is too long to be kept")

// Kind implements workload.Workload.
func (r *recorded) Kind() string { return r.kind }

// Batches implements workload.Workload.
func (r *recorded) Batches() int { return len(r.ends) - 1 }

// NewCursor implements workload.Workload.
func (r *recorded) NewCursor() workload.Cursor { return r }

// Batch implements workload.Cursor.
func (r *recorded) Batch(i int, dst []int64) []int64 {
	for _, row := range r.rows[r.ends[i]:r.ends[i+1]] {
		dst = append(dst, int64(row))
	}
	return dst
}

// add records batches [from, to) of a workload, which may be nil.
func (r *recorded) add(ctx context.Context, w workload.Workload, from, to int) error {
	for _, rows := range learnFrom(ctx, w, from, to) {
		if len(r.rows)+len(rows) > maxRecorded || len(rows) > 0 && slices.Max(rows) > math.MaxUint32 {
			return errTooLong
		}
		for _, row := range rows {
			r.rows = append(r.rows, uint32(row))
		}
		r.ends = append(r.ends, len(r.rows))
	}
	return ctx.Err()
}

// record replaces the run's workloads by their batches, where they are computed and not too many. What is replayed is in memory as it is.
func (r *run) record(ctx context.Context) error {
	r.progress.Stage("sampling", 0)
	both := []*workload.Workload{&r.measured, &r.training}
	if r.training == r.measured {
		both = both[:1]
		defer func() { r.training = r.measured }()
	}
	for _, w := range both {
		if _, ok := (*w).(*workload.Replay[int64]); ok || *w == nil {
			continue
		}
		kept := &recorded{kind: (*w).Kind(), ends: []int{0}}
		if err := kept.add(ctx, *w, 0, (*w).Batches()); err == nil {
			*w = kept
		} else if err != errTooLong {
			return err
		}
	}
	return nil
}
