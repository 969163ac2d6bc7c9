package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/reduce"
)

// PoolMode is what a pooled Gather makes of the rows of a bag.
type PoolMode uint8

// The modes of pooling. A bag without rows gives zeros in all of them.
const (
	PoolSum  = PoolMode(reduce.Sum)
	PoolMean = PoolMode(reduce.Mean)
	// PoolMax is the greatest of each element. A NaN in the bag's first row stays; others are passed over.
	PoolMax = PoolMode(reduce.Max)
)

// Pooling says how the rows of a batch are divided into bags, and what is written of each bag. The zero value is none: Bag or Offsets must be set.
type Pooling struct {
	Mode PoolMode // default PoolSum
	// Bag is the number of rows in each bag. The batch must have a whole number of bags.
	Bag int
	// Offsets, if Bag is 0, are the positions of the batch at which bags begin: 0 at first, and none less than the one before. A bag ends where the next
	// one begins, and the last one at the end of the batch. With LastOffset there is one offset more than bags, and it is the last bag's end.
	Offsets    []int64
	LastOffset bool
	// FirstBag and Bags, if Bags is not 0, choose some of the bags that the offsets describe: those that begin at offset FirstBag and at the Bags - 1 behind it;
	// the last one ends at the next. Row numbers and Weights are those of all bags, and out is that of the chosen ones. So batches of several tables share one array of row numbers
	// and one of offsets, as in TorchRec's KeyedJaggedTensor and the inputs of FBGEMM's TBE.
	FirstBag, Bags int
	// Weights, if not empty, has a factor for each row of the batch. Only for PoolSum.
	Weights []float32
	// Padding says that PaddingRow is left out wherever it occurs. It does not count in a mean either.
	Padding    bool
	PaddingRow int64
	// Float8 says what the bytes of a row are, if they are float8 values. Without Values they are what the table's type says: float8_e4m3fn and float8_e5m2 are
	// values without scales, and rows of two parts, such as float8_e4m3fn*64,float8_e8m0fnu*2, are values and their scales.
	Float8 Float8
	// Output is the element type of the output: float32, float16 or bfloat16. Default: the table's; of float8 values float32.
	Output dtype.Type
	// Stride is the distance in bytes from one bag's output to the next one's. Default: they lie back to back. Bytes between them stay as they are.
	Stride int64

	// DeviceOffsets and DeviceWeights are what GatherPooledDevice takes in place of Offsets and Weights: memory that the device addresses, of
	// int64, or int32 if Offsets32 is set, and of float32.
	DeviceOffsets, DeviceWeights device.Buffer
	Offsets32                    bool
}

// Float8 says what the bytes of the rows of a table of uint8, or of float8 without scales, are: float8 values, then, unless Block is 0, a scale for
// each Block of them. An element is value × scale × Factor, as float32, each product rounded to nearest even.
type Float8 struct {
	Values dtype.Type // dtype.Float8E4M3FN or Float8E5M2
	Scales dtype.Type // dtype.Float8E8M0FNU (bytes: a power of two; 255 is a NaN) or Float32 (little-endian); none if Block is 0
	Block  int        // values that share a scale, a multiple of 8; 0: there are no scales
	Factor float32    // multiplies all elements; default 1
}

// PooledBatch is a pooled batch of one of several tables.
type PooledBatch struct {
	Table int
	// Rows are the row numbers, or Rows32 if Rows is nil.
	Rows    []int64
	Rows32  []int32
	Pooling Pooling
	// Out receives the output.
	Out []byte
}

// GatherPooled adds up rows of a table: out receives one row for each bag of row numbers. The table
// must have elements of float32, float16 or bfloat16, or float8 values. Sums are taken in float32, in an order that is the same for every run, device and
// machine (docs/design.md, Pooling), and rounded to nearest even. out must be exactly as long as the bags' outputs with what lies between them.
//
// Otherwise it is like Gather. The error wraps ErrPooling for a Pooling that does not fit. Rows of tables of pages are decoded to host memory, up to 32 MiB at a
// time, or 1,024 rows if they are longer, and added up by the host's processors; after an error only a part of out has been written.
func (c *Cache) GatherPooled(ctx context.Context, table int, rows []int64, p Pooling, out []byte) error {
	return gatherPooled(ctx, c, -1, table, rows, &p, out)
}

