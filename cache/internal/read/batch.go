package read

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// perThreadStream is CUDA's handle of the calling thread's default stream.
const perThreadStream = 2

// Batch is a batch that Enqueue has enqueued or captured in a graph. It is safe for concurrent use.
type Batch struct {
	table, rows int
	watcher     Watcher  // may be nil
	captured    *capture // not nil: the batch belongs to a graph
	parts       []*Batch // not nil: the batch consists of these

	mu struct {
		sync.Mutex
		lane    *lane // nil once it is released
		users   int   // calls that use the lane's events; the last one releases the lane of a settled batch
		settled bool
		err     error
	}
}

// Enqueue enqueues a batch on the caller's stream. The device must be able to address rows and out. Rows are
// written stride bytes apart; 0 means back to back. w, if not nil, is notified when the batch has ended, but not if
// Enqueue returns an error. trace, if not nil, records the batch.
func (d *Device) Enqueue(ctx context.Context, stream uintptr, table int, rows RowNumbers, out device.Buffer, stride int64, w Watcher, trace *Trace) (*Batch, error) {
	if err := d.checkCopy(table, rows, out, stride); err != nil {
		return nil, err
	}
	s, capturing, err := d.callersStream(stream)
	if err != nil {
		return nil, err
	}
	return d.gatherCopy(ctx, s, capturing, table, rows, out, stride, w, trace)
}

// checkCopy returns an error if an argument of a batch that copies rows is out of range.
func (d *Device) checkCopy(table int, rows RowNumbers, out device.Buffer, stride int64) error {
	t, ids, width := d.set.Tables[table], rows.Buffer, rows.bytes()
	n := rows.Len()
	if ids.Size()%width != 0 || ids.Addr()%uint64(width) != 0 {
		return fmt.Errorf("cache: row numbers (%d bytes at %#x) must be a multiple of %d bytes, aligned to %d", ids.Size(), ids.Addr(), width, width)
	}
	if err := t.checkOut(n, out.Size(), stride); err != nil {
		return err
	}
	if n > 0 && d.Device.NeedsStaging() && (ids.Addr() == 0 || out.Addr() == 0) {
		return fmt.Errorf("cache: row numbers and output (at %#x and %#x) must be memory that device %d addresses", ids.Addr(), out.Addr(), d.Index)
	}
	return nil
}

// gatherCopy enqueues a batch whose arguments have passed checkCopy on stream s.
func (d *Device) gatherCopy(ctx context.Context, s device.Stream, capturing bool, table int, rows RowNumbers, out device.Buffer, stride int64, w Watcher, trace *Trace) (*Batch, error) {
	n := rows.Len()
	if stride == int64(d.set.Tables[table].Tier.RowBytes()) {
		stride = 0
	}
	switch {
	case n == 0:
		return emptyBatch(w), nil
	case capturing:
		return d.capture(s, table, rows, out, stride, nil, w)
	case !d.Device.NeedsStaging() && (stride != 0 || d.set.Tables[table].Absent != nil):
		return d.gatherOnHost(ctx, s, table, rows, out, stride, w, trace)
	}
	r, planned := d.decide(table, n, trace != nil)
	if stride != 0 {
		r, planned = d.stridedRoute(table, int(n), stride, trace != nil)
	}
	return d.gather(ctx, s, r, planned, table, rows, out, w, trace)
}

// gatherOnHost is Enqueue on the host backend for tables with absent rows and for rows that do not lie back to
// back. The batch has ended when it returns.
func (d *Device) gatherOnHost(ctx context.Context, s device.Stream, table int, rows RowNumbers, to device.Buffer, stride int64, w Watcher, trace *Trace) (*Batch, error) {
	n := int(rows.Len())
	if err := s.Synchronize(); err != nil {
		return nil, d.wrap(err, n, d.set.Tables[table])
	}
	out := outputOf(d.set.Tables[table], to.Bytes(), stride)
	done, err := d.gatherPresent(ctx, table, rows, out, trace)
	if err != nil {
		return nil, err
	}
	return d.endedBatch(table, n, done.finish(ctx, d, table, n, out, trace), w), nil
}

// endedBatch returns a batch that has ended with err, and notifies w.
func (d *Device) endedBatch(table, rows int, err error, w Watcher) *Batch {
	b := &Batch{table: table, rows: rows}
	b.mu.settled, b.mu.err = true, err
	d.set.faults.add(err)
	if w != nil {
		w.End(err, time.Time{})
	}
	return b
}

