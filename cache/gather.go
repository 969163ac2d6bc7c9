package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
)

// Gather writes row rows[i] of the table to out[i × row bytes:], for every i. rows are row numbers in any order, with duplicates
// allowed. out must be exactly len(rows) × row bytes long. Gather blocks until out is written. The devices take turns; use On to
// choose one.
//
// The error wraps ErrTable for a table index out of range, ErrRows for row numbers outside the table (the text has the first one and
// their count), and ErrOutput for an output of the wrong size. out is untouched then. ctx is checked before work begins; a batch that has
// begun is finished. If a device fails for good, another one serves the batch; Gather on a View returns an error that wraps ErrDevice.
func (c *Cache) Gather(ctx context.Context, table int, rows []int64, out []byte) error {
	return gather(ctx, c, table, rows, out)
}

// Gather32 is Gather for row numbers of 32 bits.
func (c *Cache) Gather32(ctx context.Context, table int, rows []int32, out []byte) error {
	return gather(ctx, c, table, rows, out)
}

// GatherAsync starts a Gather and returns. rows and out must not be changed until the Pending is done.
func (c *Cache) GatherAsync(ctx context.Context, table int, rows []int64, out []byte) *Pending {
	return c.async(ctx, func() error { return gatherEntered(ctx, c, table, rows, out) })
}

func gather[R read.RowNumber](ctx context.Context, c *Cache, table int, rows []R, out []byte) error {
	if err := c.enter(); err != nil {
		return c.watch.Refused(err)
	}
	defer c.leave()
	return gatherEntered(ctx, c, table, rows, out)
}

// gatherEntered gathers on any device that is not lost. REQUIRES: Cache.enter has returned nil.
func gatherEntered[R read.RowNumber](ctx context.Context, c *Cache, table int, rows []R, out []byte) error {
	set, pinned := c.pin()
	defer unpin(pinned)
	for {
		d := set.Next()
		err := gatherOn(ctx, c, d, table, rows, out)
		if err == nil || !errors.Is(err, ErrDevice) || !set.Survives(d) {
			return err
		}
	}
}

func gatherOn[R read.RowNumber](ctx context.Context, c *Cache, d *read.Device, table int, rows []R, out []byte) error {
	if err := c.checkTable(table); err != nil {
		return c.watch.Refused(err)
	}
	o := c.watch.Gather(ctx, d.Index, table, len(rows))
	err := read.Gather(ctx, d, table, rows, out, o.Trace())
	o.End(err)
	return err
}

// checkTable returns an error that wraps ErrTable for a table index out of range.
func (c *Cache) checkTable(table int) error {
	if table < 0 || table >= len(c.set.Tables) {
		return fmt.Errorf("%w (%d) must be 0 to %d", ErrTable, table, len(c.set.Tables)-1)
	}
	return nil
}

// On returns a view of the cache whose Gathers run on device i, 0 ≤ i < Devices(). It panics for other i.
func (c *Cache) On(i int) View {
	_ = c.set.Devices[i]
	return View{c, i}
}

// View is a cache whose Gathers run on one device.
type View struct {
	cache  *Cache
	device int
}

// Gather is Cache.Gather on the view's device.
func (v View) Gather(ctx context.Context, table int, rows []int64, out []byte) error {
	return gatherView(ctx, v, table, rows, out)
}

// Gather32 is Cache.Gather32 on the view's device.
func (v View) Gather32(ctx context.Context, table int, rows []int32, out []byte) error {
	return gatherView(ctx, v, table, rows, out)
}

func gatherView[R read.RowNumber](ctx context.Context, v View, table int, rows []R, out []byte) error {
	if err := v.cache.enter(); err != nil {
		return v.cache.watch.Refused(err)
	}
	defer v.cache.leave()
	return gatherViewEntered(ctx, v, table, rows, out)
}

// gatherViewEntered gathers on the view's device. REQUIRES: Cache.enter has returned nil.
func gatherViewEntered[R read.RowNumber](ctx context.Context, v View, table int, rows []R, out []byte) error {
	set, pinned := v.cache.pin()
	defer unpin(pinned)
	return gatherOn(ctx, v.cache, set.Devices[v.device], table, rows, out)
}

// GatherAsync is Cache.GatherAsync on the view's device.
func (v View) GatherAsync(ctx context.Context, table int, rows []int64, out []byte) *Pending {
	return v.cache.async(ctx, func() error { return gatherViewEntered(ctx, v, table, rows, out) })
}

