package read

import (
	"context"
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
)

// ErrPooling is the error of pooled batches with bad arguments. Package cache documents it.
var ErrPooling = errors.New("cache: bad pooling")

// CheckPooled completes the description b of a pooled batch of a table. It returns an error if a value is out of
// range. Offsets are checked if the host addresses them. want is the size of the output in bytes.
func CheckPooled(t *Table, b *reduce.Batch) (want int64, err error) {
	fail := func(format string, arguments ...any) (int64, error) {
		return 0, fmt.Errorf("%w: %s", ErrPooling, fmt.Sprintf(format, arguments...))
	}
	rowBytes := t.Tier.RowBytes()
	b.Float8.Complete(t.DType)
	if b.Float8.Is() {
		if err := checkFloat8(t, b); err != nil {
			return 0, err
		}
	} else {
		if !reduce.Float(t.DType) {
			return fail("elements (%s) of table %s must be float32, float16, bfloat16 or float8", t.DType, t.Name)
		}
		b.Row, b.Columns = t.DType, rowBytes/t.DType.Size()
		if rowBytes%b.Row.Size() != 0 {
			return fail("rows (%d bytes) of table %s must be whole elements of %s", rowBytes, t.Name, b.Row)
		}
	}
	if b.Out == 0 {
		b.Out = b.Row
	}
	weights := b.Weights.Size() / 4
	switch {
	case !reduce.Float(b.Out):
		return fail("output type (%s) must be float32, float16 or bfloat16", b.Out)
	case b.Mode > reduce.Max:
		return fail("mode (%d) must be sum, mean or max", b.Mode)
	case b.Rows > MaxBatch:
		return fail("batch (%d rows) must have at most %d", b.Rows, MaxBatch)
	case b.Bags > MaxBatch:
		return fail("bags (%d) must be at most %d", b.Bags, MaxBatch)
	case b.Size < 0 || b.Size > 0 && (b.Rows%b.Size != 0 || b.Bags != b.Rows/b.Size):
		return fail("rows (%d) must be whole bags of %d", b.Rows, b.Size)
	case b.Size == 0 && b.Bags == 0 && b.Rows > 0:
		return fail("rows (%d) must be in bags: there are no offsets", b.Rows)
	case b.Weights.Size() > 0 && b.Mode != reduce.Sum:
		return fail("weights must come with sum, not with mean or max")
	case b.Weights.Size()%4 != 0 || weights > 0 && weights != int64(b.Rows):
		return fail("weights (%d) must be one for each of %d rows", weights, b.Rows)
	case b.Padding != reduce.NoPadding && uint64(b.Padding) >= uint64(t.Tier.Rows()):
		return fail("padding row (%d) must be 0 to %d of table %s", b.Padding, t.Tier.Rows()-1, t.Name)
	case b.Stride == 0:
		b.Stride = int64(b.OutBytes())
	case b.Stride < int64(b.OutBytes()) || b.Stride > 1<<40 || b.Stride%int64(b.Out.Size()) != 0:
		return fail("distance of outputs (%d bytes) must be at least %d, and whole elements of %s", b.Stride, b.OutBytes(), b.Out)
	}
	if b.Size == 0 && b.Offsets.Bytes() != nil {
		v := reduce.NewView(b)
		if i := v.BadOffset(); i == 0 {
			return fail("the first offset (%d) must be 0", v.Offset(0))
		} else if i > 0 {
			return fail("offset (%d) at position %d must be %d to %d", v.Offset(i), i, v.Offset(i-1), b.Rows)
		}
	}
	if b.Bags == 0 {
		return 0, nil
	}
	if b.Stride > (1<<62)/int64(b.Bags) {
		return fail("outputs (%d, %d bytes apart) must be below 2^62 bytes", b.Bags, b.Stride)
	}
	return int64(b.Bags-1)*b.Stride + int64(b.OutBytes()), nil
}

// checkFloat8 completes and checks the description of a batch of float8 rows.
func checkFloat8(t *Table, b *reduce.Batch) error {
	f, rowBytes := &b.Float8, t.Tier.RowBytes()
	if f.Factor == 0 {
		f.Factor = 1
	}
	values, scales := f.Values == dtype.Float8E4M3FN || f.Values == dtype.Float8E5M2, f.Scales == dtype.Float8E8M0FNU || f.Scales == dtype.Float32
	switch {
	case !values:
		return fmt.Errorf("%w: float8 values (%s) must be float8_e4m3fn or float8_e5m2", ErrPooling, f.Values)
	case t.DType.IsRow() && !f.Fills(t.DType.Parts()):
		return fmt.Errorf("%w: parts (%s) of table %s must be values of %s and then a scale of %s for each %d of them", ErrPooling, t.DType, t.Name, f.Values, f.Scales, f.Block)
	case !t.DType.IsRow() && t.DType != dtype.Uint8 && t.DType != f.Values:
		return fmt.Errorf("%w: elements (%s) of table %s must be uint8 or %s", ErrPooling, t.DType, t.Name, f.Values)
	case f.Block == 0 && f.Scales != dtype.Invalid, f.Block != 0 && !scales:
		return fmt.Errorf("%w: scales (%s) of float8 values must be float8_e8m0fnu or float32 with a block, and none without", ErrPooling, f.Scales)
	case f.Block < 0 || f.Block%reduce.Float8Unit != 0 || f.Block > rowBytes:
		return fmt.Errorf("%w: block (%d values) must be a multiple of %d, and no longer than a row of table %s", ErrPooling, f.Block, reduce.Float8Unit, t.Name)
	}
	if b.Row, b.Columns = dtype.Float32, f.Columns(rowBytes); b.Columns == 0 {
		return fmt.Errorf("%w: rows (%d bytes) of table %s must be a multiple of %d bytes: %d values and their scale", ErrPooling, rowBytes, t.Name, f.Block+f.Scales.Size(), f.Block)
	}
	return nil
}

