package read

import (
	"fmt"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
)

// sink says how the rows of a batch reach its output: copied, or summed and converted.
//
// The kernels that read rows may write the output themselves. They write rows back to back, or add rows up as they
// decode them (kernels.Serve.Pooled).
//
// Or they write rows to scratch memory, one part of the batch after the other. Each part is used from there:
// kernels.SumRows adds it up, or its rows are copied to places further apart. This way is for tables and misses that
// kernels.Serve.Pooled does not handle.
type sink struct {
	pool     *reduce.Batch // not nil: rows are summed or converted
	partials bool          // with pool: partial sums of long bags need memory of the lists
	stride   int64         // distance of copied rows in bytes, if they do not lie back to back; else 0
	part     int           // rows written to scratch memory at a time; 0: the kernels write the output
	rows     int           // with part: rows of the batch
}

const (
	// The last rows of a part may belong to runs that go on in the next part. So up to keptRows rows are kept for the
	// next part.
	keptRows      = reduce.Run - 1
	minPooledRows = 2 * reduce.Run
	// maxListedRows is the most rows of a part that may have absent rows. Lists of more rows would not fit beside the
	// memory for the rows.
	maxListedRows = 256 << 10
	// stridedBytes is the most bytes of rows that are written to scratch memory before they are copied apart, unless
	// one row is longer.
	stridedBytes = 32 << 20
	// maxCapturedPoolBytes is the most bytes of rows that a captured batch may write to scratch memory to add them up.
	maxCapturedPoolBytes = 1 << 30
)

// pooledRoute returns the route of a batch whose rows are summed or converted.
func (d *Device) pooledRoute(table int, b *reduce.Batch, traced bool) (r route, planned Launches) {
	if !d.poolsInScratch(table, b) {
		return d.fusedRoute(table, b), OneLaunch
	}
	part := max(minPooledRows, d.set.Tuning.WrittenBytes/d.Table(table).Rows.RowBytes)
	if d.readsAbsent(table) {
		part = min(part, maxListedRows)
	}
	part = max(1, min(part, b.Rows))
	r, planned = d.decide(table, int64(part), traced)
	r.sink = sink{pool: b, partials: true, part: part, rows: b.Rows}
	return r, planned
}

// fusedRoute is the route of a pooled batch in one launch.
func (d *Device) fusedRoute(table int, b *reduce.Batch) route {
	return route{table: d.Table(table), launches: OneLaunch, sink: sink{pool: b, partials: d.Device.NeedsStaging()}}
}

// stridedRoute returns the route of a batch of n rows that are copied to places stride bytes apart.
func (d *Device) stridedRoute(table, n int, stride int64, traced bool) (r route, planned Launches) {
	part := max(1, min(n, stridedBytes/d.Table(table).Rows.RowBytes))
	r, planned = d.decide(table, int64(part), traced)
	r.sink = sink{stride: stride, part: part, rows: n}
	return r, planned
}

// poolsInScratch says whether the rows of a pooled batch are written to scratch memory before they are added up. The
// alternative is one launch, which has limits. It has no kernels for resident tables, for long rows and for absent
// rows. It has no lists of misses, so host threads cannot share them. In large batches, codecs that decode to shared
// memory first are slower in it (docs/notebook/pooled.md).
func (d *Device) poolsInScratch(table int, b *reduce.Batch) bool {
	t := d.Table(table)
	switch {
	case !d.Device.NeedsStaging():
		return false
	case b.Begin != 0: // the kernels of several tables, which also serve single ones, take offsets that begin at 0
		return true
	case d.readsAbsent(table) || !t.fusable() || d.set.Tuning.WriteAlways:
		return true
	case b.Rows <= oneLaunchRows:
		return false
	}
	return !t.Codec.AddsAsDecoded(t.Rows.RowBytes) || t.Share != nil && float64(b.Rows)*t.missShare() > hitsFirstMisses
}

// fusable says whether there are kernels that add up the table's rows as they decode them. There are none for
// resident tables and for long rows.
func (t *TableView) fusable() bool { return t.Resident == nil && !t.long() }

