package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
)

// Gather writes row rows[i] of the table to out[i × row bytes:], for every i. rows are row numbers in any order,
// duplicates allowed; out must be exactly len(rows) × row bytes long. It blocks until out is written. The devices take
// turns; On picks one.
//
// An index of no table is an error that wraps ErrTable. Row numbers outside the table give an error that wraps ErrRows and names the
// first one and their count; an output of the wrong size one that wraps ErrOutput. out is untouched then. ctx is checked before work
// begins; once begun, a batch is finished, since out is being written. When a device fails for good, another one serves the batch;
// On that device it is an error that wraps ErrDevice.
func (c *Cache) Gather(ctx context.Context, table int, rows []int64, out []byte) error {
	return gather(ctx, c, table, rows, out)
}

// Gather32 is Gather for row numbers of 32 bits.
func (c *Cache) Gather32(ctx context.Context, table int, rows []int32, out []byte) error {
	return gather(ctx, c, table, rows, out)
}

// GatherAsync is Gather that returns at once. rows and out must stay as they are until the Pending is done.
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

// gatherEntered gathers on any device that is not lost. REQUIRES: the cache is entered.
func gatherEntered[R read.RowNumber](ctx context.Context, c *Cache, table int, rows []R, out []byte) error {
	for {
		d := c.set.Next()
		err := gatherOn(ctx, c, d, table, rows, out)
		if err == nil || !errors.Is(err, ErrDevice) || !c.set.Survives(d) {
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

// checkTable returns an error that wraps ErrTable for indices of no table.
func (c *Cache) checkTable(table int) error {
	if table < 0 || table >= len(c.set.Tables) {
		return fmt.Errorf("%w (%d) must be 0 to %d", ErrTable, table, len(c.set.Tables)-1)
	}
	return nil
}

// On returns the cache as seen from device i, 0 ≤ i < Devices(): its Gathers run there. It panics for other i.
func (c *Cache) On(i int) View { return View{c, c.set.Devices[i]} }

// View is a cache whose Gathers run on one device.
type View struct {
	cache  *Cache
	device *read.Device
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
	return gatherOn(ctx, v.cache, v.device, table, rows, out)
}

// GatherAsync is Cache.GatherAsync on the view's device.
func (v View) GatherAsync(ctx context.Context, table int, rows []int64, out []byte) *Pending {
	return v.cache.async(ctx, func() error { return gatherOn(ctx, v.cache, v.device, table, rows, out) })
}

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
	o := c.watch.Gather(ctx, v.device.Index, table, int(min(rows.Len(), read.MaxBatch)))
	b, err := v.device.GatherDevice(ctx, stream, table, rows, out, o.Watcher(), o.Trace())
	if err != nil {
		o.End(err)
		return nil, err
	}
	return (*Batch)(b), nil
}

// Batch is a GatherDevice under way. It is safe for concurrent use. A batch that nobody waits for is settled sooner or
// later, its error unseen.
type Batch read.Batch

// Done says whether the batch has finished, without waiting. Its error is the device's only, and nil once the batch is
// settled: what was wrong with the batch, Wait returns.
func (b *Batch) Done() (bool, error) { return (*read.Batch)(b).Done() }

// Wait blocks until the batch has finished and returns what was wrong with it: an error that wraps ErrRows or ErrCorrupt,
// or the device's.
func (b *Batch) Wait() error { return (*read.Batch)(b).Wait() }

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
