package read

import (
	"fmt"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
)

// sink says what becomes of the rows of a batch: they are copied, or summed and converted.
//
// The kernels that read rows may write the output themselves: rows back to back, or sums of rows as they are decoded (kernels.Serve.Pooled). Or they write rows to
// scratch memory, part after part, and each part is used from there: added up by kernels.SumRows, or copied to places further apart. So rows of tables
// and misses of every kind can be added up.
type sink struct {
	pool     *reduce.Batch // not nil: rows are summed or converted
	partials bool          // with pool: the sums of long bags' runs need lists
	stride   int64         // of copied rows: not 0 if they lie further apart than their length
	part     int           // rows that are written to scratch memory at a time; 0: the kernels write the output
	rows     int           // with part: those of the batch
}

const (
	// The last rows of a part may be of runs that go on in the next part: rows of up to keptRows positions are kept for it.
	keptRows        = reduce.Run - 1
	leastPooledRows = 2 * reduce.Run
	// mostListed is the most rows of a part some of which may be absent: more would take more lists than a device has beside the memory for the rows.
	mostListed = 256 << 10
	// stridedBytes is the most bytes of rows that are copied to places further apart at a time, unless a single row is longer.
	stridedBytes = 32 << 20
	// capturedPooledBytes is the most bytes of rows that a captured batch writes to memory to add them up.
	capturedPooledBytes = 1 << 30
)

