package cache

import (
	"fmt"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/reduce"
)

// PoolMode is what becomes of the rows of a bag.
type PoolMode uint8

// The modes of pooling. A bag without rows gives zeros in all of them.
const (
	PoolSum  = PoolMode(reduce.Sum)
	PoolMean = PoolMode(reduce.Mean)
	// PoolMax is the greatest of each element. A NaN in the bag's first row stays; others are passed over.
	PoolMax = PoolMode(reduce.Max)
)

// Pooling divides the rows of a Request into bags, each of which gives one output. Bag or Offsets must be set. The table must have elements of float32, float16 or
// bfloat16, or float8 values.
type Pooling struct {
	Mode PoolMode // default PoolSum
	// Bag is the number of rows in each bag. The batch must have a whole number of bags.
	Bag int
	// Offsets, if Bag is 0, are the positions of the batch at which bags begin: 0 at first, and none less than the one before. A bag ends where the next
	// one begins, and the last one at the end of the batch. With LastOffset there is one offset more than bags, and it is the last bag's end.
	Offsets    []int64
	LastOffset bool
	// FirstBag and Bags, if Bags is not 0, choose some of the bags that the offsets describe: those that begin at offset FirstBag and at the Bags - 1 behind it;
	// the last one ends at the next. Row numbers and Weights are those of all bags, and the output is that of the chosen ones. So requests of several tables share one array of row
	// numbers and one of offsets, as in TorchRec's KeyedJaggedTensor and the inputs of FBGEMM's TBE.
	FirstBag, Bags int
	// Weights, if not empty, has a factor for each row of the batch. Only for PoolSum.
	Weights []float32
	// Padding says that PaddingRow is left out wherever it occurs. It does not count in a mean either.
	Padding    bool
	PaddingRow int64

	// DeviceOffsets and DeviceWeights are what View.Enqueue takes in place of Offsets and Weights: memory that the device addresses, of
	// int64, or int32 if Offsets32 is set, and of float32.
	DeviceOffsets, DeviceWeights device.Buffer
	Offsets32                    bool
}

// single is the Pooling of a request that converts rows: each is a bag.
var single = Pooling{Bag: 1}

// pooling returns how the rows are divided into bags.
func (r *Request) pooling() *Pooling {
	if r.Pool == nil {
		return &single
	}
	return r.Pool
}

// batch returns what a request without Offsets and Weights says, given its number of rows.
func (r *Request) batch(rows int) reduce.Batch {
	p := r.pooling()
	b := reduce.Batch{
		Mode: reduce.Mode(p.Mode), Out: r.As, Rows: rows, Size: p.Bag, Padding: reduce.NoPadding, Stride: r.Stride, Float8: reduce.Float8(r.Float8),
	}
	if p.Padding {
		b.Padding = p.PaddingRow
	}
	return b
}

// window cuts a batch to the bags that p chooses. REQUIRES: check has returned nil.
func (p *Pooling) window(b *reduce.Batch) {
	if p.Bags == 0 {
		return
	}
	width := b.OffsetBytes()
	b.Whole = b.Offsets
	b.Offsets, b.Bags = b.Offsets.Slice(int64(p.FirstBag)*width, int64(p.FirstBag+p.Bags+1)*width), p.Bags
}

// bags returns the number of bags, given the numbers of rows and of offsets.
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

// checkPooled returns the batch of a request that sums or converts rows in Go memory, and its row numbers, if all is as it must be.
func checkPooled[R read.RowNumber](t *read.Table, rows []R, r *Request) (*reduce.Batch, []R, error) {
	p, b := r.pooling(), r.batch(len(rows))
	b.Offsets, b.Weights = hostBuffer(p.Offsets), hostBuffer(p.Weights)
	b.Bags = p.bags(len(rows), len(p.Offsets))
	if err := p.check(len(p.Offsets), &b); err != nil {
		return nil, nil, err
	}
	if p.Bags != 0 {
		p.window(&b)
		own, at := b.Window(p.Offsets[p.FirstBag], p.Offsets[p.FirstBag+p.Bags])
		b, rows = own, rows[at:at+int64(own.Rows)]
	}
	want, err := read.CheckPooled(t, &b)
	if err != nil {
		return nil, nil, err
	}
	if err := read.CheckPooledOut(t, &b, int64(len(r.Out)), want); err != nil {
		return nil, nil, err
	}
	return &b, rows, read.CheckRows(t, rows)
}

// part returns a request between memory of a device as package read takes it, once it has checked how rows are summed or converted.
func (r *Request) part(t *read.Table, on device.Device) (read.Part, error) {
	part := read.Part{Table: r.Table, Rows: read.RowNumbers{Buffer: r.DeviceRows, Int32: r.DeviceRows32}, Out: r.DeviceOut}
	p, n := r.pooling(), int(min(part.Rows.Len(), read.MaxBatch+1))
	if r.plain() {
		part.Copy, part.Pool.Rows, part.Pool.Stride = true, n, r.Stride
		return part, nil
	}
	pool := r.batch(n)
	pool.Offsets, pool.Narrow, pool.Weights = p.DeviceOffsets, p.Offsets32, p.DeviceWeights
	pool.Bags = p.bags(n, pool.NumOffsets())
	if len(p.Offsets) > 0 || len(p.Weights) > 0 {
		return part, fmt.Errorf("%w: offsets and weights must be memory of the device", ErrPooling)
	}
	if err := p.check(pool.NumOffsets(), &pool); err != nil {
		return part, err
	}
	if onDevice := pool.Offsets.Addr() != 0; onDevice { // the device looks at them
		pool.Offsets = device.DeviceBuffer(pool.Offsets.Addr(), pool.Offsets.Size())
	}
	p.window(&pool)
	part.Pool = pool
	if !on.NeedsStaging() {
		part.OwnWindow()
	}
	want, err := read.CheckPooled(t, &part.Pool)
	if err != nil {
		return part, err
	}
	return part, read.CheckPooledOut(t, &part.Pool, part.Out.Size(), want)
}