// gather enqueues a batch by route r on stream s.
func (d *Device) gather(ctx context.Context, s device.Stream, r route, planned Launches, table int, rows RowNumbers, out device.Buffer, w Watcher, trace *Trace) (*Batch, error) {
	n := int(rows.Len())
	l, err := d.acquire(ctx, r, n)
	if err != nil {
		return nil, d.OrLost(err)
	}
	if err := l.begin(ctx, table); err != nil {
		d.release(l, nil)
		return nil, err
	}
	if l.route.absent {
		l.ctx = context.WithoutCancel(ctx) // the caller may end ctx while the batch runs
	}
	l.startTrace(trace, planned)
	if err := l.enqueueAny(s, table, rows, out); err != nil {
		l.abandon(s)
		d.release(l, nil)
		return nil, d.wrap(err, n, d.set.Tables[table])
	}
	return d.track(l, table, n, w), nil
}

// emptyBatch returns a batch without rows, and notifies w.
func emptyBatch(w Watcher) *Batch {
	b := &Batch{}
	b.mu.settled = true
	if w != nil {
		w.End(nil, time.Time{})
	}
	return b
}

// callersStream returns the stream of a handle, and whether it captures a graph. It returns an error if batches
// cannot be enqueued on the stream.
func (d *Device) callersStream(handle uintptr) (s device.Stream, capturing bool, err error) {
	if handle == perThreadStream {
		return nil, false, fmt.Errorf("cache: stream (%#x) must not be the per-thread default stream: goroutines have no thread of their own", handle)
	}
	if d.IsLost() {
		return nil, false, d.LostError()
	}
	if s, err = d.Device.WrapStream(handle); err != nil {
		return nil, false, d.OrLost(err)
	}
	if capturing, err = s.Capturing(); err != nil {
		return nil, false, d.OrLost(err)
	}
	return s, capturing, nil
}

// track adds the batch that lane l has enqueued to the batches in flight.
func (d *Device) track(l *lane, table, rows int, w Watcher) *Batch {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.mu.unused) == 0 {
		d.mu.unused = make([]Batch, 32)
	}
	b := &d.mu.unused[0]
	d.mu.unused = d.mu.unused[1:]
	b.table, b.rows, b.watcher, b.mu.lane = table, rows, w, l
	d.mu.flight = append(d.mu.flight, b)
	d.batches.Add(1)
	if l.trace == nil { // a trace reads the lists after the batch, so nobody may take them over
		d.mu.scratch.pass(l)
	}
	if d.board != nil {
		select {
		case d.enqueued <- struct{}{}:
		default:
		}
	}
	// Callers that wait for a lane must now poll for this batch. Callers that wait for lists may take over its lists.
	d.progress.notify()
	return b
}

// forgetLocked removes a batch from the batches in flight. It ignores nil. REQUIRES: d.mu is locked.
func (d *Device) forgetLocked(b *Batch) {
	if b != nil {
		d.mu.flight = slices.DeleteFunc(d.mu.flight, func(f *Batch) bool { return f == b })
		d.batches.Add(-1)
	}
}

// use returns the batch's lane, whose events the caller may then use, or nil if the batch is settled. The caller must
// call unuse unless the result is nil.
func (b *Batch) use() *lane {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.settled {
		return nil
	}
	b.mu.users++
	return b.mu.lane
}

func (b *Batch) unuse() {
	b.mu.Lock()
	b.mu.users--
	l := b.mu.lane
	last := b.mu.settled && b.mu.users == 0
	if last {
		b.mu.lane = nil
	}
	b.mu.Unlock()
	if last {
		l.owner.release(l, b)
	}
}

// Release gives back the memory of a batch in a captured graph. It waits for replays that run. No replay may begin
// afterwards. For other batches it does nothing.
func (b *Batch) Release() {
	for _, p := range b.parts {
		p.Release()
	}
	if b.captured != nil {
		b.captured.release()
	}
}

// Done reports whether the batch has finished, without waiting. Its error is the device's, never the batch's.
func (b *Batch) Done() (bool, error) {
	if b.captured != nil {
		return b.captured.done()
	}
	for _, p := range b.parts {
		if done, err := p.Done(); !done || err != nil {
			return done, err
		}
	}
	l := b.use()
	if l == nil {
		return true, nil
	}
	defer b.unuse()
	done, err := l.done.Passed()
	if err != nil {
		return false, b.wrap(l, err)
	}
	return done, nil
}

// join returns a batch that has finished when all the given ones have. Its error is the first of theirs.
func join(batches []*Batch) *Batch {
	switch len(batches) {
	case 0:
		return emptyBatch(nil)
	case 1:
		return batches[0]
	}
	b := &Batch{table: batches[0].table, parts: batches}
	b.mu.settled = true
	return b
}

