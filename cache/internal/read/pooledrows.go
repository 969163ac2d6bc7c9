package read

import (
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
)

// A pooled batch on a GPU is served in one of two ways. In one launch rows are added up where they are decoded: kernels.Serve.Pooled. Or rows are
// written first, as those of any batch are, and kernels.SumRows adds them up from there: part after part, in the same memory. So tables, rows and misses of every
// kind are served.

// A part's last rows may be of runs that go on in the next part: rows of up to keptRows positions are kept for it.
const (
	keptRows        = reduce.Run - 1
	leastPooledRows = 2 * reduce.Run
)

// pooledRoute returns the route of a pooled batch.
func (d *Device) pooledRoute(table int, b *reduce.Batch, traced bool) (r route, planned Launches) {
	t := d.Table(table)
	if !d.writesPooled(t, b) {
		return d.fusedRoute(table, b), OneLaunch
	}
	rows := max(1, min(b.Rows, max(leastPooledRows, d.set.Tuning.WrittenBytes/t.Rows.RowBytes)))
	r, planned = d.decide(table, int64(rows), traced)
	r.rows, r.pool, r.partial = rows, b, true
	return r, planned
}

// fusedRoute is the route of a pooled batch in one launch.
func (d *Device) fusedRoute(table int, b *reduce.Batch) route {
	return route{table: d.Table(table), launches: OneLaunch, pool: b, partial: d.Device.NeedsStaging()}
}

// writesPooled says whether a pooled batch's rows are written before they are added up. One launch has no lists of misses, so that the host's processors cannot
// help; it has no kernels for resident tables and for long rows; and decoders that write rows to shared memory are slower in it than those of hits:
// docs/notebook/pooled.md.
func (d *Device) writesPooled(t *TableView, b *reduce.Batch) bool {
	switch {
	case !d.Device.NeedsStaging():
		return false
	case !t.sumsAsDecoded() || d.set.Tuning.WriteAlways:
		return true
	case b.Rows <= togetherRows:
		return false
	}
	return !t.Codec.AddsAsDecoded(t.Rows.RowBytes) || t.Share != nil && float64(b.Rows)*t.missShare() > fewMisses
}

// sumsAsDecoded says whether there are kernels that add the table's rows up as they are decoded: not of resident tables, nor for long rows.
func (t *TableView) sumsAsDecoded() bool { return t.Resident == nil && !t.long() }

// fuse makes a pooled batch whose rows were to be written first one launch, for which there is memory where there is none for the rows. It says whether
// one launch serves the table.
func (r *route) fuse() bool {
	if r.rows == 0 || r.gathered || !r.table.sumsAsDecoded() {
		return false
	}
	*r = route{table: r.table, launches: OneLaunch, pool: r.pool, partial: true}
	return true
}

// pooledParts is what the lists of a batch have whose rows are written first.
type pooledParts struct {
	rows     int64 // where the rows of a part begin; those that are kept lie in front of them
	partials int64
	bytes    int64
}

func (r *route) pooledParts() (p pooledParts) {
	up := func(n int64) int64 { return (n + 15) &^ 15 }
	rowBytes := int64(r.table.Rows.RowBytes)
	plain := route{table: r.table, launches: r.launches, absent: r.absent}
	p.rows = up(plain.lists(r.rows))
	if r.rows < r.pool.Rows {
		p.rows += up(keptRows * rowBytes)
	}
	p.partials = up(p.rows + int64(r.rows)*rowBytes + kernels.SumRowsSlack)
	p.bytes = p.partials + r.pool.PartialBytes()
	return p
}

// enqueueAny is enqueue for batches of every kind, also those whose rows are written before they are added up.
func (l *lane) enqueueAny(s device.Stream, table int, rows RowNumbers, out device.Buffer) error {
	r := &l.route
	switch {
	case r.stride != 0:
		return l.enqueueStrided(s, table, rows, out)
	case r.rows == 0:
		return l.enqueue(s, table, rows, out)
	}
	if r.pool.Rows == 0 { // only offsets to check, and empty bags
		l.batch++
		if l.after != nil {
			if err := s.Wait(l.after); err != nil {
				return err
			}
			l.after = nil
		}
	}
	err := l.sumInParts(s, rows, out, l.part, func(_ int, rows RowNumbers, to device.Buffer) error { return l.enqueue(s, table, rows, to) })
	if err != nil {
		return err
	}
	l.mark(s, PointDone)
	return s.Record(l.done)
}

