package transfer

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// Source yields the rows of a table once, in order. It is read by one goroutine.
type Source interface {
	// Rows is the number of rows, and RowBytes the length of each.
	Rows() int
	RowBytes() int
	// Read fills dst, a whole number of rows long, with the next rows and returns how many it wrote; io.EOF when none
	// is left.
	Read(dst []byte) (rows int, err error)
}

// Options say how to load a tier.
type Options struct {
	// Codec is a name that registry.Train takes.
	Codec string
	Mode  Mode
	// Seed picks the sampled rows.
	Seed uint64
	// Workers is the number of goroutines that encode; 0 means GOMAXPROCS.
	Workers int
	// Capacity is how many rows the table can grow to; less than the source's rows stands for those.
	Capacity int64
	// OnHost keeps mask search and encoding on the host where the device could do them.
	OnHost bool
	// Timings, if not nil, receives how long the steps took.
	Timings *Timings
}

// Timings are how long the steps of loading a tier took.
type Timings struct{ Read, Train, Encode, Pack time.Duration }

// step returns a function that adds the time until it is called to what field picks.
func (o *Options) step(field func(*Timings) *time.Duration) func() {
	if o.Timings == nil {
		return func() {}
	}
	start := time.Now()
	return func() { *field(o.Timings) += time.Since(start) }
}

// Load copies all rows of src to host memory, trains the codec on a sample of them and encodes them. It needs host
// memory for the table once, and, packed, once more for the stored rows.
func Load(d device.Device, src Source, o Options) (_ *Tier, err error) {
	t := &Tier{mode: o.Mode, rows: int64(src.Rows()), rowBytes: src.RowBytes(), home: d, capacity: max(o.Capacity, int64(src.Rows()))}
	stride := roundUp(int64(t.rowBytes))
	mem, err := d.AllocHost(t.capacity*stride+slab.TailSlack, "host tier")
	if err != nil {
		return nil, err
	}
	t.host = kernels.HostRows{Mem: mem, Stride: stride, RowBytes: t.rowBytes}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	done := o.step(func(t *Timings) *time.Duration { return &t.Read })
	if err := t.read(src); err != nil {
		return nil, err
	}
	done()
	done = o.step(func(t *Timings) *time.Duration { return &t.Train })
	if err := t.train(o); err != nil {
		return nil, err
	}
	done()
	t.total = Totals{
		Rows: t.rows, RawRows: t.rows, RawBytes: t.rows * int64(t.rowBytes), StoredBytes: t.rows * int64(t.rowBytes),
		SlotBytes: t.rows * int64(slab.SlotBytes(t.rowBytes)),
	}
	var lengths []uint32 // stored length of each row, 0 for raw; packed only
	if t.codec != nil {
		if o.Mode == Packed {
			lengths = make([]uint32, t.rows)
		}
		done := o.step(func(t *Timings) *time.Duration { return &t.Encode })
		encode := t.encode
		if !o.OnHost && t.canAccelerate() && kernels.CanEncode(t.codec) {
			encode = t.encodeOnDevice
		}
		if err := encode(o.Workers, lengths); err != nil {
			return nil, err
		}
		done()
	}
	if o.Mode == Packed {
		done := o.step(func(t *Timings) *time.Duration { return &t.Pack })
		if err := t.pack(lengths); err != nil {
			return nil, err
		}
		done()
	}
	return t, nil
}

// read copies the source's rows to their places.
func (t *Tier) read(src Source) error {
	mem, stride := t.host.Mem.Bytes(), int(t.host.Stride)
	direct := stride == t.rowBytes
	part := max(1, 4<<20/t.rowBytes)
	var buf []byte
	if !direct {
		buf = make([]byte, part*t.rowBytes)
	}
	for done := 0; done < int(t.rows); {
		n := min(part, int(t.rows)-done)
		dst := buf
		if direct {
			dst = mem[done*stride:]
		}
		asked := n
		n, err := src.Read(dst[:asked*t.rowBytes])
		if n < 0 || n > asked {
			return fmt.Errorf("transfer: source returned rows (%d) must be 0 to the %d asked for", n, asked)
		}
		if n == 0 && (err == nil || errors.Is(err, io.EOF)) {
			return fmt.Errorf("transfer: source ended after %d of %d rows", done, t.rows)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("transfer: source at row %d of %d: %w", done, t.rows, err)
		}
		if !direct {
			for i := range n {
				copy(mem[(done+i)*stride:][:t.rowBytes], buf[i*t.rowBytes:])
			}
		}
		done += n
	}
	return nil
}

// train makes the codec from a sample of the rows.
func (t *Tier) train(o Options) error {
	rows := codec.SampleRows(t.rows, t.rowBytes, o.Seed)
	if !o.OnHost && t.canAccelerate() {
		c, ok, err := t.trainOnDevice(o.Codec, rows)
		if ok || err != nil {
			t.codec = c
			return err
		}
	}
	var err error
	t.codec, err = registry.Train(o.Codec, codec.Gather(t.host.Mem.Bytes(), rows, t.rowBytes, t.host.Stride), t.rowBytes)
	return err
}

