package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
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
	// Codec is a name that registry.Train takes, and DType the type of the rows' elements, for codecs that look at them.
	Codec string
	DType dtype.Type
	// Terms are those of auto-selection, for Codec registry.Auto; Rows is filled in.
	Terms registry.Terms
	Mode  Mode
	// Seed picks the sampled rows.
	Seed uint64
	// Capacity is how many rows the table can grow to; less than the source's rows stands for those.
	Capacity int64
	// Workers is the number of goroutines that encode; 0 means GOMAXPROCS.
	Workers int
	// Nodes are the memory nodes of the host on which the rows are to lie, page by page in turns. None: wherever the device's backend
	// puts them.
	Nodes []int
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
// memory for the table once, and, packed, once more for the stored rows unless the device is a device.Discarder.
func Load(d device.Device, src Source, o Options) (_ *Tier, err error) {
	t := &Tier{mode: o.Mode, rows: int64(src.Rows()), rowBytes: src.RowBytes(), home: d, nodes: o.Nodes, capacity: max(o.Capacity, int64(src.Rows()))}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	if err := t.alloc(o); err != nil {
		return nil, err
	}
	// What needs no row is ready when the last one has been read.
	var p prepared
	var preparing sync.WaitGroup
	preparing.Go(func() { pprof.Do(context.Background(), loadLabels, func(context.Context) { p = t.prepare(o) }) })
	defer func() {
		preparing.Wait()
		p.loader.close()
	}()
	done := o.step(func(t *Timings) *time.Duration { return &t.Read })
	if err := t.read(src); err != nil {
		return nil, err
	}
	preparing.Wait()
	if p.err != nil {
		return nil, p.err
	}
	done()
	done = o.step(func(t *Timings) *time.Duration { return &t.Train })
	if err := t.train(o, &p); err != nil {
		return nil, err
	}
	done()
	t.total = Totals{
		Rows: t.rows, RawRows: t.rows, RawBytes: t.rows * int64(t.rowBytes), StoredBytes: t.rows * int64(t.rowBytes),
		SlotBytes: t.rows * int64(slab.SlotBytes(t.rowBytes)),
	}
	if t.codec != nil {
		done := o.step(func(t *Timings) *time.Duration { return &t.Encode })
		if err := t.encode(o, &p); err != nil {
			return nil, err
		}
		done()
	} else {
		d.Free(t.host.Compressed)
		t.host.Compressed = device.Buffer{}
	}
	t.trained = t.total
	if o.Mode == Packed {
		done := o.step(func(t *Timings) *time.Duration { return &t.Pack })
		if err := t.pack(o.Workers); err != nil {
			return nil, err
		}
		done()
	}
	t.look()
	return t, nil
}

// prepared is what a load has ready before it has read the table.
type prepared struct {
	sample []int64 // row numbers
	loader *loader // nil where the host does everything
	err    error
}

func (t *Tier) prepare(o Options) (p prepared) {
	p.sample = codec.SampleRows(t.rows, t.rowBytes, o.Seed)
	p.loader, p.err = t.newLoader(o, len(p.sample))
	return p
}

// alloc allocates the tier's memory: the rows' and their bits, or their index.
func (t *Tier) alloc(o Options) (err error) {
	stride := roundUp(int64(t.rowBytes))
	mem, err := t.allocRows(t.capacity*stride + slab.TailSlack)
	if err != nil {
		return err
	}
	t.host = kernels.HostRows{Mem: mem, Stride: stride, RowBytes: t.rowBytes}
	switch {
	case o.Mode == Packed:
		t.host.Index, err = t.home.AllocHost(t.capacity*8, "host tier index")
	case o.Codec != registry.None:
		t.host.Compressed, err = t.home.AllocHost((t.capacity+63)/64*8, "row bits")
	}
	return err
}