// GatherPooled32 is GatherPooled for row numbers of 32 bits.
func (c *Cache) GatherPooled32(ctx context.Context, table int, rows []int32, p Pooling, out []byte) error {
	return gatherPooled(ctx, c, -1, table, rows, &p, out)
}

// GatherAs is Gather with elements of another type: rows of float32, float16, bfloat16 or float8 are written as one of the first three, rounded to nearest
// even. What is too large becomes an infinity; signs of zeros stay, and every NaN becomes the same one. The error wraps ErrPooling for other types.
// So are rows of float8 values with scales, if that is the table's type (dtype.RowOf); of tables of bytes Pooling.Float8 says what they are, with bags of one row.
func (c *Cache) GatherAs(ctx context.Context, table int, rows []int64, as dtype.Type, out []byte) error {
	return gatherPooled(ctx, c, -1, table, rows, &Pooling{Bag: 1, Output: as}, out)
}

// GatherPooledTables is GatherPooled for several batches, some of them at the same time. If one of them has bad arguments, nothing is written.
func (c *Cache) GatherPooledTables(ctx context.Context, batches []PooledBatch) error {
	return c.gatherPooledTables(ctx, -1, batches)
}

// GatherPooled is Cache.GatherPooled on the view's device.
func (v View) GatherPooled(ctx context.Context, table int, rows []int64, p Pooling, out []byte) error {
	return gatherPooled(ctx, v.cache, v.device, table, rows, &p, out)
}

// GatherPooled32 is Cache.GatherPooled32 on the view's device.
func (v View) GatherPooled32(ctx context.Context, table int, rows []int32, p Pooling, out []byte) error {
	return gatherPooled(ctx, v.cache, v.device, table, rows, &p, out)
}

// GatherPooledTables is Cache.GatherPooledTables on the view's device.
func (v View) GatherPooledTables(ctx context.Context, batches []PooledBatch) error {
	return v.cache.gatherPooledTables(ctx, v.device, batches)
}

// batch returns what p says of so many rows in Go memory.
func (p *Pooling) batch(rows int) reduce.Batch {
	b := p.common(rows)
	b.Offsets, b.Weights = hostBuffer(p.Offsets), hostBuffer(p.Weights)
	b.Bags = p.bags(rows, len(p.Offsets))
	return b
}

// window makes a batch that of the bags that p chooses. REQUIRES: check has returned nil.
func (p *Pooling) window(b *reduce.Batch) {
	if p.Bags == 0 {
		return
	}
	width := b.OffsetBytes()
	b.Whole = b.Offsets
	b.Offsets, b.Bags = b.Offsets.Slice(int64(p.FirstBag)*width, int64(p.FirstBag+p.Bags+1)*width), p.Bags
}

func (p *Pooling) common(rows int) reduce.Batch {
	b := reduce.Batch{Mode: reduce.Mode(p.Mode), Out: p.Output, Rows: rows, Size: p.Bag, Padding: reduce.NoPadding, Stride: p.Stride, Float8: reduce.Float8(p.Float8)}
	if p.Padding {
		b.Padding = p.PaddingRow
	}
	return b
}

// bags returns the number of bags, given that of offsets.
func (p *Pooling) bags(rows, offsets int) int {
	switch {
	case p.Bag > 0:
		return rows / p.Bag
	case p.LastOffset:
		return max(offsets-1, 0)
	}
	return offsets
}

// check returns an error for a negative padding row, and for offsets that do not go with the rest, given how many there are. reduce.Batch does not keep what
// it takes to find them. It also checks that all, the batch before it is cut to the chosen bags, has a weight for each row: cutting needs them.
func (p *Pooling) check(offsets int, all *reduce.Batch) error {
	switch {
	case p.Bags != 0 && all.Weights.Size() != 0 && all.Weights.Size() != 4*int64(all.Rows):
		return fmt.Errorf("%w: weights (%d) must be one for each of %d rows", ErrPooling, all.Weights.Size()/4, all.Rows)
	case p.Bags != 0 && (p.Bags < 0 || p.FirstBag < 0 || p.Bags >= offsets || p.FirstBag >= offsets-p.Bags):
		return fmt.Errorf("%w: bags (%d from %d on) must be some of those that %d offsets have ends for", ErrPooling, p.Bags, p.FirstBag, offsets)
	case p.Bags == 0 && p.FirstBag != 0:
		return fmt.Errorf("%w: first bag (%d) must come with a number of bags", ErrPooling, p.FirstBag)
	case p.Padding && p.PaddingRow < 0:
		return fmt.Errorf("%w: padding row (%d) must be at least 0", ErrPooling, p.PaddingRow)
	case p.Bag != 0 && (offsets > 0 || p.LastOffset):
		return fmt.Errorf("%w: offsets (%d) must not come with bags of %d rows", ErrPooling, offsets, p.Bag)
	case p.LastOffset && offsets == 0:
		return fmt.Errorf("%w: offsets (none) must have the last bag's end", ErrPooling)
	}
	return nil
}

