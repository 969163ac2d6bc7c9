package transfer

import (
	"cmp"
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
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/foreign"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// Source yields the rows of a table once, in order. One goroutine reads it.
type Source interface {
	// Rows is the number of rows, and RowBytes the length of each.
	Rows() int
	RowBytes() int
	// Read writes the next rows to dst, whose length is a whole number of rows, and returns how many it wrote. It returns io.EOF when
	// no row is left.
	Read(dst []byte) (rows int, err error)
}

// Ranged is a Source whose rows can be read in any order, by several goroutines at once. Load reads them on all processors.
type Ranged interface {
	Source
	// ReadFrom fills dst with rows from number row on. dst is a whole number of rows long, and the source has all of
	// them.
	ReadFrom(row int64, dst []byte) error
}

// Options say how to load a tier.
type Options struct {
	// Context, if not nil, ends Load early, with its error.
	Context context.Context
	// Codec is a name that registry.Train takes. DType is the type of the rows' elements.
	Codec string
	DType dtype.Type
	// Terms are those of auto-selection, if Codec is registry.Auto. Load sets Rows, Read and Train; measuring sets
	// Measure.
	Terms registry.Terms
	Mode  Mode
	// Seed seeds the choice of the sampled rows.
	Seed uint64
	// Capacity is the number of rows that the table can grow to, at least the source's rows.
	Capacity int64
	// Workers is the number of goroutines that encode; 0 means GOMAXPROCS.
	Workers int
	// Adopt, if not nil, is memory outside the Go heap that holds the source's rows. It becomes the tier's memory:
	// rows are encoded in their places, and nothing is read from the source. If Load fails, the rows are as they were.
	// The layout must be InPlace.
	Adopt []byte
	// Nodes are the memory nodes of the host over which the rows' pages are interleaved. If there are none, the device's backend places
	// the rows.
	Nodes []int
	// Measure, if not nil, makes auto-selection measure the device. It has no effect on the host backend. Terms.Link
	// is then not used.
	Measure *MeasureOptions
	// Progress, if not nil, is called with the number of rows read so far, in ascending order, by one goroutine at a
	// time. Unless Load fails, the last call is for all rows.
	Progress func(rows int64)
	// Shared allocates the memory that batches read so that other processes can map it. The device must be a
	// device.Sharer, and Adopt must be nil.
	Shared bool
	// EqualRows makes equal rows of an in-place tier share slots in slabs, if a sample shows that there are enough of
	// them.
	EqualRows bool
	// Keep, if not nil, has the memory outlive the process. Then Shared is set.
	Keep *Keep
	// OnHost makes the host search masks and encode, even if the device could.
	OnHost bool
	// Timings, if not nil, receives the durations of the steps, which are added to it.
	Timings *Timings
}

// Timings are the durations of the steps of loading a tier. Train is what training takes longer than Read where both run at once. Pack includes the search for
// equal rows of an in-place tier that was not done during Read.
type Timings struct{ Read, Train, Encode, Pack time.Duration }

// Load copies all rows of src to host memory, trains the codec on a sample of them, and encodes them. It takes host memory for the whole
// table, and in mode Packed also for the stored rows, unless the device is a device.Discarder.
func Load(d device.Device, src Source, o Options) (_ *Tier, err error) {
	t := &Tier{mode: o.Mode, rows: int64(src.Rows()), rowBytes: src.RowBytes(), home: d, nodes: o.Nodes, capacity: max(o.Capacity, int64(src.Rows())), keep: o.Keep}
	t.shared = o.Shared && o.Mode == InPlace // pack moves the rows of the other layout
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Restore())
			t.Close()
		}
	}()
	if err := t.alloc(o); err != nil {
		return nil, err
	}
	timings, start := o.Timings, time.Now()
	if timings == nil {
		timings = new(Timings)
	}
	// lap adds the time since the last step to that of a step.
	lap := func(step *time.Duration) {
		now := time.Now()
		*step += now.Sub(start)
		start = now
	}
	if o.Progress == nil {
		o.Progress = func(int64) {}
	}
	if o.Context == nil {
		o.Context = context.Background()
	}
	// The sample's row numbers and the loader do not depend on rows, so they are made while rows are read. Of a source in memory the codec is trained
	// meanwhile, too.
	var p prepared
	ctx, cancel := context.WithCancel(o.Context)
	loaded := make(chan struct{}) // closed when all rows are in their places
	inMemory, _ := src.(*memory)
	// With NoLink training measures the processors, which reading must leave idle.
	beside := inMemory != nil && o.Adopt == nil && o.Terms.Link != registry.NoLink
	preparing := inBackground(func() {
		if p = t.prepare(o); p.err == nil && beside {
			p.err = t.train(ctx, o, &p, inMemory.rowsAt, loaded)
		}
	})
	defer func() {
		cancel()
		preparing.Wait()
		p.loader.close()
	}()
	var search *duplicates // nil: equal rows are not searched
	if o.EqualRows && o.Mode == InPlace && t.rowBytes >= frequentRow {
		search = t.newDuplicates()
		defer search.free()
	}
	if o.Adopt != nil {
		o.Progress(t.rows)
	} else if err := t.read(o.Context, src, search, o.Progress); err != nil {
		return nil, err
	}
	lap(&timings.Read)
	close(loaded)
	preparing.Wait()
	if p.err != nil {
		return nil, p.err
	}
	lap(&timings.Train)
	workers := interruptible{host.Workers(o.Workers), o.Context}
	if search != nil {
		if err := search.finish(workers, p.sample); err != nil {
			return nil, err
		}
		lap(&timings.Pack)
	}
	if !beside {
		if err := t.train(ctx, o, &p, t.rowsInPlace, loaded); err != nil {
			return nil, err
		}
		lap(&timings.Train)
	}
	t.total = Totals{
		Rows: t.rows, RawRows: t.rows, RawBytes: t.rows * int64(t.rowBytes), StoredBytes: t.rows * int64(t.rowBytes),
		SlotBytes: t.rows * int64(slab.SlotBytes(t.rowBytes)),
	}
	if t.codec != nil {
		if err := errors.Join(t.encode(o, &p), t.restoreTail()); err != nil {
			return nil, err
		}
		lap(&timings.Encode)
	} else {
		d.Free(t.host.Compressed)
		t.host.Compressed = device.Buffer{}
		t.keep.abandon(bitsRole)
	}
	t.trained = t.total
	t.shared = o.Shared
	if o.Mode == Packed {
		if err := t.pack(workers); err != nil {
			return nil, err
		}
		lap(&timings.Pack)
	} else if search != nil {
		if err := t.group(workers, search); err != nil {
			return nil, err
		}
		lap(&timings.Pack)
	}
	if t.codec != nil {
		t.host.Common = t.commonBytes()
	}
	t.look()
	return t, t.keepGroups()
}

