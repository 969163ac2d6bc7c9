package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"

	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/reduce"
)

// Request is a batch: which rows of a table are read, where to, and what is made of them. With Table, Rows and Out it copies row Rows[i] to
// Out[i × row bytes:], for every i.
type Request struct {
	Table int
	// Rows are row numbers in any order, with duplicates allowed. Rows32 is used if Rows is nil; one of them must be.
	Rows   []int64
	Rows32 []int32
	// Out receives the output. It must be exactly as long: the rows, or the bags of Pool, one after the other, and with Stride what lies between them.
	Out []byte

	// DeviceRows and DeviceOut take the places of Rows and Out in View.Enqueue: memory that the device addresses, device memory or page-locked memory
	// ([device.DeviceBuffer], [device.MappedBuffer]). Row numbers are int32 if DeviceRows32 is set, else int64.
	DeviceRows, DeviceOut device.Buffer
	DeviceRows32          bool

	// As is the element type of the output: float32, float16 or bfloat16, for tables of these types and of float8. Values are rounded to nearest even. What is too large
	// becomes an infinity; signs of zeros stay, and every NaN becomes the same one. Default: rows are copied; sums have the table's type, of float8 values float32.
	As dtype.Type
	// Float8 says what the bytes of a row are, if they are float8 values. Without Values they are what the table's type says: float8_e4m3fn and float8_e5m2 are
	// values without scales, and rows of two parts, such as float8_e4m3fn*64,float8_e8m0fnu*2, are values and their scales. Only with As or Pool.
	Float8 Float8
	// Stride is the distance in bytes from one output to the next one's. Default: they lie back to back. Bytes between them stay as they are.
	Stride int64
	// Pool, unless nil, adds up the rows of each bag.
	Pool *Pooling
}

// Float8 says what the bytes of the rows of a table of uint8, or of float8 without scales, are: float8 values, then, unless Block is 0, a scale for
// each Block of them. An element is value × scale × Factor, as float32, each product rounded to nearest even.
type Float8 struct {
	Values dtype.Type // dtype.Float8E4M3FN or Float8E5M2
	Scales dtype.Type // dtype.Float8E8M0FNU (bytes: a power of two; 255 is a NaN) or Float32 (little-endian); none if Block is 0
	Block  int        // values that share a scale, a multiple of 8; 0: there are no scales
	Factor float32    // multiplies all elements; default 1
}

// plain says whether rows are copied as they are.
func (r *Request) plain() bool {
	return r.Pool == nil && r.As == dtype.Invalid
}

// checkPlain returns an error for fields that say how rows are converted, in a request that copies them.
func (r *Request) checkPlain() error {
	if r.plain() && r.Float8 != (Float8{}) {
		return fmt.Errorf("%w: Float8 (%+v) must come with As or Pool", ErrPooling, r.Float8)
	}
	return nil
}

// rows returns the number of rows in Go memory.
func (r *Request) rows() int {
	if r.Rows != nil {
		return len(r.Rows)
	}
	return len(r.Rows32)
}

// anyDevice is for requests that any device may serve.
const anyDevice = -1

// Gather reads rows to memory of the host, and returns when all outputs are written. The devices take turns; use On to choose one. Several requests run at the same
// time. Sums are taken in float32, in an order that is the same for every run, device and machine (docs/design.md, Pooling), and rounded to nearest even.
//
// The error wraps ErrTable for a table index out of range, ErrRows for row numbers outside the table (the text has the first one and their count),
// ErrOutput for an output of the wrong size and for a Stride that is shorter than a row, and ErrPooling for a Pool, As, Stride of sums or Float8 that does not fit. No output is touched then. ctx is checked before work begins; a batch
// that has begun is finished. If a device fails for good, another one serves the batch; Gather on a View returns an error that wraps ErrDevice.
//
// Rows of tables of pages that are added up are decoded to host memory first, up to 32 MiB at a time, or 1,024 rows if they are longer; after an error only a part of
// the output has been written.
func (c *Cache) Gather(ctx context.Context, requests ...Request) error {
	return c.gather(ctx, anyDevice, requests)
}