// Wait blocks until the batch has finished, and returns its error. The first call settles the batch: it adds the
// batch's counters to the statistics.
func (b *Batch) Wait() error { return b.wait(false) }

// wait is Wait. passed says that the caller has seen the batch's event pass, which spares a driver call of 2 µs.
func (b *Batch) wait(passed bool) error {
	if b.captured != nil {
		return b.captured.wait()
	}
	if b.parts != nil {
		return firstError(b.parts)
	}
	if l := b.use(); l != nil {
		var failure error
		if !passed {
			failure = l.done.Synchronize() // without the lock, so that other calls need not wait
		}
		absent := l.answered()
		b.mu.Lock()
		first, at := !b.mu.settled, time.Time{}
		var ends []partEnd
		if first {
			b.mu.settled = true
			if failure != nil {
				b.mu.err = b.wrap(l, failure)
			}
			if l.route.tables != nil {
				ends, b.mu.err = l.tables.report(l, b.mu.err)
			} else if failure == nil {
				var o Outcome
				o.add(kernels.CountersView(l.result), 0)
				o.addAbsent(&absent, 0)
				b.mu.err = o.report(l, b.table, b.rows)
				at = l.tracePart(0, &absent)
			}
		}
		err := b.mu.err
		b.mu.Unlock()
		b.unuse()
		if first {
			l.owner.set.faults.add(err)
		}
		if first && b.watcher != nil {
			b.watcher.End(err, at)
			b.watcher = nil
		}
		for _, e := range ends {
			e.watcher.End(e.err, at)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.err
}

// Poll is Wait for a batch that has finished, or a captured one without running replays. For others it returns false
// at once.
func (b *Batch) Poll() (done bool, err error) {
	if b.captured != nil {
		return b.captured.poll()
	}
	if done, err := b.Done(); !done || err != nil {
		return false, err
	}
	return true, b.wait(true)
}

func (b *Batch) wrap(l *lane, err error) error {
	return l.owner.wrap(err, b.rows, l.owner.set.Tables[b.table])
}

// flight returns the batches in flight.
func (d *Device) flight() []*Batch {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.mu.flight)
}

// SettleFinished settles the batches of Enqueue that have finished. It waits for none, and makes no driver call for those that have not published their counters.
func (d *Device) SettleFinished() {
	for i := 0; d.batches.Load() > 0; {
		d.mu.Lock()
		if i >= len(d.mu.flight) {
			d.mu.Unlock()
			return
		}
		b := d.mu.flight[i]
		d.mu.Unlock()
		b.settleFinished()
		d.mu.Lock()
		if i < len(d.mu.flight) && d.mu.flight[i] == b { // not finished, or another goroutine is settling it
			i++
		}
		d.mu.Unlock()
	}
}

// SettleEnqueued settles batches of Enqueue as they finish, until stop is closed. A client of a shared cache
// runs it: the owner learns from the client's board alone which batches run, and the caller may never wait for its
// batch.
func (d *Device) SettleEnqueued(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-d.enqueued:
		}
		for pause := pollEpoch; d.batches.Load() > 0; pause = min(pause*5/4, maxSettlePause) {
			select {
			case <-stop:
				return
			case <-time.After(pause):
			}
			d.SettleFinished()
			if pause == maxSettlePause {
				d.settleFailed()
			}
		}
	}
}

// maxSettlePause is the longest pause of SettleEnqueued.
const maxSettlePause = 2 * time.Millisecond

// settleFinished settles the batch if it has published its counters and its last kernel has ended. Counters are published just before.
func (b *Batch) settleFinished() {
	l := b.use()
	if l == nil {
		return
	}
	passed, err := false, error(nil)
	if l.published() {
		passed, err = l.done.Passed()
	}
	b.unuse()
	if passed || err != nil {
		b.wait(passed)
	}
}

// settleFailed settles the batches that will never publish their counters because the device has failed. A failed device fails all of its events, so it asks
// for one of them: with dozens of batches in flight the driver, which answers one thread at a time, would keep Sharer's copies waiting.
func (d *Device) settleFailed() {
	for i, b := range d.flight() {
		if _, err := b.Done(); err == nil && i == 0 {
			return
		} else if err != nil {
			b.Wait()
		}
	}
}

// firstError waits for all the batches, and returns the first error among theirs.
func firstError(of []*Batch) (err error) {
	for _, b := range of {
		if e := b.Wait(); err == nil {
			err = e
		}
	}
	return err
}