// CheckPooledOut returns an error that wraps ErrOutput for an output of the wrong size.
func CheckPooledOut(t *Table, b *reduce.Batch, have, want int64) error {
	if have != want {
		return fmt.Errorf("%w: %d bytes for %d bags of table %s must be %d", ErrOutput, have, b.Bags, t.Name, want)
	}
	return nil
}

// GatherPooled reduces the rows of a table to bags in out, and returns when they are written. out and the memory of b
// are Go memory. REQUIRES: CheckPooled accepts b, CheckRows the row numbers, and CheckPooledOut the output.
func GatherPooled[R RowNumber](ctx context.Context, d *Device, table int, rows []R, b *reduce.Batch, out []byte, trace *Trace) error {
	t := d.set.Tables[table]
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.Bags == 0 {
		return nil
	}
	if d.IsLost() {
		return d.LostError()
	}
	if t.Absent != nil {
		return gatherThenPool(ctx, d, table, rows, b, out, trace)
	}
	var area *staging
	if d.Device.NeedsStaging() {
		var err error
		if area, err = d.takeStaging(ctx); err != nil {
			return err
		}
		defer func() { d.stagings <- area }()
	}
	r, planned := d.pooledRoute(table, b, trace != nil)
	l, err := d.acquire(ctx, r, len(rows))
	if err != nil {
		return d.orLost(err)
	}
	defer d.release(l, nil)
	if err := l.begin(ctx, table); err != nil {
		return err
	}
	l.startTrace(trace, planned)
	if area != nil {
		err = l.runPooledStaged(area, table, memoryOf(rows), b, out)
	} else {
		err = l.run(table, memoryOf(rows), out)
	}
	if err != nil {
		return d.wrap(err, len(rows), t)
	}
	var done Outcome
	done.add(kernels.CountersView(l.result), 0)
	l.tracePart(0, &cold.Outcome{})
	return done.report(l, table, len(rows))
}

// runPooledStaged is run for a device that cannot address Go memory. Row numbers, offsets, weights and sums pass
// through page-locked memory.
func (l *lane) runPooledStaged(a *staging, table int, rows RowNumbers, b *reduce.Batch, out []byte) error {
	const align = 16
	up := func(n int64) int64 { return (n + align - 1) / align * align }
	offsetsAt := up(rows.Buffer.Size())
	weightsAt := offsetsAt + up(b.Offsets.Size())
	if err := a.reserve(l.owner, weightsAt+b.Weights.Size(), int64(len(out))); err != nil {
		return err
	}
	stage := func(at int64, b device.Buffer) device.Buffer {
		if b.Size() == 0 {
			return device.Buffer{}
		}
		to := a.rows.Slice(at, at+b.Size())
		copy(to.Bytes(), b.Bytes())
		return to
	}
	staged := *b
	staged.Offsets, staged.Weights = stage(offsetsAt, b.Offsets), stage(weightsAt, b.Weights)
	staged.Stride = int64(b.OutBytes()) // back to back, so that the gaps in out stay as they are
	l.route.pool = &staged
	defer func() { l.route.pool = b }()
	size := int64(b.Bags) * staged.Stride
	err := l.enqueueAny(l.stream, table, RowNumbers{stage(0, rows.Buffer), rows.Int32}, a.out.Slice(0, size))
	if err == nil {
		if err = l.stream.Copy(a.received.Slice(0, size), a.out.Slice(0, size)); err == nil {
			err = l.stream.Synchronize()
		}
	}
	if err != nil {
		return l.finish(err)
	}
	output{out, b.OutBytes(), int(b.Stride)}.putParallel(0, a.received.Slice(0, size).Bytes())
	return nil
}

// gatherPooled enqueues the pooled batch of one table on a stream. REQUIRES: the batch is not a window of bags.
func (d *Device) gatherPooled(ctx context.Context, s device.Stream, capturing bool, p *Part) (*Batch, error) {
	b := &p.Pool
	switch {
	case b.Bags == 0:
		return emptyBatch(p.Watcher), nil
	case capturing:
		return d.capture(s, p.Table, p.Rows, p.Out, 0, b, p.Watcher)
	case d.set.Tables[p.Table].Absent != nil && !d.Device.NeedsStaging():
		return d.gatherThenPoolOnHost(ctx, s, p.Table, p.Rows, b, p.Out, p.Watcher)
	}
	r, planned := d.pooledRoute(p.Table, b, p.Trace != nil)
	return d.gather(ctx, s, r, planned, p.Table, p.Rows, p.Out, p.Watcher, p.Trace)
}