// encode encodes every row in its place and sets its bit where it shrinks.
func (t *Tier) encode(workers int, lengths []uint32) error {
	mem := t.host.Mem.Bytes()
	return t.eachRow(workers, func() func(r int64) (int, error) {
		dst := make([]byte, t.codec.EncodeBound())
		return func(r int64) (int, error) {
			row := mem[r*t.host.Stride:][:t.rowBytes]
			n, err := t.codec.Encode(dst, row)
			switch {
			case err == nil:
				copy(row, dst[:n])
			case errors.Is(err, codec.ErrIncompressible):
				n = 0
			default:
				return 0, fmt.Errorf("transfer: row %d: %w", r, err)
			}
			return n, nil
		}
	}, lengths)
}

// eachRow calls a function for every row that returns its stored length, 0 if it stays raw, on goroutines that each make
// one of their own; it sets the rows' bits, which Close frees, their lengths unless nil, and the totals.
func (t *Tier) eachRow(workers int, makeStore func() func(int64) (int, error), lengths []uint32) error {
	bits, err := t.home.AllocHost((t.capacity+63)/64*8, "row bits")
	if err != nil {
		return err
	}
	t.host.Compressed = bits
	words := unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(bits.Bytes()))), bits.Size()/8)
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	const part = 1024 // rows; a multiple of 64, so that no two goroutines share a word of bits
	var next atomic.Int64
	sums := make([]Totals, workers)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			store := makeStore()
			for {
				from := (next.Add(1) - 1) * part
				if from >= t.rows {
					return
				}
				for r := from; r < min(from+part, t.rows); r++ {
					n, err := store(r)
					if err != nil {
						errs[w] = err
						return
					}
					if n != 0 {
						words[r>>6] |= 1 << (r & 63)
					} else {
						sums[w].RawRows++
					}
					if lengths != nil {
						lengths[r] = uint32(n)
					}
					if n == 0 {
						n = t.rowBytes
					}
					sums[w].StoredBytes += int64(n)
					sums[w].SlotBytes += int64(slab.SlotBytes(n))
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	t.total.RawRows, t.total.StoredBytes, t.total.SlotBytes = 0, 0, 0
	for _, s := range sums {
		t.total.RawRows += s.RawRows
		t.total.StoredBytes += s.StoredBytes
		t.total.SlotBytes += s.SlotBytes
	}
	if coded := t.rows - t.total.RawRows; coded > 0 {
		t.host.Ahead = int((t.total.StoredBytes - t.total.RawRows*int64(t.rowBytes)) / coded)
	}
	return nil
}

// pack moves the rows from their places to memory of their own, back to back, and makes the index.
func (t *Tier) pack(lengths []uint32) error {
	if lengths == nil {
		lengths = make([]uint32, t.rows)
	}
	index, err := t.home.AllocHost(t.capacity*8, "host tier index")
	if err != nil {
		return err
	}
	t.host.Index = index
	locations := unsafe.Slice((*slab.Location)(unsafe.Pointer(unsafe.SliceData(index.Bytes()))), t.capacity)
	size := int64(0)
	for r, n := range lengths {
		if size >= slab.MaxBytes {
			return fmt.Errorf("transfer: packed host tier (%d bytes at row %d) must stay below %d", size, r, int64(slab.MaxBytes))
		}
		if n == 0 {
			locations[r] = slab.Raw(0, size)
			size += roundUp(int64(t.rowBytes))
		} else {
			locations[r] = slab.Compressed(0, size, int(n))
			size += roundUp(int64(n))
		}
	}
	size = t.spare(locations, size, false)
	packed, err := t.home.AllocHost(size+slab.TailSlack, "host tier")
	if err != nil {
		return err
	}
	from, to := t.host.Mem.Bytes(), packed.Bytes()
	for r, l := range locations[:t.rows] {
		copy(to[l.Offset():], from[int64(r)*t.host.Stride:][:l.Stored(t.rowBytes)])
	}
	t.home.Free(t.host.Mem)
	t.home.Free(t.host.Compressed)
	t.host = kernels.HostRows{Mem: packed, Index: index, RowBytes: t.rowBytes}
	return nil
}

// SourceOf returns a source of the rows that lie back to back in data.
func SourceOf(data []byte, rowBytes int) Source {
	return &memory{slices.Clip(data), rowBytes, len(data) / rowBytes}
}

type memory struct {
	rest     []byte
	rowBytes int
	rows     int
}

func (m *memory) Rows() int     { return m.rows }
func (m *memory) RowBytes() int { return m.rowBytes }
func (m *memory) Read(dst []byte) (int, error) {
	if len(m.rest) < m.rowBytes {
		return 0, io.EOF
	}
	n := copy(dst, m.rest)
	m.rest = m.rest[n:]
	return n / m.rowBytes, nil
}
