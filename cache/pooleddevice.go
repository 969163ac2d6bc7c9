package cache

import (
	"context"
	"fmt"

	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
)

// PooledDeviceBatch is a pooled batch of one of several tables, between memory that a device addresses.
type PooledDeviceBatch struct {
	Table int
	// Rows are row numbers: int32 if Rows32 is set, else int64.
	Rows    device.Buffer
	Rows32  bool
	Pooling Pooling
	// Out receives the output.
	Out device.Buffer
}

// GatherPooledDevice enqueues a GatherPooled on a stream of the caller, as GatherDevice does a Gather. rows, the Pooling's DeviceOffsets and
// DeviceWeights, and out are memory that the view's device addresses; the Pooling's Offsets and Weights must be empty. With LastOffset
// the number of bags is one less than that of offsets.
//
// Row numbers and offsets are checked on the device. A row number outside the table is left out. If offsets are bad, the output is undefined.
// Batch.Wait reports both.
//
// Of tables of pages, GPUs gather the rows to device memory first, up to 256 MiB and 262,144 rows at a time. A captured batch has memory for all of its rows, at most
// 1 GiB: for more the error wraps ErrPooling. Rows that cannot be read are added as zeros, and Wait returns an error that wraps ErrCold.
func (v View) GatherPooledDevice(ctx context.Context, stream uintptr, table int, rows device.Buffer, p Pooling, out device.Buffer) (*Batch, error) {
	return v.GatherPooledTablesDevice(ctx, stream, []PooledDeviceBatch{{Table: table, Rows: rows, Pooling: p, Out: out}})
}

// GatherPooledDevice32 is GatherPooledDevice for int32 row numbers.
func (v View) GatherPooledDevice32(ctx context.Context, stream uintptr, table int, rows device.Buffer, p Pooling, out device.Buffer) (*Batch, error) {
	return v.GatherPooledTablesDevice(ctx, stream, []PooledDeviceBatch{{Table: table, Rows: rows, Rows32: true, Pooling: p, Out: out}})
}

// GatherAsDevice is GatherAs between memory that the view's device addresses, enqueued on a stream of the caller as GatherDevice does a Gather. Rows for numbers
// outside the table are zeros.
func (v View) GatherAsDevice(ctx context.Context, stream uintptr, table int, rows device.Buffer, as dtype.Type, out device.Buffer) (*Batch, error) {
	return v.GatherPooledDevice(ctx, stream, table, rows, Pooling{Bag: 1, Output: as}, out)
}

// GatherAsDevice32 is GatherAsDevice for int32 row numbers.
func (v View) GatherAsDevice32(ctx context.Context, stream uintptr, table int, rows device.Buffer, as dtype.Type, out device.Buffer) (*Batch, error) {
	return v.GatherPooledDevice32(ctx, stream, table, rows, Pooling{Bag: 1, Output: as}, out)
}

// GatherPooledTablesDevice is GatherPooledDevice for several batches together, of several tables or of one: on GPUs those that need no launches of their own share one
// launch for all tables whose rows have one type, codec and, roughly, length. The Batch is that of all. If one of them has bad arguments, nothing runs. Batch.Wait returns what was
// wrong with the first that failed, and Check counts all. On a stream that captures a graph all become a part of the graph.
//
// Of tables that are resident, that are read from pages or whose rows have 8 KiB or more, bags that Pooling.Bags chooses have the call wait for the stream. In a graph such
// bags are an error that wraps ErrCapturing, for these tables and in an attached cache.
func (v View) GatherPooledTablesDevice(ctx context.Context, stream uintptr, batches []PooledDeviceBatch) (*Batch, error) {
	c := v.cache
	if err := c.enter(); err != nil {
		return nil, c.watch.Refused(err)
	}
	defer c.leave()
	set, pinned := c.pin()
	defer unpin(pinned)
	parts := make([]read.PooledPart, len(batches))
	for i := range batches {
		b := &batches[i]
		err := c.checkTable(b.Table)
		if err == nil {
			parts[i], err = b.part(set.Tables[b.Table], set.Devices[v.device].Device)
		}
		if err != nil && len(batches) > 1 {
			err = fmt.Errorf("batch %d: %w", i, err)
		}
		if err != nil {
			return nil, c.watch.Refused(err)
		}
	}
	watched := make([]observe.Gather, len(batches))
	for i := range parts {
		p := &parts[i]
		watched[i] = c.watch.Gather(ctx, v.device, p.Table, p.Pool.Rows)
		p.Watcher, p.Trace = watched[i].Watcher(), watched[i].Trace()
	}
	batch, err := set.Devices[v.device].GatherPooledTables(ctx, stream, parts)
	if err != nil {
		for i := range watched {
			watched[i].End(err)
		}
		return nil, err
	}
	return (*Batch)(batch), nil
}

// part checks a batch.
func (b *PooledDeviceBatch) part(t *read.Table, on device.Device) (read.PooledPart, error) {
	r := read.PooledPart{Table: b.Table, Rows: read.RowNumbers{Buffer: b.Rows, Int32: b.Rows32}, Out: b.Out}
	p, n := &b.Pooling, int(min(r.Rows.Len(), read.MaxBatch+1))
	pool := p.common(n)
	pool.Offsets, pool.Narrow, pool.Weights = p.DeviceOffsets, p.Offsets32, p.DeviceWeights
	pool.Bags = p.bags(n, pool.NumOffsets())
	if len(p.Offsets) > 0 || len(p.Weights) > 0 {
		return r, fmt.Errorf("%w: offsets and weights must be memory of the device", ErrPooling)
	}
	if err := p.check(pool.NumOffsets(), &pool); err != nil {
		return r, err
	}
	if onDevice := pool.Offsets.Addr() != 0; onDevice { // the device looks at them
		pool.Offsets = device.DeviceBuffer(pool.Offsets.Addr(), pool.Offsets.Size())
	}
	p.window(&pool)
	r.Pool = pool
	if !on.NeedsStaging() {
		r.OwnWindow()
	}
	want, err := read.CheckPooled(t, &r.Pool)
	if err != nil {
		return r, err
	}
	return r, read.CheckPooledOut(t, &r.Pool, b.Out.Size(), want)
}