// parts returns the number of parts in which a batch is enqueued.
func (k *sink) parts() int {
	if k.part == 0 {
		return 1
	}
	return (k.rows + k.part - 1) / k.part
}

// countsParts says whether a kernel adds up the counters of the batch's parts.
func (k *sink) countsParts() bool { return k.part > 0 && (k.pool != nil || k.parts() > 1) }

// shrinkScratch changes the route to one that needs less memory for lists. A pooled batch takes one launch, if that can
// serve it. Others get shorter parts. It returns false if the route cannot need less.
func (r *route) shrinkScratch() bool {
	least := 1
	if r.pool != nil {
		least = minPooledRows
	}
	switch {
	case r.part == 0:
		return false
	case r.pool != nil && !r.absent && r.pool.Begin == 0 && r.table.fusable():
		*r = route{table: r.table, launches: OneLaunch, sink: sink{pool: r.pool, partials: true}}
	case r.part <= least:
		return false
	default:
		r.part = max(least, r.part/2)
	}
	return true
}

// scratchLayout is the layout of the lists of a batch in parts: the lists of one part, rows kept from the part before, the
// part's rows, and partial sums.
type scratchLayout struct {
	rows     int64 // offset of the part's rows; those that are kept lie before it
	partials int64
	bytes    int64
}

func (r *route) scratchLayout() (w scratchLayout) {
	up := func(n int64) int64 { return (n + 127) &^ 127 }
	rowBytes := int64(r.table.Rows.RowBytes)
	part := *r
	part.sink = sink{}
	w.rows = up(part.scratchBytes(r.part))
	if r.pool != nil && r.part < r.rows {
		w.rows += up(keptRows * rowBytes)
	}
	w.partials = up(w.rows + int64(r.part)*rowBytes + kernels.SumRowsSlack)
	w.bytes = w.partials
	if r.pool != nil {
		w.bytes += r.pool.PartialBytes()
	}
	return w
}

// enqueueAny enqueues the lane's batch, in parts if its sink says so.
func (l *lane) enqueueAny(s device.Stream, table int, rows RowNumbers, out device.Buffer) error {
	if l.route.part == 0 {
		return l.enqueue(s, table, rows, out)
	}
	if err := l.enqueueParts(s, table, rows, out); err != nil {
		return err
	}
	l.mark(s, PointDone)
	return s.Record(l.done)
}

