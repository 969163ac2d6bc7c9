package read

import (
	"context"
	"errors"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/reduce"
)

// A pooled batch of a table of pages with more rows in a bag, or with offsets, than gatherThenPool has memory for, or with rows that its kernels do not take, is
// gathered part by part, and kernels.SumRows adds the parts up, as it does for other tables (pooledrows.go). Rows of padding are read, too.

// summedRoute is the route of what adds up the rows of such a batch.
func (d *Device) summedRoute(table int, b *reduce.Batch) route {
	t := d.Table(table)
	rows := min(int64(b.Rows), mostGathered, max(leastPooledRows, d.set.Tuning.GatheredBytes/int64(t.Rows.RowBytes)))
	return route{table: t, launches: OneLaunch, pool: b, rows: int(rows), gathered: true, summed: true}
}

// gatherThenSum enqueues such a batch.
func (d *Device) gatherThenSum(ctx context.Context, s device.Stream, table int, rows RowNumbers, b *reduce.Batch, out device.Buffer, w Watcher, trace *Trace) (*Batch, error) {
	all := &Batch{table: table, rows: b.Rows}
	all.mu.settled = true
	joined := &joinedWatcher{of: w}
	joined.begin()
	if err := d.enqueueSummed(ctx, s, table, rows, b, out, all, joined, trace); err != nil {
		joined.forget()
		return nil, errors.Join(err, firstError(all.parts)) // they write to memory of the batch
	}
	joined.End(nil, time.Time{})
	return all, nil
}

func (d *Device) enqueueSummed(
	ctx context.Context, s device.Stream, table int, rows RowNumbers, b *reduce.Batch, out device.Buffer, all *Batch, w *joinedWatcher, trace *Trace,
) error {
	t := d.set.Tables[table]
	l, fail, err := d.acquireToSum(ctx, s, d.summedRoute(table, b), table, b.Rows)
	if err != nil {
		return err
	}
	l.batch++
	var failed error // of a batch that gathers, which says what it did
	err = l.sumInParts(s, rows, out, device.Buffer{}, func(at int, rows RowNumbers, to device.Buffer) error {
		plain, planned := d.decide(table, rows.Len(), trace != nil)
		plain.gathers, plain.summed, plain.from = true, true, at
		w.begin()
		var gathered *Batch
		if gathered, failed = d.gather(ctx, s, plain, planned, table, rows, to, w, trace); failed == nil {
			all.parts = append(all.parts, gathered)
			l.limit = t.Tier.Rows() // not before: a row that was appended meanwhile has been gathered
		}
		trace = nil // it is of the first part
		return failed
	})
	if failed != nil {
		return fail(failed)
	}
	if err != nil {
		return fail(d.wrap(err, b.Rows, t))
	}
	if err := s.Record(l.done); err != nil {
		return fail(d.wrap(err, b.Rows, t))
	}
	l.after = nil
	w.begin()
	all.parts = append(all.parts, d.track(l, table, b.Rows, w))
	return nil
}