// inBackground runs f in a goroutine that has the profiler's labels for loading. Goroutines started by f have them,
// too.
func inBackground(f func()) *sync.WaitGroup {
	var wg sync.WaitGroup
	wg.Go(func() {
		pprof.Do(context.Background(), pprof.Labels("tensorcache.task", "load"), func(context.Context) { f() })
	})
	return &wg
}

// prepared is what Load makes before the table has been read.
type prepared struct {
	sample []int64 // row numbers
	loader *loader // nil if the host trains and encodes
	err    error
}

func (t *Tier) prepare(o Options) (p prepared) {
	if t.rows == 0 {
		return p
	}
	p.sample = codec.SampleRows(t.rows, t.rowBytes, o.Seed)
	p.loader, p.err = t.newLoader(o, len(p.sample))
	return p
}

// alloc allocates the memory of the rows, and of the index or the row bits.
func (t *Tier) alloc(o Options) (err error) {
	stride := roundUp(int64(t.rowBytes))
	var mem device.Buffer
	if o.Adopt != nil {
		mem, err = t.adopt(o.Adopt, o.Codec)
	} else {
		mem, err = t.allocRows(t.capacity*stride + slab.TailSlack)
	}
	if err != nil {
		return err
	}
	t.host = kernels.HostRows{Mem: mem, Stride: stride, RowBytes: t.rowBytes}
	switch {
	case o.Mode == Packed:
		t.host.Index, err = t.allocHost(indexRole, t.capacity*8, "host tier index")
	case o.Codec != registry.None:
		t.host.Compressed, err = t.allocHost(bitsRole, (t.capacity+63)/64*8, "row bits")
	}
	return err
}