// sumInParts enqueues the adding up of a batch whose rows are written to the lane's memory, part by part. write enqueues the writing of a part's rows, the first of which has
// position at in the batch. counters has what the writing of a part counts; none if that is counted elsewhere.
func (l *lane) sumInParts(s device.Stream, rows RowNumbers, out, counters device.Buffer, write func(at int, rows RowNumbers, to device.Buffer) error) error {
	r := &l.route
	b, parts, rowBytes, width := r.pool, r.pooledParts(), r.table.Rows.RowBytes, rows.bytes()
	mem := func(from, to int) device.Buffer { // of positions of the part, kept ones being negative
		return l.lists.Slice(parts.rows+int64(from*rowBytes), parts.rows+int64(to*rowBytes))
	}
	for at, kept, from := 0, 0, 0; at < b.Rows || at == 0; {
		n, round, added := min(r.rows, b.Rows-at), l.counters, 0 // zeros
		if n > 0 {
			if err := write(at, RowNumbers{rows.Buffer.Slice(int64(at)*width, int64(at+n)*width), rows.Int32}, mem(0, n)); err != nil {
				return err
			}
			if counters.Size() > 0 {
				round, added = counters, at
			}
		}
		next := at + n
		if next < b.Rows {
			next -= keptRows
		}
		l.add = kernels.SumRows{
			Pool: b, Rows: rows.Buffer, Int32: rows.Int32, Limit: l.limit, RowBytes: rowBytes, Base: at - kept, End: at + n, From: from, Next: next,
			Mem: l.lists.Slice(parts.rows-int64(kept*rowBytes), parts.partials), Partials: l.lists.Slice(parts.partials, parts.bytes), Out: out,
			Round: round, Counters: l.sums, Added: added, Ending: kernels.Ending{Result: l.result, Batch: l.batch, Kernels: 1},
		}
		if err := s.Launch(&l.add); err != nil {
			return err
		}
		at, kept, from = at+n, keptRows, next
		if n == 0 {
			break
		}
		if at < b.Rows {
			if err := s.Copy(mem(-keptRows, 0), mem(n-keptRows, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// capturedPooledBytes is the most bytes of rows that a captured batch writes to memory to add them up.
const capturedPooledBytes = 1 << 30

// capturesWritten says whether a captured pooled batch's rows are written before they are added up.
func (d *Device) capturesWritten(table int, b *reduce.Batch) bool {
	return d.Device.NeedsStaging() && (d.Table(table).Resident != nil || b.Rows > 0 && d.readsAbsent(table))
}

// writesPooled gives a captured pooled batch memory for its rows if its kernel is to write them. Those of resident tables and of tables of pages are all written at once.
func (c *capture) writesPooled(rows RowNumbers, out device.Buffer) error {
	d, serve := c.owner, &c.kernel.Serve
	b, l := serve.Pool, &serve.Lookup
	if b == nil || !d.capturesWritten(c.table, b) {
		return nil
	}
	size := int64(b.Rows) * int64(l.RowBytes)
	mem, err := d.Device.Alloc(size+kernels.SumRowsSlack, "a captured batch")
	if err != nil {
		return err
	}
	d.captures.bytes.Add(mem.Size())
	c.mem = mem
	c.sums = &kernels.SumRows{
		Pool: b, Rows: rows.Buffer, Int32: rows.Int32, Views: c.kernel.Views, RowBytes: l.RowBytes, End: b.Rows, Next: b.Rows, Mem: mem, Out: out,
		Partials: serve.Partials,
	}
	l.Out = mem.Slice(0, size)
	return nil
}
