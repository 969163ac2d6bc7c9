package read

import (
	"context"
	"errors"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
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
	part, parts, rowBytes, width := l.route.rows, l.route.pooledParts(), t.Tier.RowBytes(), rows.bytes()
	mem := func(from, to int) device.Buffer { // of positions of the part, kept ones being negative
		return l.lists.Slice(parts.rows+int64(from*rowBytes), parts.rows+int64(to*rowBytes))
	}
	for at, kept, from := 0, 0, 0; at < b.Rows; {
		n := min(part, b.Rows-at)
		numbers := RowNumbers{rows.Buffer.Slice(int64(at)*width, int64(at+n)*width), rows.Int32}
		plain, planned := d.decide(table, int64(n), trace != nil)
		plain.gathers, plain.summed, plain.from = true, true, at
		w.begin()
		gathered, err := d.gather(ctx, s, plain, planned, table, numbers, mem(0, n), w, trace)
		if err != nil {
			return fail(err)
		}
		trace = nil // it is of the first part
		all.parts = append(all.parts, gathered)
		next := at + n
		if next < b.Rows {
			next -= keptRows
		}
		l.add = kernels.SumRows{
			Pool: b, Rows: rows.Buffer, Int32: rows.Int32, Limit: t.Tier.Rows(), RowBytes: rowBytes, Base: at - kept, End: at + n, From: from, Next: next,
			Mem: l.lists.Slice(parts.rows-int64(kept*rowBytes), parts.partials), Partials: l.lists.Slice(parts.partials, parts.bytes), Out: out,
			Round: l.counters, Counters: l.sums, Ending: kernels.Ending{Result: l.result, Batch: l.batch, Kernels: 1}, // what gathers has counted the rows
		}
		err = s.Launch(&l.add)
		if at, kept, from = at+n, keptRows, next; err == nil && at < b.Rows {
			err = s.Copy(mem(-keptRows, 0), mem(n-keptRows, n))
		}
		if err != nil {
			return fail(d.wrap(err, b.Rows, t))
		}
	}
	if err := s.Record(l.done); err != nil {
		return fail(d.wrap(err, b.Rows, t))
	}
	l.after = nil
	w.begin()
	all.parts = append(all.parts, d.track(l, table, b.Rows, w))
	return nil
}