// lengths returns the stored lengths of the rows of a packed tier, 0 for raw rows. They lie in the second half of the
// index until pack replaces them by locations. For in-place tiers the buffer is empty.
func (t *Tier) lengths() device.Buffer {
	n := t.host.Index.Size()
	if n == 0 {
		return device.Buffer{}
	}
	return t.host.Index.Slice(n/2, n/2+t.rows*4)
}

// readPart is how many bytes of rows are read at a time.
const readPart = 4 << 20

// partRows returns how many rows are read at a time.
func (t *Tier) partRows() int { return max(1, readPart/t.rowBytes) }

// read copies the source's rows to their places. If search is not nil, it searches parts that have been read for
// equal rows.
func (t *Tier) read(ctx context.Context, src Source, search *duplicates, progress func(rows int64)) error {
	if r, ok := src.(Ranged); ok {
		return t.readRanged(ctx, r, search, progress)
	}
	read, searched := t.rowReader(), 0 // parts that have been searched
	for done := 0; done < int(t.rows); {
		if err := ctx.Err(); err != nil {
			return err
		}
		asked := min(t.partRows(), int(t.rows)-done)
		n := 0
		err := read(done, asked, func(rows []byte) (err error) {
			n, err = src.Read(rows)
			return err
		})
		switch {
		case n < 0 || n > asked:
			return fmt.Errorf("transfer: source returned rows (%d) must be 0 to the %d asked for", n, asked)
		case n == 0 && (err == nil || errors.Is(err, io.EOF)):
			return fmt.Errorf("transfer: source ended after %d of %d rows", done, t.rows)
		case err != nil && !errors.Is(err, io.EOF):
			return fmt.Errorf("transfer: source at row %d of %d: %w", done, t.rows, err)
		}
		done += n
		for search != nil && searched < len(search.parts) && search.end(searched) <= int64(done) {
			search.read(searched, int64(searched)*search.rows, search.end(searched))
			searched++
		}
		progress(int64(done))
	}
	return nil
}

// readRanged is read with all processors. After an error no goroutine begins another part.
func (t *Tier) readRanged(ctx context.Context, src Ranged, search *duplicates, progress func(rows int64)) error {
	part, workers := t.partRows(), runtime.GOMAXPROCS(0)
	var next atomic.Int64
	var mu sync.Mutex // guards done, first and calls of progress
	var first error
	done := int64(0)
	host.Workers(workers).For(workers, 1, func(int, int) {
		read := t.rowReader()
		for {
			from := next.Add(int64(part)) - int64(part)
			if from >= t.rows || ctx.Err() != nil {
				return
			}
			n := min(int64(part), t.rows-from)
			err, step := error(nil), n
			if search != nil {
				step = search.step()
			}
			for at := from; at < from+n && err == nil; at += step {
				end := min(at+step, from+n)
				if err = read(int(at), int(end-at), func(rows []byte) error { return src.ReadFrom(at, rows) }); err == nil && search != nil {
					search.read(int(from)/part, at, end)
				}
			}
			mu.Lock()
			if err == nil {
				done += n
				progress(done)
			} else {
				next.Store(t.rows)
				if first == nil {
					first = fmt.Errorf("transfer: source at rows from %d of %d: %w", from, t.rows, err)
				}
			}
			mu.Unlock()
		}
	})
	return cmp.Or(first, ctx.Err())
}

// rowReader returns a function that calls read for n rows, which read writes back to back, and puts them in their
// places from row from on. The function may be called repeatedly, but only by one goroutine at a time.
func (t *Tier) rowReader() func(from, n int, read func(rows []byte) error) error {
	mem, stride := t.host.Mem.Bytes(), int(t.host.Stride)
	if stride == t.rowBytes {
		return func(from, n int, read func([]byte) error) error { return read(mem[from*stride:][:n*stride]) }
	}
	var buf []byte
	return func(from, n int, read func([]byte) error) error {
		if len(buf) < n*t.rowBytes {
			buf = make([]byte, n*t.rowBytes)
		}
		err := read(buf[:n*t.rowBytes])
		for i := range n {
			copy(mem[(from+i)*stride:][:t.rowBytes], buf[i*t.rowBytes:])
		}
		return err
	}
}

