package read

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/device"
)

// The kernels write rows back to back. Rows whose places are further apart, which Request.Stride asks for, are written to memory of the batch and copied from there.

const (
	// packedBytes is the most bytes of rows that are copied at a time in host memory, and stridedBytes on a GPU, unless a single row is longer.
	packedBytes  = 4 << 20
	stridedBytes = 32 << 20
)

// output is Go memory for rows of so many bytes, of which each begins stride bytes after the one before it.
type output struct {
	mem         []byte
	row, stride int
}

// outputOf returns the output of a table's rows; stride 0: back to back.
func outputOf(t *Table, mem []byte, stride int64) output {
	rowBytes := t.Tier.RowBytes()
	return output{mem, rowBytes, max(rowBytes, int(stride))}
}

// from returns the output of the rows from row i on.
func (o output) from(i int) output {
	o.mem = o.mem[i*o.stride:]
	return o
}

// put writes bytes that begin at position at of the rows, counted without what lies between them.
func (o output) put(at int, src []byte) {
	if o.stride == o.row {
		copy(o.mem[at:], src)
		return
	}
	i, in := at/o.row, at%o.row
	for ; len(src) > 0; i, in = i+1, 0 {
		src = src[copy(o.mem[i*o.stride+in:i*o.stride+o.row], src):]
	}
}

// packed is memory for rows back to back. It is kept for later batches.
var packed = sync.Pool{New: func() any { return new([]byte) }}

// takePacked returns so many bytes of memory. The caller puts it back.
func takePacked(bytes int) *[]byte {
	p := packed.Get().(*[]byte)
	if cap(*p) < bytes {
		*p = make([]byte, bytes)
	}
	*p = (*p)[:bytes]
	return p
}

// gatherStrided is gatherCopy on a GPU for rows that are to lie stride bytes apart, in parts. Where there is no memory for the rows of a part, parts become shorter.
func (d *Device) gatherStrided(ctx context.Context, s device.Stream, table int, rows RowNumbers, out device.Buffer, stride int64, w Watcher, trace *Trace) (*Batch, error) {
	n, width, rowBytes := rows.Len(), rows.bytes(), int64(d.set.Tables[table].Tier.RowBytes())
	all := &Batch{table: table, rows: int(n)}
	all.mu.settled = true
	joined := &joinedWatcher{of: w}
	joined.begin()
	part := max(1, stridedBytes/rowBytes)
	for from := int64(0); from < n; {
		part = min(part, n-from)
		r, planned := d.decide(table, part, trace != nil)
		r.stride, r.from = stride, int(from)
		numbers := RowNumbers{rows.Buffer.Slice(from*width, (from+part)*width), rows.Int32}
		joined.begin()
		b, err := d.gather(ctx, s, r, planned, table, numbers, out.Slice(from*stride, (from+part-1)*stride+rowBytes), joined, trace)
		if errors.Is(err, device.ErrOutOfMemory) && part > 1 {
			joined.End(nil, time.Time{})
			part /= 2
			continue
		}
		if err != nil {
			joined.forget()
			return nil, errors.Join(err, firstError(all.parts)) // they write to out
		}
		trace = nil // it is of the first part
		all.parts = append(all.parts, b)
		from += part
	}
	joined.End(nil, time.Time{})
	return all, nil
}

// enqueueStrided is enqueue for a batch whose rows are copied from memory of its lists to their places.
func (l *lane) enqueueStrided(s device.Stream, table int, rows RowNumbers, out device.Buffer) error {
	r, n := &l.route, rows.Len()
	rowBytes := int64(r.table.Rows.RowBytes)
	at := r.packedAt(int(n))
	mem := l.lists.Slice(at, at+n*rowBytes)
	if err := l.enqueue(s, table, rows, mem); err != nil {
		return err
	}
	if err := copyRows(s, out, r.stride, mem, rowBytes); err != nil {
		return errors.Join(err, l.done.Synchronize()) // the batch itself is enqueued
	}
	l.mark(s, PointDone)
	return s.Record(l.done)
}

// packedAt returns where the rows of a batch of n rows that are copied to their places begin in its lists.
func (r *route) packedAt(n int) int64 {
	plain := *r
	plain.stride = 0
	return (plain.lists(n) + 127) &^ 127
}

// writesStrided gives a captured batch whose rows are to lie apart memory for them.
func (c *capture) writesStrided() (err error) {
	if c.stride == 0 {
		return nil
	}
	l := &c.kernel.Serve.Lookup
	if c.mem, err = c.owner.Device.Alloc(int64(c.rows)*int64(l.RowBytes), "rows of a captured batch"); err != nil {
		return err
	}
	c.owner.captures.bytes.Add(c.mem.Size())
	c.out, l.Out = l.Out, c.mem
	return nil
}

func copyRows(s device.Stream, to device.Buffer, stride int64, from device.Buffer, rowBytes int64) error {
	c, ok := s.(device.RowCopier)
	if !ok {
		return fmt.Errorf("cache: distance of rows (%d bytes) must be the %d bytes of a row on this device", stride, rowBytes)
	}
	return c.CopyRows(to, stride, from, rowBytes)
}
