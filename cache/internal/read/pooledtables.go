package read

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
)

// Part is the batch of one table in a call for several.
type Part struct {
	Table int
	Rows  RowNumbers
	Copy  bool         // rows are copied as they are; of Pool only Rows and Stride are used
	Pool  reduce.Batch // CheckPooled has accepted it, unless Copy is set
	Out   device.Buffer
	// Watcher and Trace are as in Enqueue. Both may be nil.
	Watcher Watcher
	Trace   *Trace
}

// EnqueueParts enqueues batches on the caller's stream. Pooled batches that fused accepts share a lane and an ending.
// They also share launches if their tables have the same kernel. The other batches are enqueued one after the other.
// All arguments are checked before any batch is enqueued.
//
// The device or its memory may cause an error later. Then batches already enqueued have ended when EnqueueParts
// returns. If they are in a graph, which the caller may still replay, they keep their memory until the graph is
// destroyed. After an error no Watcher is notified.
func (d *Device) EnqueueParts(ctx context.Context, stream uintptr, parts []Part) (*Batch, error) {
	for i := range parts {
		p, err := &parts[i], error(nil)
		if p.Copy {
			err = d.checkCopy(p.Table, p.Rows, p.Out, p.Pool.Stride)
		} else {
			err = d.checkPooledMemory(p)
		}
		if err != nil {
			return nil, inBatch(i, parts, err)
		}
	}
	s, capturing, err := d.callersStream(stream)
	if err != nil {
		return nil, err
	}
	together, apart, places := make([]Part, 0, len(parts)), []Part(nil), []int(nil)
	for i := range parts {
		p := parts[i]
		empty := p.Pool.Bags == 0 && (!p.Copy || p.Pool.Rows == 0)
		if !empty && !p.Copy && d.fused(&p, capturing) {
			together = append(together, p)
			continue
		}
		var err error
		if capturing && !empty {
			err = d.checkCapture(p.Table, p.pool())
		}
		if err == nil && !empty {
			err = d.ownWindow(s, capturing, &p)
		}
		if err != nil {
			return nil, inBatch(i, parts, err)
		}
		apart, places = append(apart, p), append(places, i)
	}
	var batches []*Batch
	var held []*heldWatcher
	hold := func(p *Part) {
		if len(parts) > 1 && p.Watcher != nil {
			held = append(held, &heldWatcher{of: p.Watcher})
			p.Watcher = held[len(held)-1]
		}
	}
	add := func(b *Batch, err error) error {
		if err == nil {
			batches = append(batches, b)
			return nil
		}
		for _, w := range held {
			w.forget()
		}
		if !capturing {
			firstError(batches) // they write to the caller's memory; their errors are not the reason of this one
		}
		return err
	}
	if len(together) > 0 {
		for i := range together {
			hold(&together[i])
		}
		if err := add(d.gatherTogether(ctx, s, capturing, together)); err != nil {
			return nil, err
		}
	}
	for i := range apart {
		p := &apart[i]
		hold(p)
		if err := add(d.gatherApart(ctx, s, capturing, p)); err != nil {
			return nil, inBatch(places[i], parts, err)
		}
	}
	for _, w := range held {
		w.release()
	}
	return join(batches), nil
}

// pool describes how rows are added up. It is nil if they are copied.
func (p *Part) pool() *reduce.Batch {
	if p.Copy {
		return nil
	}
	return &p.Pool
}

// gatherApart enqueues a batch with a lane of its own.
func (d *Device) gatherApart(ctx context.Context, s device.Stream, capturing bool, p *Part) (*Batch, error) {
	if p.Copy {
		return d.gatherCopy(ctx, s, capturing, p.Table, p.Rows, p.Out, p.Pool.Stride, p.Watcher, p.Trace)
	}
	return d.gatherPooled(ctx, s, capturing, p)
}

// inBatch adds to an error which batch it belongs to, if there are several.
func inBatch(i int, parts []Part, err error) error {
	if len(parts) == 1 {
		return err
	}
	return fmt.Errorf("batch %d: %w", i, err)
}

// checkPooledMemory returns an error for memory of a batch that is misaligned, or that the device does not address.
func (d *Device) checkPooledMemory(p *Part) error {
	b := &p.Pool
	for _, m := range []struct {
		what  string
		b     device.Buffer
		align int64
	}{{"row numbers", p.Rows.Buffer, p.Rows.bytes()}, {"offsets", b.Offsets, b.OffsetBytes()}, {"weights", b.Weights, 4}, {"output", p.Out, int64(b.Out.Size())}} {
		if m.b.Size()%m.align != 0 || m.b.Addr()%uint64(m.align) != 0 {
			return fmt.Errorf("cache: %s (%d bytes at %#x) must be a multiple of %d bytes, aligned to %d", m.what, m.b.Size(), m.b.Addr(), m.align, m.align)
		}
		if m.b.Size() > 0 && d.Device.NeedsStaging() && m.b.Addr() == 0 {
			return fmt.Errorf("cache: %s must be memory that device %d addresses", m.what, d.Index)
		}
	}
	return nil
}