// rowsAt returns the given rows, back to back.
func (m *memory) rowsAt(rows []int64) (out []byte, err error) {
	err = foreign.Read(func() { out = codec.Gather(m.data, rows, m.rowBytes, int64(m.rowBytes)) })
	return out, err
}

// rowsInPlace returns the given rows, back to back, once all rows have been read.
func (t *Tier) rowsInPlace(rows []int64) ([]byte, error) {
	return codec.Gather(t.host.Mem.Bytes(), rows, t.rowBytes, t.host.Stride), nil
}

// train makes the codec from a sample of the rows, which read returns back to back. It measures the device once loaded is closed, as it takes the places of
// rows for that.
func (t *Tier) train(ctx context.Context, o Options, p *prepared, read func(rows []int64) ([]byte, error), loaded <-chan struct{}) error {
	if o.Codec == registry.None || t.rows == 0 {
		return nil
	}
	sample, err := read(p.sample)
	if err != nil {
		return err
	}
	var onDevice codec.DeviceSample
	// trainOn trains a family on the device. ok is false if the family has no such training, or if the host does the
	// work.
	trainOn := func(f codec.Family) (c codec.Codec, ok bool, err error) {
		if p.loader == nil || f.TrainOn == nil {
			return nil, false, nil
		}
		if onDevice == nil {
			if onDevice, err = sampleOnDevice(p.loader, sample, t.rowBytes); err != nil {
				return nil, true, err
			}
		}
		c, err = f.TrainOn(onDevice, f.ElementsOf(o.DType))
		return c, true, err
	}
	if o.Codec != registry.Auto {
		f, err := registry.Family(o.Codec)
		if err != nil {
			return err
		}
		c, ok, err := trainOn(f)
		if !ok {
			c, err = f.Train(sample, t.rowBytes, f.ElementsOf(o.DType))
		}
		t.codec = c
		return err
	}
	terms := o.Terms
	terms.Rows = t.rows
	terms.Train = trainOn
	terms.Read = read
	var device measured
	if o.Measure != nil && t.home.Info().Kind != "host" {
		terms.Measure = func(codecs []registry.Trained, batch float64) (registry.Measured, error) {
			select {
			case <-loaded:
			case <-ctx.Done():
				return registry.Measured{}, ctx.Err()
			}
			return device.measure(t, o, batch, codecs)
		}
	}
	c, choice, err := registry.Pick(sample, t.rowBytes, o.DType, terms)
	if err != nil {
		return err
	}
	device.picked(choice.Codec)
	t.codec, t.choice = c, &choice
	return nil
}

// encode replaces each row that shrinks by its stored form. It sets the row bits or lengths, and the totals.
func (t *Tier) encode(o Options, p *prepared) error {
	if c, ok := t.codec.(codec.OnDevice); ok && p.loader != nil {
		defer p.loader.close()
		if form := c.DeviceForm(); kernels.Encodes(form, t.rowBytes) && int64(len(form.Metadata)) <= maxMetadata(t.rowBytes) {
			return t.encodeOnDevice(o.Context, p.loader, c, form)
		}
	}
	totals := make([]kernels.EncodeTotals, 1)
	k := kernels.Encode{
		Rows: t.host.Mem, Stride: t.host.Stride, Count: t.rows, Codec: kernels.Codec{Codec: t.codec}, Bits: t.host.Compressed,
		Lengths: t.lengths(), Totals: device.HostBuffer(asBytes(totals)),
	}
	inBackground(func() { k.RunHost(interruptible{host.Workers(o.Workers), o.Context}) }).Wait()
	t.setTotals(totals[0])
	return o.Context.Err()
}

// interruptible are workers that begin no further part of a kernel once a context has ended.
type interruptible struct {
	device.Workers
	ctx context.Context
}

func (w interruptible) For(n, grain int, body func(from, to int)) {
	w.Workers.For(n, grain, func(from, to int) {
		if w.ctx.Err() == nil {
			body(from, to)
		}
	})
}

// setTotals sets the totals that encoding has found.
func (t *Tier) setTotals(sum kernels.EncodeTotals) {
	raw, stored := int64(sum.RawRows), int64(sum.StoredBytes)
	t.total.RawRows, t.total.StoredBytes, t.total.SlotBytes = raw, stored, int64(sum.SlotBytes)
	if coded := t.rows - raw; coded > 0 {
		t.host.Ahead = int((stored - raw*int64(t.rowBytes)) / coded)
	}
}