func hostBuffer[T any](values []T) device.Buffer {
	return device.HostBuffer(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(*new(T)))))
}

// checkPooled returns a batch for GatherPooled and its row numbers if all is as it must be. REQUIRES: the table index is in range.
func checkPooled[R read.RowNumber](t *read.Table, rows []R, p *Pooling, out []byte) (reduce.Batch, []R, error) {
	b := p.batch(len(rows))
	if err := p.check(len(p.Offsets), &b); err != nil {
		return reduce.Batch{}, nil, err
	}
	if p.Bags != 0 {
		p.window(&b)
		own, at := b.Window(p.Offsets[p.FirstBag], p.Offsets[p.FirstBag+p.Bags])
		b, rows = own, rows[at:at+int64(own.Rows)]
	}
	want, err := read.CheckPooled(t, &b)
	if err != nil {
		return b, nil, err
	}
	if err := read.CheckPooledOut(t, &b, int64(len(out)), want); err != nil {
		return b, nil, err
	}
	return b, rows, read.CheckRows(t, rows)
}

// gatherPooled reduces rows on a device, -1 for any that is not lost.
func gatherPooled[R read.RowNumber](ctx context.Context, c *Cache, device, table int, rows []R, p *Pooling, out []byte) error {
	if err := c.enter(); err != nil {
		return c.watch.Refused(err)
	}
	defer c.leave()
	set, pinned := c.pin()
	defer unpin(pinned)
	b, rows, err := checkPooledTable(c, set, table, rows, p, out)
	if err != nil {
		return c.watch.Refused(err)
	}
	return reducePooled(ctx, c, set, device, table, rows, &b, out)
}

func checkPooledTable[R read.RowNumber](c *Cache, set *read.Set, table int, rows []R, p *Pooling, out []byte) (reduce.Batch, []R, error) {
	if err := c.checkTable(table); err != nil {
		return reduce.Batch{}, nil, err
	}
	return checkPooled(set.Tables[table], rows, p, out)
}

// reducePooled runs a batch that has been checked.
func reducePooled[R read.RowNumber](ctx context.Context, c *Cache, set *read.Set, device, table int, rows []R, b *reduce.Batch, out []byte) error {
	for {
		d := (*read.Device)(nil)
		if device >= 0 {
			d = set.Devices[device]
		} else {
			d = set.Next()
		}
		o := c.watch.Gather(ctx, d.Index, table, len(rows))
		err := read.GatherPooled(ctx, d, table, rows, b, out, o.Trace())
		o.End(err)
		if err == nil || device >= 0 || !errors.Is(err, ErrDevice) || !set.Survives(d) {
			return err
		}
	}
}

func (c *Cache) gatherPooledTables(ctx context.Context, device int, batches []PooledBatch) error {
	if err := c.enter(); err != nil {
		return c.watch.Refused(err)
	}
	defer c.leave()
	set, pinned := c.pin()
	defer unpin(pinned)
	checked, wide, narrow := make([]reduce.Batch, len(batches)), make([][]int64, len(batches)), make([][]int32, len(batches))
	for i := range batches {
		var err error
		if p := &batches[i]; p.Rows == nil {
			checked[i], narrow[i], err = checkPooledTable(c, set, p.Table, p.Rows32, &p.Pooling, p.Out)
		} else {
			checked[i], wide[i], err = checkPooledTable(c, set, p.Table, p.Rows, &p.Pooling, p.Out)
		}
		if err != nil && len(batches) > 1 {
			err = fmt.Errorf("batch %d: %w", i, err)
		}
		if err != nil {
			return c.watch.Refused(err)
		}
	}
	errs := make([]error, len(batches))
	var wg sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range batches {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			if p := &batches[i]; p.Rows == nil {
				errs[i] = reducePooled(ctx, c, set, device, p.Table, narrow[i], &checked[i], p.Out)
			} else {
				errs[i] = reducePooled(ctx, c, set, device, p.Table, wide[i], &checked[i], p.Out)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