// fused says whether one launch can serve a pooled batch, alone or together with others.
func (d *Device) fused(p *Part, capturing bool) bool {
	t := d.Table(p.Table)
	switch {
	case d.set.Tables[p.Table].Absent != nil || !t.fusable():
		return false
	case capturing: // a client must tell the owner the number of rows of each replay, which is unknown for a window
		return d.places == nil || p.Pool.Whole.Size() == 0
	case p.Pool.Whole.Size() > 0: // a window: only the device knows its number of rows
		return true
	}
	return !d.poolsInScratch(p.Table, &p.Pool)
}

// ownWindow makes a window a batch of its own. It reads the window's bounds from the offsets, which may be in device
// memory, so it waits for the stream.
func (d *Device) ownWindow(s device.Stream, capturing bool, p *Part) error {
	b := &p.Pool
	if b.Whole.Size() == 0 {
		return nil
	}
	if capturing {
		return fmt.Errorf("%w: a window of the bags of table %s cannot be added up in a graph", ErrCapturing, d.set.Tables[p.Table].Name)
	}
	width := b.OffsetBytes()
	ends := make([]byte, 2*width)
	if err := errors.Join(
		s.Synchronize(), device.Download(d.Device, ends[:width], b.Offsets.Slice(0, width)),
		device.Download(d.Device, ends[width:], b.Offsets.Slice(b.Offsets.Size()-width, b.Offsets.Size())),
	); err != nil {
		return d.wrap(err, b.Rows, d.set.Tables[p.Table])
	}
	at := RowNumbers{device.HostBuffer(ends), b.Narrow}
	p.cut(at.at(0), at.at(1))
	return nil
}

// OwnWindow makes a window a batch of its own, with only the row numbers of its own bags. It leaves other batches as
// they are. REQUIRES: the host addresses the offsets.
func (p *Part) OwnWindow() {
	if b := &p.Pool; b.Whole.Size() > 0 {
		v := reduce.NewView(b)
		p.cut(v.Offset(0), v.Offset(b.Bags))
	}
}

// cut makes a window a batch of its own. first and last are the first and the last of its offsets.
func (p *Part) cut(first, last int64) {
	own, at := p.Pool.Window(first, last)
	width := p.Rows.bytes()
	p.Pool, p.Rows.Buffer = own, p.Rows.Buffer.Slice(at*width, (at+int64(own.Rows))*width)
}

// gatherTogether enqueues batches that fused accepts.
func (d *Device) gatherTogether(ctx context.Context, s device.Stream, capturing bool, parts []Part) (*Batch, error) {
	switch {
	case len(parts) == 1 && parts[0].Pool.Whole.Size() == 0:
		return d.gatherPooled(ctx, s, capturing, &parts[0])
	case capturing:
		return d.captureTables(s, parts)
	}
	r := route{launches: OneLaunch, tables: parts, sink: sink{partials: d.Device.NeedsStaging()}}
	rows := 0
	for i := range parts {
		rows += parts[i].Pool.Rows
	}
	l, err := d.acquire(ctx, r, 0)
	if err != nil {
		return nil, d.OrLost(err)
	}
	if err := l.tables.reserve(d, len(parts)); err != nil {
		d.release(l, nil)
		return nil, err
	}
	l.tables.parts = parts
	if err := l.announce(ctx, 0); err != nil {
		d.release(l, nil)
		return nil, err
	}
	if err := l.enqueueTables(s); err != nil {
		l.abandon(s)
		d.release(l, nil)
		return nil, d.wrap(err, rows, d.set.Tables[parts[0].Table])
	}
	return d.track(l, parts[0].Table, rows, nil), nil
}

// laneTables is what a lane has for a batch of several tables.
type laneTables struct {
	parts  []Part
	views  []*TableView
	serves []kernels.Serve
	all    []*kernels.Serve // pointers to the elements of serves
	kernel kernels.PooledTables

	counters device.Buffer
	host     device.Buffer // page-locked: the results, then the kernel's arguments
}

