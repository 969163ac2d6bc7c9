package transfer

import (
	"errors"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/ibp"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// canAccelerate says whether the device searches masks and encodes: a GPU.
func (t *Tier) canAccelerate() bool { return t.home.Info().Kind != "host" }

// workspace is memory of the device and a stream, for one task. The memory is one allocation, since each takes the driver
// a tenth of a millisecond.
type workspace struct {
	d   device.Device
	s   device.Stream
	mem device.Buffer
}

// sized is memory that a task takes from its workspace.
type sized struct {
	dst   *device.Buffer
	bytes int64
}

func newWorkspace(d device.Device, what string, parts ...sized) (*workspace, error) {
	w := &workspace{d: d}
	sum := int64(0)
	for _, p := range parts {
		sum += padded(p.bytes)
	}
	var err error
	if w.mem, err = d.Alloc(sum, what); err != nil {
		return nil, err
	}
	if w.s, err = d.NewStream(); err != nil {
		d.Free(w.mem)
		return nil, err
	}
	at := int64(0)
	for _, p := range parts {
		*p.dst = w.mem.Slice(at, at+p.bytes)
		at += padded(p.bytes)
	}
	return w, nil
}

// padded is a length of memory with the slack that kernels may read behind it, aligned as allocations are.
func padded(n int64) int64 {
	const align = 128
	return (n + slab.TailSlack + align - 1) / align * align
}

func (w *workspace) close() {
	w.s.Close()
	w.d.Free(w.mem)
}

// read enqueues a copy to Go memory and waits for the stream.
func (w *workspace) read(dst []byte, src device.Buffer) error {
	return errors.Join(w.s.Copy(device.HostBuffer(dst), src), w.s.Synchronize())
}

// trainOnDevice is the mask search on the device. ok is false where the codec is none that it knows, or its memory too
// small.
func (t *Tier) trainOnDevice(name string, rows []int64) (c codec.Codec, ok bool, err error) {
	if name == registry.None {
		return nil, false, nil
	}
	s, err := newDeviceSearch(t.home, t.host.Mem, rows, t.rowBytes)
	if err != nil {
		return nil, false, ifMemory(err)
	}
	defer s.w.close()
	return registry.TrainOn(name, s)
}

// ifMemory returns err unless it says that the device's memory is too small for what the host can do too.
func ifMemory(err error) error {
	if errors.Is(err, device.ErrOutOfMemory) {
		return nil
	}
	return err
}

// deviceSearch is the device's ibp.Search.
type deviceSearch struct {
	w *workspace
	kernels.Sample
	counts, alive, grown, masks, sums device.Buffer
}

// newDeviceSearch gathers the sample and transposes it.
func newDeviceSearch(d device.Device, mem device.Buffer, rows []int64, rowBytes int) (*deviceSearch, error) {
	s := &deviceSearch{Sample: kernels.Sample{Count: len(rows), RowBytes: rowBytes}}
	rowSize := 4 * s.RowWords()
	var numbers device.Buffer
	var err error
	s.w, err = newWorkspace(d, "mask search",
		sized{&numbers, int64(len(rows)) * 8},
		sized{&s.Sample.Rows, int64(len(rows) * rowSize)},
		sized{&s.Sample.Planes, s.PlanesBytes()},
		sized{&s.counts, int64(s.Words()) * 32 * 4},
		sized{&s.alive, s.grow(4).AliveBytes()},
		sized{&s.grown, int64(s.grow(4).Chunks()) * 16},
		sized{&s.masks, s.MasksBytes(kernels.MaxMasks)},
		sized{&s.sums, kernels.MaxMasks * 8},
	)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(
		s.w.s.Copy(numbers, device.HostBuffer(asBytes(rows))),
		// Rows in place are padded with zeros to whole words.
		s.w.s.Launch(&kernels.Gather{Mem: mem, Rows: numbers, Out: s.Sample.Rows, RowBytes: rowSize}),
		s.w.s.Launch(&kernels.Planes{Sample: s.Sample}),
		s.w.s.Synchronize(), // rows must not move before
	); err != nil {
		s.w.close()
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
	size := 4 * s.Words() // of a mask
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

// Encoding on the device: pieces of the table go to device memory, are encoded there and go back, by three streams, so that
// both directions of the link are busy. On an H200 pieces of 16 MiB move at 49.9 GB/s each way, of 8 MiB at 49.6, of 1 MiB
// at 41.8; one long copy each way at 50.7; a fourth stage changes nothing. The first pieces double from firstBytes on and the
// last halve to it, since only one direction is busy with them: 1 GiB takes 22.1 ms instead of 23.0. Tests make pieces tiny.
var (
	pieceBytes  int64 = 16 << 20
	firstBytes  int64 = 1 << 20
	pieceStages       = 3
)

// stage is a piece's memory on the device, and what has become of the piece.
type stage struct {
	rows                   device.Buffer
	arrived, encoded, left device.Event
}

func (s *stage) close() {
	for _, e := range []device.Event{s.arrived, s.encoded, s.left} {
		if e != nil {
			e.Close()
		}
	}
}

// encodeOnDevice is encode on the device, rows back in their places when it returns. ok is false where the device's memory
// is too small; nothing has changed then.
func (t *Tier) encodeOnDevice() (ok bool, err error) {
	attached, err := kernels.AttachCodec(t.home, t.codec)
	if err != nil {
		return false, ifMemory(err)
	}
	defer t.home.Free(attached.Meta)
	piece := min(t.rows, max(1, pieceBytes/t.host.Stride))
	k := kernels.Encode{Stride: t.host.Stride, Codec: attached}
	stages := make([]stage, min(int64(pieceStages), (t.rows+piece-1)/piece))
	parts := []sized{
		{&k.Bits, t.host.Compressed.Size()}, {&k.Lengths, t.lengths().Size()}, {&k.Totals, kernels.EncodeTotalsBytes},
		{&k.Scratch, kernels.EncodeScratchBytes(attached, piece)},
	}
	for i := range stages {
		parts = append(parts, sized{&stages[i].rows, piece * t.host.Stride})
	}
	w, err := newWorkspace(t.home, "encoding", parts...)
	if err != nil {
		return false, ifMemory(err)
	}
	defer w.close()
	in, err := t.home.NewStream()
	if err != nil {
		return false, err
	}
	defer in.Close()
	out, err := t.home.NewStream()
	if err != nil {
		return false, err
	}
	defer out.Close()
	for i := range stages {
		s := &stages[i]
		defer s.close()
		for _, e := range []*device.Event{&s.arrived, &s.encoded, &s.left} {
			if *e, err = t.home.NewEvent(); err != nil {
				return false, err
			}
		}
	}
	first := max(1, firstBytes/t.host.Stride)
	for from, i := int64(0), 0; from < t.rows && err == nil; i++ {
		s := &stages[i%len(stages)]
		rows := min(piece, first<<min(i, 20), max(first, (t.rows-from)/2), t.rows-from)
		host := t.host.Mem.Slice(from*t.host.Stride, (from+rows)*t.host.Stride)
		staged := s.rows.Slice(0, host.Size())
		k := k
		k.Rows, k.First, k.Count = staged, from, rows
		err = errors.Join(
			in.Wait(s.left), in.Copy(staged, host), in.Record(s.arrived),
			w.s.Wait(s.arrived), w.s.Launch(&k), w.s.Record(s.encoded),
			out.Wait(s.encoded), out.Copy(host, staged), out.Record(s.left),
		)
		from += rows
	}
	var totals kernels.EncodeTotals
	// All three streams, whatever happened: the memory must be idle when it is freed.
	if err := errors.Join(err,
		w.s.Copy(t.host.Compressed, k.Bits), w.s.Copy(t.lengths(), k.Lengths),
		w.read(asBytes(unsafe.Slice(&totals, 1)), k.Totals), out.Synchronize(), in.Synchronize(),
	); err != nil {
		return false, err
	}
	t.setTotals(int64(totals.RawRows), int64(totals.StoredBytes), int64(totals.SlotBytes))
	return true, nil
}
