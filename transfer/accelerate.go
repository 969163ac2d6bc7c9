package transfer

import (
	"encoding/binary"
	"errors"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/ibp"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// canAccelerate says whether the device searches masks and encodes: a GPU, for rows of whole words that fit its
// multiprocessors.
func (t *Tier) canAccelerate() bool {
	return t.home.Info().Kind != "host" && t.rowBytes%4 == 0 && t.rowBytes < kernels.LongRow
}

// workspace is memory of the device and a stream, for one task.
type workspace struct {
	d       device.Device
	s       device.Stream
	buffers []device.Buffer
}

func newWorkspace(d device.Device) (*workspace, error) {
	s, err := d.NewStream()
	return &workspace{d: d, s: s}, err
}

func (w *workspace) close() {
	for _, b := range w.buffers {
		w.d.Free(b)
	}
	w.s.Close()
}

func (w *workspace) alloc(bytes int64, what string) (device.Buffer, error) {
	b, err := w.d.Alloc(bytes, what)
	w.buffers = append(w.buffers, b)
	return b, err
}

// read enqueues a copy to Go memory and waits for the stream.
func (w *workspace) read(dst []byte, src device.Buffer) error {
	return errors.Join(w.s.Copy(device.HostBuffer(dst), src), w.s.Synchronize())
}

// trainOnDevice is the mask search on the device. ok is false where the codec is none that it knows.
func (t *Tier) trainOnDevice(name string, rows []int64) (c codec.Codec, ok bool, err error) {
	if name == registry.None {
		return nil, false, nil
	}
	w, err := newWorkspace(t.home)
	if err != nil {
		return nil, false, err
	}
	defer w.close()
	s := &deviceSearch{w: w, Sample: kernels.Sample{Count: len(rows), RowBytes: t.rowBytes}}
	if err := s.load(t.host.Mem, rows); err != nil {
		return nil, false, err
	}
	return registry.TrainOn(name, s)
}

// deviceSearch is the device's ibp.Search.
type deviceSearch struct {
	w *workspace
	kernels.Sample
	sum device.Buffer
}

func (s *deviceSearch) load(mem device.Buffer, rows []int64) (err error) {
	numbers, err := s.w.alloc(int64(len(rows))*8, "sample")
	if err != nil {
		return err
	}
	if s.Sample.Rows, err = s.w.alloc(int64(len(rows)*s.Sample.RowBytes), "sample"); err != nil {
		return err
	}
	if s.Sample.Planes, err = s.w.alloc(s.PlanesBytes(), "sample planes"); err != nil {
		return err
	}
	if s.sum, err = s.w.alloc(8, "sample sum"); err != nil {
		return err
	}
	asBytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(rows))), len(rows)*8)
	return errors.Join(
		s.w.s.Copy(numbers, device.HostBuffer(asBytes)),
		s.w.s.Launch(&kernels.Gather{Mem: mem, Rows: numbers, Out: s.Sample.Rows, RowBytes: s.Sample.RowBytes}),
		s.w.s.Launch(&kernels.Planes{Sample: s.Sample}),
		s.w.s.Synchronize(),
	)
}

// Rows implements ibp.Search.
func (s *deviceSearch) Rows() int { return s.Count }

// RowBytes implements ibp.Search.
func (s *deviceSearch) RowBytes() int { return s.Sample.RowBytes }

// Ones implements ibp.Search.
func (s *deviceSearch) Ones() ([]uint32, error) {
	counts, err := s.w.alloc(int64(s.Words())*32*4, "sample counts")
	if err != nil {
		return nil, err
	}
	raw := make([]byte, counts.Size())
	if err := errors.Join(s.w.s.Launch(&kernels.Ones{Sample: s.Sample, Counts: counts}), s.w.read(raw, counts)); err != nil {
		return nil, err
	}
	ones := make([]uint32, len(raw)/4)
	for i := range ones {
		ones[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return ones, nil
}

// Grow implements ibp.Search.
func (s *deviceSearch) Grow(chunk int) (mask, bitval []byte, err error) {
	k := &kernels.Grow{Sample: s.Sample, Chunk: chunk}
	if k.Alive, err = s.w.alloc(k.AliveBytes(), "mask search"); err != nil {
		return nil, nil, err
	}
	if k.Masks, err = s.w.alloc(int64(k.Chunks())*16, "masks"); err != nil {
		return nil, nil, err
	}
	raw := make([]byte, k.Masks.Size())
	if err := errors.Join(s.w.s.Launch(k), s.w.read(raw, k.Masks)); err != nil {
		return nil, nil, err
	}
	for c := range k.Chunks() {
		mask = append(mask, raw[16*c:][:chunk]...)
		bitval = append(bitval, raw[16*c+8:][:chunk]...)
	}
	return mask, bitval, nil
}

// StoredBytes implements ibp.Search.
func (s *deviceSearch) StoredBytes(c *ibp.Codec) (int64, error) {
	attached, err := kernels.AttachCodec(s.w.d, c)
	if err != nil {
		return 0, err
	}
	defer s.w.d.Free(attached.Meta)
	var sum [8]byte
	err = errors.Join(
		s.w.s.Fill(s.sum, 0),
		s.w.s.Launch(&kernels.SampleBytes{Rows: s.Sample.Rows, Codec: attached, Sum: s.sum}),
		s.w.read(sum[:], s.sum),
	)
	return int64(binary.LittleEndian.Uint64(sum[:])), err
}

// encodeOnDevice is encode on the device, which reads and writes the rows where they lie.
func (t *Tier) encodeOnDevice(workers int, lengths []uint32) error {
	w, err := newWorkspace(t.home)
	if err != nil {
		return err
	}
	defer w.close()
	attached, err := kernels.AttachCodec(t.home, t.codec)
	if err != nil {
		return err
	}
	defer t.home.Free(attached.Meta)
	onDevice, err := w.alloc(t.rows*4, "row lengths")
	if err != nil {
		return err
	}
	stored := make([]uint32, t.rows)
	asBytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(stored))), t.rows*4)
	if err := errors.Join(
		w.s.Launch(&kernels.Encode{Rows: t.host.Mem, Stride: t.host.Stride, Lengths: onDevice, Codec: attached}),
		w.read(asBytes, onDevice),
	); err != nil {
		return err
	}
	return t.eachRow(workers, func() func(int64) (int, error) {
		return func(r int64) (int, error) { return int(stored[r]), nil }
	}, lengths)
}
