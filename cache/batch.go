package cache

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// GatherDevice is Gather for memory that the view's device addresses and a stream of the caller's: rows holds int64 row
// numbers, out takes the rows; both are device memory, or page-locked ([device.DeviceBuffer], [device.MappedBuffer]).
// stream is a CUstream of the device's primary context, 0 being the default stream.
//
// It enqueues the batch after the stream's work so far and returns; work enqueued afterwards finds out written. Nothing is
// synchronized, except that where more batches are under way than the device has lanes for (twice GOMAXPROCS) the oldest is
// waited for. ctx bounds the waiting for a lane.
//
// Row numbers outside the table are known only to the device: their rows are zeroed, and Wait reports them. A capturing
// stream is an error that wraps ErrCapturing.
func (v View) GatherDevice(ctx context.Context, stream uintptr, table int, rows, out device.Buffer) (*Batch, error) {
	d := v.device
	if err := d.cache.enter(); err != nil {
		return nil, err
	}
	defer d.cache.leave()
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
	s, err := d.device.WrapStream(stream)
	if err != nil {
		return nil, err
	}
	capturing, err := s.Capturing()
	if err != nil {
		return nil, err
	}
	if capturing {
		return nil, fmt.Errorf("%w: %#x", ErrCapturing, stream)
	}
	if n == 0 {
		return &Batch{settled: true}, nil
	}
	l, err := d.acquire(ctx)
	if err != nil {
		return nil, err
	}
	if err = l.reserve(int(n)); err == nil {
		err = l.enqueue(s, table, rows, out)
	}
	if err != nil {
		s.Synchronize()
		l.finish(nil)
		d.releaseLane(l)
		return nil, fmt.Errorf("cache: Gather of %d rows of table %s on device %d: %w", n, t.name, d.index, err)
	}
	b := &Batch{lane: l, table: t, rows: int(n)}
	d.lanes.Lock()
	d.lanes.flight = append(d.lanes.flight, b)
	d.lanes.Unlock()
	return b, nil
}

// Batch is a GatherDevice under way. It is safe for concurrent use. A batch that nobody waits for is settled sooner or
// later, its error unseen.
type Batch struct {
	mu      sync.Mutex
	lane    *lane // guarded by mu, as all below
	table   *table
	rows    int
	settled bool
	err     error
}

// Done says whether the batch has finished, without waiting.
func (b *Batch) Done() (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.settled {
		return true, nil
	}
	return b.lane.done.Passed()
}

// Wait blocks until the batch has finished and returns what was wrong with it: an error that wraps ErrRows or ErrCorrupt,
// or the device's.
func (b *Batch) Wait() error { return b.settle() }

// settle waits for the batch, counts it and gives its lane back, once.
func (b *Batch) settle() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.settled {
		return b.err
	}
	b.settled = true
	d := b.lane.owner
	if err := b.lane.done.Synchronize(); err != nil {
		b.err = fmt.Errorf("%w: Gather of %d rows of table %s on device %d: %w", ErrDevice, b.rows, b.table.name, d.index, err)
	} else {
		var o outcome
		o.add(kernels.CountersView(b.lane.result), 0)
		b.err = o.report(b.table, b.rows)
	}
	d.lanes.Lock()
	d.lanes.flight = slices.DeleteFunc(d.lanes.flight, func(f *Batch) bool { return f == b })
	d.lanes.Unlock()
	d.releaseLane(b.lane)
	return b.err
}