// enqueueParts enqueues a batch part by part. Each part's rows are written to the lane's scratch memory and used from
// there.
func (l *lane) enqueueParts(s device.Stream, table int, rows RowNumbers, out device.Buffer) error {
	r, w := &l.route, l.route.scratchLayout()
	rowBytes, width := r.table.Rows.RowBytes, rows.bytes()
	mem := func(from, to int) device.Buffer { // positions in the part; kept rows have negative ones
		return l.scratch.Slice(w.rows+int64(from*rowBytes), w.rows+int64(to*rowBytes))
	}
	if r.rows == 0 { // only offsets to check, and empty bags
		l.batch++
		if l.after != nil {
			if err := s.Wait(l.after); err != nil {
				return err
			}
			l.after = nil
		}
		return l.usePart(s, w, 0, 0, rows, out)
	}
	for at := 0; at < r.rows; at += r.part {
		n := min(r.part, r.rows-at)
		numbers := RowNumbers{rows.Buffer.Slice(int64(at)*width, int64(at+n)*width), rows.Int32}
		if err := l.enqueue(s, table, numbers, mem(0, n)); err != nil {
			return err
		}
		if err := l.usePart(s, w, at, n, rows, out); err != nil {
			return err
		}
		if r.pool != nil && at+n < r.rows {
			if err := s.Copy(mem(-keptRows, 0), mem(n-keptRows, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// usePart enqueues what uses the n rows of a part, and what adds up the part's counters. at is the position in the
// batch at which the part begins.
func (l *lane) usePart(s device.Stream, w scratchLayout, at, n int, rows RowNumbers, out device.Buffer) error {
	r, rowBytes := &l.route, l.route.table.Rows.RowBytes
	round := l.partCounters
	if n == 0 {
		round = l.counters // all zero
	}
	l.add = kernels.SumRows{
		Pool: r.pool, Rows: rows.Buffer, Int32: rows.Int32, Limit: l.limit, RowBytes: rowBytes, Base: at, End: at + n, From: at, Next: at + n,
		Mem: l.scratch.Slice(w.rows, w.partials), Partials: l.scratch.Slice(w.partials, w.bytes), Out: out,
		Round: round, Counters: l.sums, Added: at, Ending: kernels.Ending{Result: l.result, Batch: l.batch, Kernels: 1},
	}
	if r.pool == nil {
		first := int64(at) * r.stride
		to := out.Slice(first, first+int64(n-1)*r.stride+int64(rowBytes))
		if err := copyRows(s, to, r.stride, l.scratch.Slice(w.rows, w.rows+int64(n*rowBytes)), int64(rowBytes)); err != nil || !r.countsParts() {
			return err
		}
		return s.Launch(l.add.Counts(&l.unpooled, r.rows))
	}
	if at > 0 {
		l.add.Base, l.add.From, l.add.Mem = at-keptRows, at-keptRows, l.scratch.Slice(w.rows-int64(keptRows*rowBytes), w.partials)
	}
	if at+n < r.rows {
		l.add.Next -= keptRows
	}
	return s.Launch(&l.add)
}

// copyRows enqueues copies of rows to places stride bytes apart.
func copyRows(s device.Stream, to device.Buffer, stride int64, from device.Buffer, rowBytes int64) error {
	c, ok := s.(device.RowCopier)
	if !ok {
		return fmt.Errorf("cache: distance of rows (%d bytes) must be the %d bytes of a row on this device", stride, rowBytes)
	}
	return c.CopyRows(to, stride, from, rowBytes)
}

// capturedSink returns the sink of a captured batch of n rows. If rows are written to scratch memory, all of them are
// one part.
func (d *Device) capturedSink(table, n int, pool *reduce.Batch, stride int64) (k sink) {
	k = sink{pool: pool, stride: stride}
	if stride != 0 || pool != nil && d.capturePoolsInScratch(table, pool) {
		k.part, k.rows = max(1, n), n
	}
	return k
}

// capturePoolsInScratch says whether the rows of a captured pooled batch are written to scratch memory before they are
// added up.
func (d *Device) capturePoolsInScratch(table int, b *reduce.Batch) bool {
	return d.Device.NeedsStaging() && (d.Table(table).Resident != nil || b.Rows > 0 && d.readsAbsent(table))
}

// giveScratch allocates scratch memory for the rows of a captured batch, if its sink needs that.
func (c *capture) giveScratch(rows RowNumbers) (err error) {
	if c.part == 0 {
		return nil
	}
	serve := &c.kernel.Serve
	l, size := &serve.Lookup, int64(c.rows)*int64(serve.Lookup.RowBytes)
	if c.mem, err = c.owner.Device.Alloc(size+kernels.SumRowsSlack, "rows of a captured batch"); err != nil {
		return err
	}
	c.owner.captures.bytes.Add(c.mem.Size())
	c.out, l.Out = l.Out, c.mem.Slice(0, size)
	if c.pool != nil {
		c.sums = &kernels.SumRows{
			Pool: c.pool, Rows: rows.Buffer, Int32: rows.Int32, Views: c.kernel.Views, RowBytes: l.RowBytes, End: c.rows, Next: c.rows, Mem: c.mem, Out: c.out,
			Partials: serve.Partials,
		}
	}
	return nil
}

// useRows enqueues what uses the rows in a captured batch's scratch memory, if it has any.
func (c *capture) useRows(s device.Stream) error {
	switch {
	case c.sums != nil:
		return s.Launch(c.sums)
	case c.stride != 0:
		return copyRows(s, c.out, c.stride, c.kernel.Serve.Lookup.Out, int64(c.kernel.Serve.Lookup.RowBytes))
	}
	return nil
}