// reserve allocates memory for n tables.
func (t *laneTables) reserve(d *Device, n int) error {
	if have := len(t.serves); n > have {
		t.free(d)
		var err error
		if t.counters, err = d.Device.Alloc(int64(n)*kernels.CountersBytes, "batch counters"); err != nil {
			return err
		}
		if t.host, err = d.allocNear(int64(n)*(kernels.CountersBytes+kernels.PooledTableBytes), "batch counters"); err != nil {
			d.Device.Free(t.counters)
			t.counters = device.Buffer{}
			return err
		}
		t.serves, t.all = make([]kernels.Serve, n), make([]*kernels.Serve, n)
		for i := range t.serves {
			t.all[i] = &t.serves[i]
		}
		d.tableBytes.Add(t.counters.Size())
		d.staged.Add(t.host.Size())
	}
	t.views = slices.Grow(t.views[:0], n)[:n]
	return nil
}

func (t *laneTables) free(d *Device) {
	d.tableBytes.Add(-t.counters.Size())
	d.staged.Add(-t.host.Size())
	d.Device.Free(t.counters)
	d.Device.Free(t.host)
	t.counters, t.host, t.serves, t.all = device.Buffer{}, device.Buffer{}, nil, nil
}

// loadViews loads the views of the tables that the batch reads.
func (t *laneTables) loadViews(d *Device) {
	for i := range t.parts {
		t.views[i] = d.Table(t.parts[i].Table)
	}
}

// enqueueTables is enqueue for a batch of several tables.
func (l *lane) enqueueTables(s device.Stream) error {
	var err error
	if l.sequence == nil {
		err = l.enqueueTablesOn(s)
	} else if err = l.enqueueTablesOn(l.sequence.On(s)); err == nil {
		err = l.sequence.Enqueue()
	} else {
		l.sequence.Drop()
	}
	if err = l.owner.afterEnqueue(s, err); err == nil {
		l.after = nil
	}
	return err
}

func (l *lane) enqueueTablesOn(s device.Stream) error {
	l.batch++
	if l.after != nil {
		if err := s.Wait(l.after); err != nil {
			return err
		}
	}
	t, n := &l.tables, len(l.tables.parts)
	for i := range t.parts {
		t.serves[i] = l.serveOf(t.views[i], &t.parts[i])
	}
	k, results := &t.kernel, int64(n)*kernels.CountersBytes
	k.Tables, k.Batch, k.Partials = t.all[:n], l.batch, device.Buffer{}
	k.Counters, k.Results = t.counters.Slice(0, results), t.host.Slice(0, results)
	k.Args = t.host.Slice(results, results+int64(n)*kernels.PooledTableBytes)
	if l.scratch != nil {
		k.Partials = l.scratch.Buffer
	}
	if err := s.Launch(k); err != nil {
		return err
	}
	return s.Record(l.done)
}

// serveOf returns the arguments of the kernel for one table.
func (l *lane) serveOf(t *TableView, p *Part) kernels.Serve {
	d := l.owner
	lookup := l.view.lookup(t, p.Table, d.set.Tables[p.Table].Tier.Rows())
	lookup.Rows, lookup.Int32, lookup.Out, lookup.Samples, lookup.Ring = p.Rows.Buffer, p.Rows.Int32, p.Out, d.nextSampling(), d.Ring
	return kernels.Serve{Lookup: lookup, Slabs: l.view.Slabs, Codec: t.Codec, Tier: t.Rows, Pool: &p.Pool}
}

// partEnd says how the batch of one table has ended.
type partEnd struct {
	watcher Watcher
	err     error
}

// report counts the batches of the tables, which have ended. It returns how each ended and the first of their errors.
// failure, if not nil, is the device's error for all of them.
func (t *laneTables) report(l *lane, failure error) (ends []partEnd, first error) {
	for i := range t.parts {
		p, err := &t.parts[i], failure
		if err == nil {
			var o Outcome
			c := kernels.CountersView(t.kernel.Result(i))
			o.add(c, 0)
			if p.Trace != nil {
				p.Trace.Planned, p.Trace.Run = OneLaunch, OneLaunch
				p.Trace.Done.add(c, 0)
			}
			err = o.report(l, p.Table, p.Pool.Rows)
			if p.Watcher != nil && p.Pool.Whole.Size() > 0 {
				p.Watcher.Rows(int(o.Hits + o.Misses + o.outOfRange))
			}
		}
		if first == nil {
			first = err
		} else if failure == nil {
			l.owner.set.faults.add(err) // the caller adds the first error
		}
		if p.Watcher != nil {
			ends = append(ends, partEnd{p.Watcher, err})
		}
	}
	return ends, first
}