// pooledRoute returns the route of a batch whose rows are summed or converted.
func (d *Device) pooledRoute(table int, b *reduce.Batch, traced bool) (r route, planned Launches) {
	if !d.sumsWritten(table, b) {
		return d.fusedRoute(table, b), OneLaunch
	}
	part := max(leastPooledRows, d.set.Tuning.WrittenBytes/d.Table(table).Rows.RowBytes)
	if d.readsAbsent(table) {
		part = min(part, mostListed)
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

// sumsWritten says whether a pooled batch's rows are written before they are added up. One launch has no lists of misses, so that the host's processors cannot
// help; it has no kernels for resident tables, for long rows and for rows that are absent from the host tier; and decoders that write rows to shared memory are
// slower in it than those of hits: docs/notebook/pooled.md.
func (d *Device) sumsWritten(table int, b *reduce.Batch) bool {
	t := d.Table(table)
	switch {
	case !d.Device.NeedsStaging():
		return false
	case d.readsAbsent(table) || !t.sumsAsDecoded() || d.set.Tuning.WriteAlways:
		return true
	case b.Rows <= togetherRows:
		return false
	}
	return !t.Codec.AddsAsDecoded(t.Rows.RowBytes) || t.Share != nil && float64(b.Rows)*t.missShare() > fewMisses
}

// sumsAsDecoded says whether there are kernels that add the table's rows up as they are decoded: not of resident tables, nor for long rows.
func (t *TableView) sumsAsDecoded() bool { return t.Resident == nil && !t.long() }

// parts returns in how many parts a batch is enqueued.
func (k *sink) parts() int {
	if k.part == 0 {
		return 1
	}
	return (k.rows + k.part - 1) / k.part
}

// countsParts says whether what the parts of a batch count is added up by a kernel.
func (k *sink) countsParts() bool { return k.part > 0 && (k.pool != nil || k.parts() > 1) }

// takeLess makes a route need less memory for lists, where there is none for what it needs: a pooled batch that one launch can serve is served by it, and others have shorter parts. It says
// whether the route needs less.
func (r *route) takeLess() bool {
	least := 1
	if r.pool != nil {
		least = leastPooledRows
	}
	switch {
	case r.part == 0:
		return false
	case r.pool != nil && !r.absent && r.table.sumsAsDecoded():
		*r = route{table: r.table, launches: OneLaunch, sink: sink{pool: r.pool, partials: true}}
	case r.part <= least:
		return false
	default:
		r.part = max(least, r.part/2)
	}
	return true
}

// written is what the lists of a batch have beside those of a part, with rows in scratch memory.
type written struct {
	rows     int64 // where the rows of a part begin; those that are kept lie in front of them
	partials int64
	bytes    int64
}

func (r *route) written() (w written) {
	up := func(n int64) int64 { return (n + 127) &^ 127 }
	rowBytes := int64(r.table.Rows.RowBytes)
	part := *r
	part.sink = sink{}
	w.rows = up(part.lists(r.part))
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

// enqueueAny enqueues a batch with a sink of any kind.
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

// enqueueParts enqueues a batch whose rows are written to the lane's memory, part by part, and used from there.
func (l *lane) enqueueParts(s device.Stream, table int, rows RowNumbers, out device.Buffer) error {
	r, w := &l.route, l.route.written()
	rowBytes, width := r.table.Rows.RowBytes, rows.bytes()
	mem := func(from, to int) device.Buffer { // of positions of the part, kept ones being negative
		return l.lists.Slice(w.rows+int64(from*rowBytes), w.rows+int64(to*rowBytes))
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

// usePart enqueues what becomes of the n rows of a part, the first of which is at position at of the batch, and the adding up of what the part has counted.
func (l *lane) usePart(s device.Stream, w written, at, n int, rows RowNumbers, out device.Buffer) error {
	r, rowBytes := &l.route, l.route.table.Rows.RowBytes
	round := l.part
	if n == 0 {
		round = l.counters // zeros
	}
	l.add = kernels.SumRows{
		Pool: r.pool, Rows: rows.Buffer, Int32: rows.Int32, Limit: l.limit, RowBytes: rowBytes, Base: at, End: at + n, From: at, Next: at + n,
		Mem: l.lists.Slice(w.rows, w.partials), Partials: l.lists.Slice(w.partials, w.bytes), Out: out,
		Round: round, Counters: l.sums, Added: at, Ending: kernels.Ending{Result: l.result, Batch: l.batch, Kernels: 1},
	}
	if r.pool == nil {
		first := int64(at) * r.stride
		to := out.Slice(first, first+int64(n-1)*r.stride+int64(rowBytes))
		if err := copyRows(s, to, r.stride, l.lists.Slice(w.rows, w.rows+int64(n*rowBytes)), int64(rowBytes)); err != nil || !r.countsParts() {
			return err
		}
		return s.Launch(l.add.Counts(r.rows))
	}
	if at > 0 {
		l.add.Base, l.add.From, l.add.Mem = at-keptRows, at-keptRows, l.lists.Slice(w.rows-int64(keptRows*rowBytes), w.partials)
	}
	if at+n < r.rows {
		l.add.Next -= keptRows
	}
	return s.Launch(&l.add)
}

// copyRows enqueues the copying of rows to places stride bytes apart.
func copyRows(s device.Stream, to device.Buffer, stride int64, from device.Buffer, rowBytes int64) error {
	c, ok := s.(device.RowCopier)
	if !ok {
		return fmt.Errorf("cache: distance of rows (%d bytes) must be the %d bytes of a row on this device", stride, rowBytes)
	}
	return c.CopyRows(to, stride, from, rowBytes)
}

// capturedSink returns what becomes of the n rows of a captured batch. Rows that are written to scratch memory are so all at once.
func (d *Device) capturedSink(table, n int, pool *reduce.Batch, stride int64) (k sink) {
	k = sink{pool: pool, stride: stride}
	if stride != 0 || pool != nil && d.capturesWritten(table, pool) {
		k.part, k.rows = max(1, n), n
	}
	return k
}

// capturesWritten says whether a captured pooled batch's rows are written before they are added up.
func (d *Device) capturesWritten(table int, b *reduce.Batch) bool {
	return d.Device.NeedsStaging() && (d.Table(table).Resident != nil || b.Rows > 0 && d.readsAbsent(table))
}

// giveScratch gives a captured batch memory for its rows, if its kernel is to write them there.
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

// useRows enqueues the adding up of a captured batch's rows, or copies them to their places, where that is to be done.
func (c *capture) useRows(s device.Stream) error {
	switch {
	case c.sums != nil:
		return s.Launch(c.sums)
	case c.stride != 0:
		return copyRows(s, c.out, c.stride, c.kernel.Serve.Lookup.Out, int64(c.kernel.Serve.Lookup.RowBytes))
	}
	return nil
}
