package cache

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// perThreadStream is CUDA's handle of the calling thread's default stream.
const perThreadStream = 2

// GatherDevice is Gather for memory that the view's device addresses and a stream of the caller's: rows holds int64 row
// numbers, out takes the rows; both are device memory, or page-locked ([device.DeviceBuffer], [device.MappedBuffer]).
// stream is a CUstream of the device's primary context, 0 being the default stream.
//
// It enqueues the batch after the stream's work so far and returns; work enqueued afterwards finds out written. Nothing is
// synchronized, except that the first batches of a size allocate, and that where as many batches are under way as the device
// has lanes for (twice GOMAXPROCS) one of them is waited for. ctx bounds that waiting.
//
// Row numbers outside the table are known only to the device: their rows are zeroed, and Wait reports them. A capturing
// stream is an error that wraps ErrCapturing, an output of the wrong size one that wraps ErrOutput. rows and out must stay
// allocated until the Batch is done; rows must not change before then, but for work enqueued on the stream afterwards.
func (v View) GatherDevice(ctx context.Context, stream uintptr, table int, rows, out device.Buffer) (*Batch, error) {
	d := v.device
	if err := d.cache.enter(); err != nil {
		return nil, d.cache.telemetry.refused(err)
	}
	defer d.cache.leave()
	o := d.observe(ctx, table, int(min(rows.Size()/8, maxBatch)))
	b, err := d.gatherDevice(ctx, stream, table, rows, out, &o)
	if err != nil {
		o.end(err)
	}
	return b, err
}

// gatherDevice is GatherDevice. The batch ends what is observed of it. REQUIRES: the cache is entered.
func (d *deviceState) gatherDevice(ctx context.Context, stream uintptr, table int, rows, out device.Buffer, o *observed) (*Batch, error) {
	if table < 0 || table >= len(d.cache.tables) {
		return nil, fmt.Errorf("cache: table (%d) must be 0 to %d", table, len(d.cache.tables)-1)
	}
	t := d.cache.tables[table]
	n := rows.Size() / 8
	switch want := n * int64(t.tier.RowBytes()); {
	case rows.Size()%8 != 0 || rows.Addr()%8 != 0:
		return nil, fmt.Errorf("cache: row numbers (%d bytes at %#x) must be a multiple of 8 bytes, aligned to 8", rows.Size(), rows.Addr())
	case n > maxBatch:
		return nil, fmt.Errorf("cache: batch (%d rows) must have at most %d", n, maxBatch)
	case out.Size() != want:
		return nil, fmt.Errorf("%w: %d bytes for %d rows of table %s must be %d", ErrOutput, out.Size(), n, t.name, want)
	}
	if n > 0 && d.slab.Bytes() == nil && (rows.Addr() == 0 || out.Addr() == 0) {
		return nil, fmt.Errorf("cache: row numbers and output (at %#x and %#x) must be memory that device %d addresses", rows.Addr(), out.Addr(), d.index)
	}
	if stream == perThreadStream {
		return nil, fmt.Errorf("cache: stream (%#x) must not be the per-thread default stream: goroutines have no thread of their own", stream)
	}
	if d.isLost() {
		return nil, d.lostError()
	}
	s, err := d.device.WrapStream(stream)
	if err != nil {
		return nil, d.orLost(err)
	}
	capturing, err := s.Capturing()
	if err != nil {
		return nil, d.orLost(err)
	}
	if capturing {
		return nil, fmt.Errorf("%w: %#x", ErrCapturing, stream)
	}
	if n == 0 {
		b := &Batch{}
		b.mu.settled = true
		o.end(nil)
		return b, nil
	}
	l, err := d.acquire(ctx, d.table(table), int(n), o.traced != nil)
	if err != nil {
		return nil, d.orLost(err)
	}
	if err := l.begin(ctx); err != nil {
		d.releaseLane(l, nil)
		return nil, err
	}
	l.trace(o.traced)
	if err := l.enqueue(s, table, rows, out); err != nil {
		l.abandon(s)
		d.releaseLane(l, nil)
		return nil, d.wrap(err, int(n), t)
	}
	d.lanes.Lock()
	defer d.lanes.Unlock()
	if len(d.lanes.unused) == 0 {
		d.lanes.unused = make([]Batch, 32)
	}
	b := &d.lanes.unused[0]
	d.lanes.unused = d.lanes.unused[1:]
	b.table, b.rows, b.observed, b.mu.lane = table, int(n), *o, l
	d.lanes.flight = append(d.lanes.flight, b)
	d.changedLocked()
	return b, nil
}

// Batch is a GatherDevice under way. It is safe for concurrent use. A batch that nobody waits for is settled sooner or
// later, its error unseen.
type Batch struct {
	table, rows int
	observed    observed // ended by whoever settles the batch

	mu struct {
		sync.Mutex
		lane    *lane // nil once it is given back
		users   int   // calls that look at the lane's events; the last one gives the lane back
		settled bool
		err     error
	}
}

// use returns the batch's lane for a look at its events, or nil when the batch is settled. unuse ends it.
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
		l.owner.releaseLane(l, b)
	}
}

// published says whether the batch is finished or about to be, without a call of the driver. It need not say so of one that
// is settled.
func (b *Batch) published() bool {
	l := b.use()
	if l == nil {
		return false
	}
	defer b.unuse()
	return l.published()
}

// Done says whether the batch has finished, without waiting. Its error is the device's only, and nil once the batch is
// settled: what was wrong with the batch, Wait returns.
func (b *Batch) Done() (bool, error) {
	l := b.use()
	if l == nil {
		return true, nil
	}
	defer b.unuse()
	done, err := l.done.Passed()
	if err != nil {
		return false, l.wrap(err, b)
	}
	return done, nil
}

// Wait blocks until the batch has finished and returns what was wrong with it: an error that wraps ErrRows or ErrCorrupt,
// or the device's.
func (b *Batch) Wait() error { return b.settle() }

// settle waits for the batch and counts it, once.
func (b *Batch) settle() error {
	if l := b.use(); l != nil {
		failure := l.done.Synchronize() // not under the lock: others may ask meanwhile
		b.mu.Lock()
		first, at := !b.mu.settled, time.Time{}
		if first {
			b.mu.settled = true
			if failure != nil {
				b.mu.err = l.wrap(failure, b)
			} else {
				var o outcome
				o.add(kernels.CountersView(l.result), 0)
				b.mu.err = o.report(l.owner, b.table, b.rows)
				at = l.traceDone(0)
			}
		}
		err := b.mu.err
		b.mu.Unlock()
		b.unuse()
		if first {
			b.observed.endAt(err, at)
			b.observed = observed{}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.err
}

func (l *lane) wrap(err error, b *Batch) error {
	return l.owner.wrap(err, b.rows, l.owner.cache.tables[b.table])
}