// lengths returns the rows' stored lengths, 0 for raw, which lie in the index's second half until pack makes locations of
// them; empty in place.
func (t *Tier) lengths() device.Buffer {
	n := t.host.Index.Size()
	if n == 0 {
		return device.Buffer{}
	}
	return t.host.Index.Slice(n/2, n/2+t.rows*4)
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
func (t *Tier) train(o Options, p *prepared) error {
	if o.Codec == registry.None {
		return nil
	}
	var onDevice codec.DeviceSample
	// trainOn trains a family on the device, if the family can and the device has a part in the load.
	trainOn := func(f codec.Family) (c codec.Codec, ok bool, err error) {
		if p.loader == nil || f.TrainOn == nil {
			return nil, false, nil
		}
		if onDevice == nil {
			if onDevice, err = t.sampleOnDevice(p.loader, p.sample); err != nil {
				return nil, true, err
			}
		}
		c, err = f.TrainOn(onDevice, o.DType)
		return c, true, err
	}
	sample := func() []byte { return codec.Gather(t.host.Mem.Bytes(), p.sample, t.rowBytes, t.host.Stride) }
	if o.Codec != registry.Auto {
		f, err := registry.Family(o.Codec)
		if err != nil {
			return err
		}
		c, ok, err := trainOn(f)
		if !ok {
			c, err = f.Train(sample(), t.rowBytes, o.DType)
		}
		t.codec = c
		return err
	}
	terms := o.Terms
	terms.Rows = t.rows
	terms.Train = trainOn
	c, choice, err := registry.Pick(sample(), t.rowBytes, o.DType, terms)
	if err == nil {
		t.codec, t.choice = c, &choice
	}
	return err
}

// encode encodes every row in its place and sets its bit, or its length, and the totals.
func (t *Tier) encode(o Options, p *prepared) error {
	if c, ok := t.codec.(codec.OnDevice); ok && p.loader != nil {
		defer p.loader.close()
		if form := c.DeviceForm(); kernels.Encodes(form, t.rowBytes) && int64(len(form.Metadata)) <= maxMetadata(t.rowBytes) {
			return t.encodeOnDevice(p.loader, c, form)
		}
	}
	return t.encodeOnHost(o.Workers)
}

func (t *Tier) encodeOnHost(workers int) error {
	mem, bits, lengths := t.host.Mem.Bytes(), view[uint64](t.host.Compressed), view[uint32](t.lengths())
	var mu sync.Mutex
	var raw, storedBytes, slotBytes int64
	err := t.eachPart(workers, func() func(from, to int64) error {
		dst := make([]byte, t.codec.EncodeBound())
		return func(from, to int64) error {
			sum := Totals{}
			for r := from; r < to; r++ {
				row := mem[r*t.host.Stride:][:t.rowBytes]
				n, err := t.codec.Encode(dst, row)
				switch {
				case err == nil:
					copy(row, dst[:n])
					if len(bits) != 0 {
						bits[r>>6] |= 1 << (r & 63)
					}
				case errors.Is(err, codec.ErrIncompressible):
					n = 0
				default:
					return fmt.Errorf("transfer: row %d: %w", r, err)
				}
				if len(lengths) != 0 {
					lengths[r] = uint32(n)
				}
				if n == 0 {
					n = t.rowBytes
					sum.RawRows++
				}
				sum.StoredBytes += int64(n)
				sum.SlotBytes += int64(slab.SlotBytes(n))
			}
			mu.Lock()
			defer mu.Unlock()
			raw, storedBytes, slotBytes = raw+sum.RawRows, storedBytes+sum.StoredBytes, slotBytes+sum.SlotBytes
			return nil
		}
	})
	if err != nil {
		return err
	}
	t.setTotals(raw, storedBytes, slotBytes)
	return nil
}

// loadLabels are the profiler labels of goroutines that load.
var loadLabels = pprof.Labels("tensorcache.task", "load")

// eachPart calls a function for parts of the rows, on goroutines that each make one of their own.
func (t *Tier) eachPart(workers int, makeDo func() func(from, to int64) error) error {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	const part = 1024 // rows; a multiple of 64, so that no two goroutines share a word of bits
	var next atomic.Int64
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), loadLabels))
			do := makeDo()
			for errs[w] == nil {
				from := (next.Add(1) - 1) * part
				if from >= t.rows {
					return
				}
				errs[w] = do(from, min(from+part, t.rows))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// setTotals sets what encoding found.
func (t *Tier) setTotals(raw, stored, slots int64) {
	t.total.RawRows, t.total.StoredBytes, t.total.SlotBytes = raw, stored, slots
	if coded := t.rows - raw; coded > 0 {
		t.host.Ahead = int((stored - raw*int64(t.rowBytes)) / coded)
	}
}

// view reinterprets memory of the host.
func view[T any](b device.Buffer) []T {
	mem := b.Bytes()
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/int(unsafe.Sizeof(*new(T))))
}

// pack moves the rows from their places to memory of their own, back to back, and makes the index.
func (t *Tier) pack(workers int) error {
	locations := view[slab.Location](t.host.Index)
	size := int64(0)
	for r, n := range view[uint32](t.lengths()) {
		// Location r takes the place of no length after the r-th: the lengths are the index's second half.
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
	packed, err := t.allocRows(size + slab.TailSlack)
	if err != nil {
		return err
	}
	from, to := t.host.Mem.Bytes(), packed.Bytes()
	discarder, discards := t.home.(device.Discarder)
	t.eachPart(workers, func() func(first, end int64) error {
		return func(first, end int64) error {
			for r := first; r < end; r++ {
				l := locations[r]
				copy(to[l.Offset():], from[r*t.host.Stride:][:l.Stored(t.rowBytes)])
			}
			if discards {
				discarder.Discard(t.host.Mem, first*t.host.Stride, end*t.host.Stride)
			}
			return nil
		}
	})
	t.home.Free(t.host.Mem)
	t.host = kernels.HostRows{Mem: packed, Index: t.host.Index, RowBytes: t.rowBytes}
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
