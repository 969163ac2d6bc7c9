package transfer

import (
	"cmp"
	"context"
	"errors"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/ibp"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// loader is the memory and the streams of a device that helps to load a table. Mask search and encoding use the
// memory one after the other. It is one allocation, because each takes the driver 0.1 ms.
type loader struct {
	d          device.Device
	mem        device.Buffer
	s, in, out device.Stream
}

// sized is a buffer that a task takes from its loader, and its length.
type sized struct {
	dst   *device.Buffer
	bytes int64
}

// newLoader returns the loader for a table with a sample of the given number of rows. It returns nil if the host does the work:
// on the host backend, if the options say so, or if the device has too little memory.
func (t *Tier) newLoader(o Options, sample int) (_ *loader, err error) {
	if o.OnHost || o.Codec == registry.None || t.home.Info().Kind == "host" {
		return nil, nil
	}
	l := &loader{d: t.home}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	bytes := max(size(newDeviceSearch(l, sample, t.rowBytes).parts()), size(t.newDeviceEncoding().parts()))
	if l.mem, err = l.d.Alloc(bytes, "loading"); err != nil {
		return nil, ifMemory(err)
	}
	for _, s := range []*device.Stream{&l.s, &l.in, &l.out} {
		if *s, err = l.d.NewStream(); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// ifMemory returns nil if err says that the device has too little memory, as the host can then do the work. It
// returns other errors unchanged.
func ifMemory(err error) error {
	if errors.Is(err, device.ErrOutOfMemory) {
		return nil
	}
	return err
}

// close frees the memory and the streams. l may be nil.
func (l *loader) close() {
	if l == nil {
		return
	}
	for _, s := range []device.Stream{l.s, l.in, l.out} {
		if s != nil {
			s.Close()
		}
	}
	l.d.Free(l.mem)
	*l = loader{d: l.d}
}

// padded returns the length with the bytes that kernels may read behind it, rounded up to the alignment of
// allocations.
func padded(n int64) int64 {
	const align = 128
	return (n + slab.TailSlack + align - 1) / align * align
}

func size(parts []sized) (sum int64) {
	for _, p := range parts {
		sum += padded(p.bytes)
	}
	return sum
}

// take divides the loader's memory among parts. Its content is undefined.
func (l *loader) take(parts []sized) {
	at := int64(0)
	for _, p := range parts {
		*p.dst = l.mem.Slice(at, at+p.bytes)
		at += padded(p.bytes)
	}
}

// read enqueues a copy to Go memory and waits for the stream.
func (l *loader) read(dst []byte, src device.Buffer) error {
	return errors.Join(l.s.Copy(device.HostBuffer(dst), src), l.s.Synchronize())
}

// deviceSearch is a sample in a device's memory. It implements codec.DeviceSample, and ibp.Search.
type deviceSearch struct {
	w *loader
	kernels.Sample
	counts, alive, grown, masks, sums device.Buffer
}

func newDeviceSearch(l *loader, rows, rowBytes int) *deviceSearch {
	return &deviceSearch{w: l, Sample: kernels.Sample{Count: rows, RowBytes: rowBytes}}
}

func (s *deviceSearch) parts() []sized {
	return []sized{
		{&s.Sample.Rows, int64(s.Count) * int64(s.RowWords()) * 4},
		{&s.Sample.Planes, s.PlanesBytes()},
		{&s.counts, int64(s.Words()) * 32 * 4},
		{&s.alive, s.grow(4).AliveBytes()},
		{&s.grown, int64(s.grow(4).Chunks()) * 16},
		{&s.masks, s.MasksBytes(kernels.MaxMasks)},
		{&s.sums, kernels.MaxMasks * 8},
	}
}

// sampleOnDevice copies a training sample to the device.
func sampleOnDevice(l *loader, sample []byte, rowBytes int) (codec.DeviceSample, error) {
	s := newDeviceSearch(l, len(sample)/rowBytes, rowBytes)
	l.take(s.parts())
	if padded := 4 * s.RowWords(); padded != rowBytes { // rows are whole words, the last one padded with zeros
		words := make([]byte, s.Count*padded)
		for i := range s.Count {
			copy(words[i*padded:], sample[i*rowBytes:][:rowBytes])
		}
		sample = words
	}
	if err := errors.Join(
		l.s.Copy(s.Sample.Rows, device.HostBuffer(sample)),
		l.s.Launch(&kernels.Planes{Sample: s.Sample}),
		l.s.Synchronize(), // the sample must not change until it has been copied
	); err != nil {
		return nil, err
	}
	return s, nil
}

func asBytes[T any](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(*new(T))))
}

// Rows implements ibp.Search.
func (s *deviceSearch) Rows() int { return s.Count }

// RowBytes implements ibp.Search.
func (s *deviceSearch) RowBytes() int { return s.Sample.RowBytes }

// Ones implements ibp.Search.
func (s *deviceSearch) Ones() ([]uint32, error) {
	ones := make([]uint32, s.counts.Size()/4)
	err := errors.Join(s.w.s.Launch(&kernels.Ones{Sample: s.Sample, Counts: s.counts}), s.w.read(asBytes(ones), s.counts))
	return ones, err
}

func (s *deviceSearch) grow(chunk int) *kernels.Grow {
	return &kernels.Grow{Sample: s.Sample, Chunk: chunk, Alive: s.alive, Masks: s.grown}
}

// Grow implements ibp.Search.
func (s *deviceSearch) Grow(chunk int) (m ibp.Masks, err error) {
	k := s.grow(chunk)
	raw := make([]byte, k.Chunks()*16)
	if err := errors.Join(s.w.s.Launch(k), s.w.read(raw, k.Masks.Slice(0, int64(len(raw))))); err != nil {
		return m, err
	}
	for c := range k.Chunks() {
		m.Mask = append(m.Mask, raw[16*c:][:chunk]...)
		m.Bitval = append(m.Bitval, raw[16*c+8:][:chunk]...)
	}
	return m, nil
}

// StoredBytes implements ibp.Search.
func (s *deviceSearch) StoredBytes(chunk int, of []ibp.Masks) ([]int64, error) {
	stored := make([]int64, len(of))
	size := 4 * s.Words() // of a mask, in bytes
	for at := 0; at < len(of); at += kernels.MaxMasks {
		part := of[at:min(at+kernels.MaxMasks, len(of))]
		raw := make([]byte, s.MasksBytes(len(part)))
		for i, m := range part {
			copy(raw[2*i*size:], m.Mask)
			copy(raw[(2*i+1)*size:], m.Bitval)
		}
		sums := s.sums.Slice(0, int64(len(part))*8)
		if err := errors.Join(
			s.w.s.Copy(s.masks.Slice(0, int64(len(raw))), device.HostBuffer(raw)),
			s.w.s.Fill(sums, 0),
			s.w.s.Launch(&kernels.SampleBytes{Sample: s.Sample, Chunk: chunk, Masks: s.masks, Sums: sums}),
			s.w.read(asBytes(stored[at:][:len(part)]), sums),
		); err != nil {
			return nil, err
		}
	}
	return stored, nil
}

// Encoding on the device: pieces of the table are copied to device memory, encoded there, and copied back. Three
// streams keep both directions of the link busy. Measured on an H200: pieces of 16 MiB move at 49.9 GB/s each way.
// Pieces of 8 MiB move at 49.6, of 1 MiB at 41.8, and one long copy at 50.7. A fourth stage changes nothing. Pieces
// grow from firstBytes at the start and shrink to it at the end, when only one direction is busy. So 1 GiB takes 22.1
// ms instead of 23.0. Tests set small pieces.
var (
	pieceBytes  int64 = 16 << 20
	firstBytes  int64 = 1 << 20
	pieceStages       = 3
)

// stage is the device memory of one piece, and the events of its progress.
type stage struct {
	rows                   device.Buffer
	back                   *returns // memory through which a piece of adopted memory returns; nil once it has returned
	arrived, encoded, left device.Event
}

func (s *stage) close() {
	for _, e := range []device.Event{s.arrived, s.encoded, s.left} {
		if e != nil {
			e.Close()
		}
	}
}

// deviceEncoding is the encoding of a table on the device.
type deviceEncoding struct {
	t      *Tier
	k      kernels.Encode // without rows
	meta   device.Buffer
	piece  int64 // rows of a piece
	stages []stage
}

func (t *Tier) newDeviceEncoding() *deviceEncoding {
	e := &deviceEncoding{t: t, k: kernels.Encode{Stride: t.host.Stride}, piece: max(1, min(t.rows, pieceBytes/t.host.Stride))}
	e.stages = make([]stage, min(int64(pieceStages), (t.rows+e.piece-1)/e.piece))
	return e
}

// maxMetadata is the most bytes of device metadata for which memory is allocated while a table is encoded. With more
// metadata the host encodes.
func maxMetadata(rowBytes int) int64 { return max(64<<10, ibp.MaxDeviceMetadata(rowBytes)) }

func (e *deviceEncoding) parts() []sized {
	parts := []sized{
		{&e.meta, maxMetadata(e.t.rowBytes)},
		{&e.k.Bits, e.t.host.Compressed.Size()},
		{&e.k.Lengths, e.t.lengths().Size()},
		{&e.k.Totals, abi.EncodeTotalsBytes},
		{&e.k.Scratch, kernels.EncodeScratchBytes(e.t.rowBytes, e.piece)},
	}
	for i := range e.stages {
		parts = append(parts, sized{&e.stages[i].rows, e.piece * e.t.host.Stride})
	}
	return parts
}

// encodeOnDevice is encode on the device. When it returns, the rows are back in host memory.
func (t *Tier) encodeOnDevice(ctx context.Context, l *loader, c codec.OnDevice, form codec.DeviceForm) (err error) {
	e := t.newDeviceEncoding()
	l.take(e.parts())
	e.k.Codec = kernels.Codec{Codec: c, Meta: e.meta.Slice(0, int64(len(form.Metadata))), Form: form}
	var back []returns
	if t.adopted != nil {
		var free func()
		if back, free, err = t.returnMemory(len(e.stages), e.piece); err != nil {
			return err
		}
		defer free()
	}
	// Wait for all three streams, also after an error, as the memory must be idle when it is freed.
	defer func() { err = errors.Join(err, l.in.Synchronize(), l.s.Synchronize(), l.out.Synchronize()) }()
	if err := errors.Join(
		l.s.Copy(e.k.Codec.Meta, device.HostBuffer(form.Metadata)), l.s.Fill(e.k.Bits, 0), l.s.Fill(e.k.Totals, 0),
	); err != nil {
		return err
	}
	for i := range e.stages {
		s := &e.stages[i]
		defer s.close()
		for _, event := range []*device.Event{&s.arrived, &s.encoded, &s.left} {
			if *event, err = l.d.NewEvent(); err != nil {
				return err
			}
		}
	}
	// settle waits for a stage's piece, and puts it in adopted memory.
	settle := func(s *stage) error {
		if s.back == nil {
			return nil
		}
		if err := s.left.Synchronize(); err != nil {
			return err
		}
		t.put(s.back)
		s.back = nil
		return nil
	}
	first := max(1, firstBytes/t.host.Stride)
	for from, i := int64(0), 0; from < t.rows; i++ {
		s := &e.stages[i%len(e.stages)]
		if err := cmp.Or(ctx.Err(), settle(s)); err != nil {
			return err
		}
		rows := min(e.piece, first<<min(i, 20), max(first, (t.rows-from)/2), t.rows-from)
		host := t.host.Mem.Slice(from*t.host.Stride, (from+rows)*t.host.Stride)
		k := e.k
		k.Rows, k.First, k.Count = s.rows.Slice(0, host.Size()), from, rows
		to, bits, bitsTo := host, device.Buffer{}, device.Buffer{}
		if back != nil {
			b := &back[i%len(back)]
			b.from, b.count = from, rows
			first, n := b.words()
			to, bits, bitsTo = b.rows.Slice(0, host.Size()), k.Bits.Slice(8*first, 8*(first+n)), b.bits.Slice(0, 8*n)
			s.back = b
		}
		if err := errors.Join(
			l.in.Wait(s.left), l.in.Copy(k.Rows, host), l.in.Record(s.arrived),
			l.s.Wait(s.arrived), l.s.Launch(&k), l.s.Record(s.encoded),
			l.out.Wait(s.encoded), l.out.Copy(to, k.Rows), l.out.Copy(bitsTo, bits), l.out.Record(s.left),
		); err != nil {
			return err
		}
		from += rows
	}
	for i := range e.stages {
		if err := settle(&e.stages[i]); err != nil {
			return err
		}
	}
	totals, all := make([]kernels.EncodeTotals, 1), t.host.Compressed
	if back != nil {
		all, e.k.Bits = device.Buffer{}, device.Buffer{} // settle has put the bits there
	}
	if err := errors.Join(
		l.s.Copy(all, e.k.Bits), l.s.Copy(t.lengths(), e.k.Lengths), l.read(asBytes(totals), e.k.Totals),
	); err != nil {
		return err
	}
	t.setTotals(totals[0])
	return nil
}