// GatherAsync starts a Gather and returns. Row numbers, outputs, and each Pool with its Offsets and Weights must not be changed until the Pending is done.
func (c *Cache) GatherAsync(ctx context.Context, requests ...Request) *Pending {
	return c.gatherAsync(ctx, anyDevice, requests)
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
func (v View) Gather(ctx context.Context, requests ...Request) error {
	return v.cache.gather(ctx, v.device, requests)
}

// GatherAsync is Cache.GatherAsync on the view's device.
func (v View) GatherAsync(ctx context.Context, requests ...Request) *Pending {
	return v.cache.gatherAsync(ctx, v.device, requests)
}

func (c *Cache) gather(ctx context.Context, device int, requests []Request) error {
	if err := c.enter(); err != nil {
		return c.watch.Refused(err)
	}
	defer c.leave()
	return c.gatherEntered(ctx, device, requests)
}

func (c *Cache) gatherAsync(ctx context.Context, device int, requests []Request) *Pending {
	p := &Pending{done: make(chan struct{})}
	if err := c.enter(); err != nil {
		p.err = c.watch.Refused(err)
		close(p.done)
		return p
	}
	requests = slices.Clone(requests)
	go func() {
		pprof.SetGoroutineLabels(c.watch.Labels(ctx, "gather"))
		defer c.leave()
		defer close(p.done)
		p.err = c.gatherEntered(ctx, device, requests)
	}()
	return p
}

// gatherEntered gathers. REQUIRES: Cache.enter has returned nil.
func (c *Cache) gatherEntered(ctx context.Context, device int, requests []Request) error {
	set, pinned := c.pin()
	defer unpin(pinned)
	if len(requests) != 1 {
		return c.gatherSeveral(ctx, set, device, requests)
	}
	p, err := c.checked(set, &requests[0])
	if err != nil {
		return c.watch.Refused(err)
	}
	return c.run(ctx, set, device, &p)
}

// part is a request whose arguments have been checked. Row numbers and output of one that copies rows are checked later, by check; checked says that this is done.
type part struct {
	table  int
	n      int // rows
	rows   []int64
	rows32 []int32 // if rows is nil
	out    []byte
	stride int64         // of rows that are copied
	pool   *reduce.Batch // nil: rows are copied

	checked bool
}

// check checks row numbers and output, unless that has been done: all row numbers are looked at.
func (p *part) check(t *read.Table) (err error) {
	switch {
	case p.checked:
	case p.rows == nil:
		err = read.CheckGather(t, p.rows32, p.out, p.stride)
	default:
		err = read.CheckGather(t, p.rows, p.out, p.stride)
	}
	p.checked = err == nil
	return err
}

func (c *Cache) checked(set *read.Set, r *Request) (p part, err error) {
	if err := c.checkTable(r.Table); err != nil {
		return p, err
	}
	if err := r.checkHost(); err != nil {
		return p, err
	}
	p = part{table: r.Table, rows: r.Rows, rows32: r.Rows32, out: r.Out, stride: r.Stride, checked: true}
	switch t := set.Tables[r.Table]; {
	case r.plain():
		p.checked = false
	case p.rows == nil:
		p.pool, p.rows32, err = checkPooled(t, p.rows32, r)
	default:
		p.pool, p.rows, err = checkPooled(t, p.rows, r)
	}
	if p.n = len(p.rows); p.rows == nil {
		p.n = len(p.rows32)
	}
	return p, err
}

// checkHost returns an error for fields that are for View.Enqueue, and for those that say how rows are converted in a request that copies them.
func (r *Request) checkHost() error {
	switch p := r.pooling(); {
	case r.DeviceRows.Size() > 0 || r.DeviceOut.Size() > 0:
		return fmt.Errorf("%w: row numbers and output of a Gather must be memory of the host, not of a device", ErrOutput)
	case r.Rows != nil && r.Rows32 != nil:
		return fmt.Errorf("%w: Rows32 (%d row numbers) must be nil, as Rows has row numbers", ErrRows, len(r.Rows32))
	case r.DeviceRows32:
		return fmt.Errorf("%w: DeviceRows32 (true) must be false in a Gather: Rows32 has row numbers of int32", ErrOutput)
	case p.DeviceOffsets.Size() > 0:
		return fmt.Errorf("%w: DeviceOffsets (%d bytes) must be empty in a Gather: it takes Offsets", ErrPooling, p.DeviceOffsets.Size())
	case p.DeviceWeights.Size() > 0:
		return fmt.Errorf("%w: DeviceWeights (%d bytes) must be empty in a Gather: it takes Weights", ErrPooling, p.DeviceWeights.Size())
	}
	return r.checkPlain()
}

// checkTable returns an error that wraps ErrTable for a table index out of range.
func (c *Cache) checkTable(table int) error {
	if table < 0 || table >= len(c.set.Tables) {
		return fmt.Errorf("%w (%d) must be 0 to %d", ErrTable, table, len(c.set.Tables)-1)
	}
	return nil
}

// run runs a batch on a device, or on one after the other until one has served it that is not lost.
func (c *Cache) run(ctx context.Context, set *read.Set, device int, p *part) error {
	for {
		d := (*read.Device)(nil)
		if device != anyDevice {
			d = set.Devices[device]
		} else {
			d = set.Next()
		}
		o := c.watch.Gather(ctx, d.Index, p.table, p.n)
		err := p.check(set.Tables[p.table])
		switch {
		case err != nil:
		case p.pool == nil && p.rows == nil:
			err = read.Gather(ctx, d, p.table, p.rows32, p.out, p.stride, o.Trace())
		case p.pool == nil:
			err = read.Gather(ctx, d, p.table, p.rows, p.out, p.stride, o.Trace())
		case p.rows == nil:
			err = read.GatherPooled(ctx, d, p.table, p.rows32, p.pool, p.out, o.Trace())
		default:
			err = read.GatherPooled(ctx, d, p.table, p.rows, p.pool, p.out, o.Trace())
		}
		o.End(err)
		if err == nil || device != anyDevice || !errors.Is(err, ErrDevice) || !set.Survives(d) {
			return err
		}
	}
}

// gatherSeveral checks all requests before it runs some of them at a time.
func (c *Cache) gatherSeveral(ctx context.Context, set *read.Set, device int, requests []Request) error {
	parts := make([]part, len(requests))
	for i := range requests {
		p, err := c.checked(set, &requests[i])
		if err == nil {
			err = p.check(set.Tables[p.table])
		}
		if err != nil {
			return c.watch.Refused(fmt.Errorf("batch %d: %w", i, err))
		}
		parts[i] = p
	}
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range parts {
		free <- struct{}{}
		if ctx.Err() != nil {
			errs[i] = ctx.Err()
			break
		}
		wg.Go(func() {
			defer func() { <-free }()
			if err := c.run(ctx, set, device, &parts[i]); err != nil {
				errs[i] = fmt.Errorf("batch %d: %w", i, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Enqueue enqueues Gathers between memory that the view's device addresses, DeviceRows and DeviceOut, on a stream of the caller: a CUstream of the device's
// primary context; 0 is the default stream. Bags have DeviceOffsets and DeviceWeights; with LastOffset there is one offset more than bags. The Batch is for all requests.
//
// They run after the work enqueued on the stream so far, and before work enqueued later. Enqueue does not wait for the device,
// except that the first batches of a size allocate memory, and that it waits for another batch if twice GOMAXPROCS batches are under way
// on the device, not counting, unless the cache is attached, up to 128 that wait for rows of a table of [FromPages]. ctx bounds that waiting. On GPUs requests that sum or convert rows share one launch for all tables whose rows have one type, codec and, roughly, length.
//
// Row numbers and offsets are checked on the device, and Wait reports bad ones, of one request if several have some. Rows for numbers outside the table are zeroed;
// sums leave them out. If offsets are bad, the output is undefined. The error of Enqueue wraps ErrOutput for an output of the wrong size, and ErrPooling as that of Gather;
// nothing of any request runs then. Memory must stay allocated until the Batch is done, and only work enqueued later on the stream may change row numbers before then.
//
// On a stream that captures a graph the batch becomes a part of the graph: each replay reads the row numbers that are in DeviceRows then, and
// returns the rows as the cache has them then, with all changes since. The GPU fetches the misses alone. Nothing of the host runs when a
// replay begins or ends. The batch has a few kilobytes of memory of its own, until all graphs that it is a part of are destroyed, or
// [Batch.Release] is called. Replays of it must not overlap: a graph that is instantiated twice, or cloned, is replayed by one at a time. A
// graph must not be replayed after Close. Rows of 8 KiB and more can be captured of resident tables only: else the error wraps ErrCapturing, and the capture goes on. Of an
// attached cache see [Attach].
//
// A replay of a table of [FromPages] waits for rows that neither slab nor host tier holds, as other batches do, while the host reads them. Those that
// cannot be read are zeros, and Wait returns an error that wraps ErrCold. [Cache.Prefetch] before the replay is the way to have none. The batch has
// page-locked memory of its own for such rows. To add up rows of such tables, GPUs write them to device memory first, up to 128 MiB and 262,144 rows at a time; a captured batch has
// memory for all of its rows, at most 1 GiB: for more the error wraps ErrPooling.
//
// With Stride, rows that are copied as they are pass through device memory, up to 32 MiB at a time; a captured batch has memory for all of its rows.
//
// If a table is resident, is read from pages or has rows of 8 KiB or more, the call waits for the stream to know the bags that Pooling.Bags chooses. In a graph such
// bags are an error that wraps ErrCapturing, for these tables and in an attached cache.
func (v View) Enqueue(ctx context.Context, stream uintptr, requests ...Request) (*Batch, error) {
	c := v.cache
	if err := c.enter(); err != nil {
		return nil, c.watch.Refused(err)
	}
	defer c.leave()
	set, pinned := c.pin()
	defer unpin(pinned)
	d := set.Devices[v.device]
	if len(requests) == 1 && requests[0].plain() {
		if err := c.checkDevice(&requests[0]); err != nil {
			return nil, c.watch.Refused(err)
		}
		b, err := c.enqueueCopy(ctx, d, stream, &requests[0])
		return (*Batch)(b), err
	}
	parts := make([]read.Part, len(requests))
	for i := range requests {
		err := c.checkDevice(&requests[i])
		if err == nil {
			parts[i], err = requests[i].part(set.Tables[requests[i].Table], d.Device)
		}
		if err != nil && len(requests) > 1 {
			err = fmt.Errorf("batch %d: %w", i, err)
		}
		if err != nil {
			return nil, c.watch.Refused(err)
		}
	}
	b, err := c.enqueueParts(ctx, d, stream, parts)
	return (*Batch)(b), err
}

// checkDevice checks what can be checked of a request for Enqueue without knowing its table.
func (c *Cache) checkDevice(r *Request) error {
	if r.rows() > 0 || len(r.Out) > 0 {
		return fmt.Errorf("%w: row numbers and output of Enqueue must be memory of the device", ErrOutput)
	}
	if err := c.checkTable(r.Table); err != nil {
		return err
	}
	return r.checkPlain()
}

// enqueueCopy enqueues a request that copies rows.
func (c *Cache) enqueueCopy(ctx context.Context, d *read.Device, stream uintptr, r *Request) (*read.Batch, error) {
	rows := read.RowNumbers{Buffer: r.DeviceRows, Int32: r.DeviceRows32}
	o := c.watch.Gather(ctx, d.Index, r.Table, int(min(rows.Len(), read.MaxBatch)))
	b, err := d.Enqueue(ctx, stream, r.Table, rows, r.DeviceOut, r.Stride, o.Watcher(), o.Trace())
	if err != nil {
		o.End(err)
	}
	return b, err
}

// enqueueParts enqueues several requests, or one that sums or converts rows.
func (c *Cache) enqueueParts(ctx context.Context, d *read.Device, stream uintptr, parts []read.Part) (*read.Batch, error) {
	watched := make([]observe.Gather, len(parts))
	for i := range parts {
		p := &parts[i]
		watched[i] = c.watch.Gather(ctx, d.Index, p.Table, p.Pool.Rows)
		p.Watcher, p.Trace = watched[i].Watcher(), watched[i].Trace()
	}
	b, err := d.EnqueueParts(ctx, stream, parts)
	if err != nil {
		for i := range watched {
			watched[i].End(err)
		}
	}
	return b, err
}