// GatherDevice enqueues a Gather on a stream of the caller. rows holds int64 row numbers and out receives the rows. Both are memory that
// the view's device addresses: device memory or page-locked memory ([device.DeviceBuffer], [device.MappedBuffer]). stream is a CUstream
// of the device's primary context; 0 is the default stream.
//
// The batch runs after the work enqueued on the stream so far, and before work enqueued later. GatherDevice does not wait for the device,
// except that the first batches of a size allocate memory, and that it waits for another batch if twice GOMAXPROCS batches are under way
// on the device, not counting up to 128 that wait for rows of a table of [FromPages]. ctx bounds that waiting.
//
// Row numbers are checked on the device. Rows for numbers outside the table are zeroed, and Wait reports them. The error of GatherDevice
// wraps ErrOutput for an output of the wrong size. rows and out must stay allocated until the Batch is done, and only work enqueued later on
// the stream may change rows before then.
//
// On a stream that captures a graph the batch becomes a part of the graph: each replay reads the row numbers that are in rows then, and
// returns the rows as the cache has them then, whatever has changed since. The GPU fetches the misses alone. Nothing of the host runs when a
// replay begins or ends. The batch has a few kilobytes of memory of its own, until all graphs that it is a part of are destroyed, or
// [Batch.Release] is called. Replays of it must not overlap: a graph that is instantiated twice, or cloned, is replayed by one at a time. A
// graph must not be replayed after Close. Rows of 8 KiB and more can be captured of resident tables only: else the error wraps ErrCapturing, and the capture goes on. Of an
// attached cache see [Attach].
//
// A replay of a table of [FromPages] waits for rows that neither slab nor host tier holds, as other batches do, while the host reads them. Those that
// cannot be read are zeros, and Wait returns an error that wraps ErrCold. [Cache.Prefetch] before the replay is the way to have none. The batch has
// page-locked memory of its own for such rows.
func (v View) GatherDevice(ctx context.Context, stream uintptr, table int, rows, out device.Buffer) (*Batch, error) {
	return v.gatherDevice(ctx, stream, table, read.RowNumbers{Buffer: rows}, out)
}

// GatherDevice32 is GatherDevice for int32 row numbers.
func (v View) GatherDevice32(ctx context.Context, stream uintptr, table int, rows, out device.Buffer) (*Batch, error) {
	return v.gatherDevice(ctx, stream, table, read.RowNumbers{Buffer: rows, Int32: true}, out)
}

func (v View) gatherDevice(ctx context.Context, stream uintptr, table int, rows read.RowNumbers, out device.Buffer) (*Batch, error) {
	c := v.cache
	if err := c.enter(); err != nil {
		return nil, c.watch.Refused(err)
	}
	defer c.leave()
	if err := c.checkTable(table); err != nil {
		return nil, c.watch.Refused(err)
	}
	set, pinned := c.pin()
	defer unpin(pinned)
	o := c.watch.Gather(ctx, v.device, table, int(min(rows.Len(), read.MaxBatch)))
	b, err := set.Devices[v.device].GatherDevice(ctx, stream, table, rows, out, o.Watcher(), o.Trace())
	if err != nil {
		o.End(err)
		return nil, err
	}
	return (*Batch)(b), nil
}

// Batch is a GatherDevice under way. It is safe for concurrent use. Wait need not be called; the error of such a batch is lost.
//
// Of a batch in a captured graph Done reports whether no replay reads the cache. Wait waits for the replays that have begun, and returns what was wrong
// with those since the last Wait. Outputs are complete in the order of the stream that the graph runs on, as after any kernel: a pooled batch may still add up.
type Batch read.Batch

// Done reports whether the batch has finished, without waiting. An error is the device's; errors of the batch are returned by Wait.
func (b *Batch) Done() (bool, error) { return (*read.Batch)(b).Done() }

// Poll is Wait without waiting: of a batch that has not finished, or of which a replay runs, it returns false. An error with false is the
// device's.
func (b *Batch) Poll() (done bool, err error) { return (*read.Batch)(b).Poll() }

// Release gives back what a batch in a captured graph holds. It waits for replays that run. The graph must not be replayed afterwards. Without it
// the memory is given back some time after the graph, and what was instantiated of it, is destroyed. For other batches Release does nothing.
func (b *Batch) Release() { (*read.Batch)(b).Release() }

// Wait blocks until the batch has finished. It returns an error that wraps ErrRows, ErrCorrupt or ErrCold, the device's error, or nil.
func (b *Batch) Wait() error { return (*read.Batch)(b).Wait() }

// Check returns what was wrong with batches of GatherDevice, and with replays of captured ones, that have ended since the last Check, or nil: an
// error that wraps ErrRows, ErrCorrupt, ErrCold or ErrDevice, of the first batch that had one, with the number of the others. It is for programs that do not
// wait for their batches. With wait, it first waits for all that are under way. In an attached cache it then also wraps ErrOwner, if a batch has been replayed
// that was captured for an owner in whose place there is another one. Without wait, Check takes less than a microsecond, and what was wrong with a replay is
// returned some milliseconds after it has ended.
func (c *Cache) Check(wait bool) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	set, pinned := c.pin()
	defer unpin(pinned)
	err := set.Faults(wait)
	if err == nil && wait && c.remote != nil {
		err = c.remote.checkOld()
	}
	return err
}

// Pending is a Gather under way. It is safe for concurrent use.
type Pending struct {
	done chan struct{}
	err  error
}

// Done returns a channel that is closed when the Gather has returned.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Wait blocks until the Gather has returned and returns its error.
func (p *Pending) Wait() error {
	<-p.done
	return p.err
}

// async runs a Gather in a goroutine.
func (c *Cache) async(ctx context.Context, gather func() error) *Pending {
	p := &Pending{done: make(chan struct{})}
	if err := c.enter(); err != nil {
		p.err = c.watch.Refused(err)
		close(p.done)
		return p
	}
	go func() {
		pprof.SetGoroutineLabels(c.watch.Labels(ctx, "gather"))
		defer c.leave()
		defer close(p.done)
		p.err = gather()
	}()
	return p
}