// view reinterprets a buffer that the host can address and that is aligned for T.
func view[T any](b device.Buffer) []T {
	mem := b.Bytes()
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/int(unsafe.Sizeof(*new(T))))
}

// packGrain is the number of rows that a goroutine packs at a time.
const packGrain = 1024

// pack copies the rows back to back to new memory, frees the old memory, and makes the index. Rows with the same
// stored bytes share a place, if equalRows finds them. If the context ends, the tier can only be closed.
func (t *Tier) pack(workers interruptible) error {
	locations := view[slab.Location](t.host.Index)
	size, slots, lengths, equal := int64(0), int64(0), view[uint32](t.lengths()), t.newEqualRows()
	defer equal.memory.Free()
	for first := 0; first < len(lengths); first += equalPart {
		part := lengths[first:min(first+equalPart, len(lengths))]
		equal.part(workers, int64(first), part)
		if err := workers.ctx.Err(); err != nil {
			return err
		}
		for i, n := range part {
			if i%equalGroup == 0 {
				equal.fetch(equal.hashes[i:min(i+equalGroup, len(part))])
			}
			// Locations overwrite the lengths, which are the second half of the index. Location r overwrites only
			// lengths up to number r.
			r := first + i
			if l, ok := equal.place(int64(r), n, equal.hashes[i], locations); ok {
				locations[r] = l
				continue
			}
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
			slots += int64(slab.SlotBytes(locations[r].Stored(t.rowBytes)))
		}
	}
	t.several, t.sharers, t.total.EqualRows, t.total.SlotBytes = equal.places, newSharers(workers.Workers, equal.places, locations), equal.n, slots
	t.sharedBytes = equal.bytes
	for _, rows := range t.sharers.rows {
		t.sharing.Add(rows, equal.bytes/int64(len(t.sharers.rows)))
	}
	t.shares.Store(equal.n > 0 || t.capacity > t.rows)
	size = t.spare(locations, size, false)
	packed, err := t.allocRows(size + slab.TailSlack)
	if err != nil {
		return err
	}
	from, to := t.host.Mem.Bytes(), packed.Bytes()
	discarder, discards := t.home.(device.Discarder)
	inBackground(func() {
		workers.For(int(t.rows), packGrain, func(first, end int) {
			for r := first; r < end; r++ {
				if equal.copies.has(int64(r)) {
					continue
				}
				l := locations[r]
				copy(to[l.Offset():], from[int64(r)*t.host.Stride:][:l.Stored(t.rowBytes)])
			}
			if discards {
				discarder.Discard(t.host.Mem, int64(first)*t.host.Stride, int64(end)*t.host.Stride)
			}
		})
	}).Wait()
	if err := workers.ctx.Err(); err != nil {
		t.home.Free(packed)
		return err
	}
	t.home.Free(t.host.Mem)
	t.host = kernels.HostRows{Mem: packed, Index: t.host.Index, RowBytes: t.rowBytes}
	return nil
}

// SourceOf returns a source of the rows that lie back to back in data. If data is a mapped file that has become
// shorter, reading returns an error that wraps foreign.ErrFault.
func SourceOf(data []byte, rowBytes int) Source {
	return &memory{data: slices.Clip(data), rowBytes: rowBytes}
}

type memory struct {
	data     []byte
	rowBytes int
	next     int64 // next row for Read
}

func (m *memory) Rows() int     { return len(m.data) / m.rowBytes }
func (m *memory) RowBytes() int { return m.rowBytes }

func (m *memory) Read(dst []byte) (int, error) {
	n := min(len(dst)/m.rowBytes, m.Rows()-int(m.next))
	if n == 0 {
		return 0, io.EOF
	}
	if err := m.ReadFrom(m.next, dst[:n*m.rowBytes]); err != nil {
		return 0, err
	}
	m.next += int64(n)
	return n, nil
}

func (m *memory) ReadFrom(row int64, dst []byte) error {
	return foreign.Read(func() { copy(dst, m.data[row*int64(m.rowBytes):]) })
}
