package change

import (
	"errors"
	"sync"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/kernels"
)

// encoder encodes rows in page-locked memory by a device. It is safe for concurrent use, and encodes for one caller at a time.
type encoder struct {
	mu sync.Mutex // held while the device encodes
	// The rest is made by the first use. none says that there was no memory for it.
	none            bool
	stream          device.Stream
	lengths, totals device.Buffer // page-locked: 32 bits a row; device memory: totals that nobody reads
}

const (
	// encoderBytes are the bytes of rows from which on a device encodes: fewer take processors as long as a launch and waiting for it.
	encoderBytes = 256 << 10
	// encoderBlocks is the most blocks that encode, as batches run beside them. 256 warps with a row each ask for more than the link carries.
	encoderBlocks = 32
)

// encodes says whether a device is to encode rows of a codec, given their number.
func encodes(d device.Device, c kernels.Codec, rows int) bool {
	if d.Info().Kind == "host" || c.Codec == nil {
		return false
	}
	n := c.RowBytes()
	return rows <= residentRows && rows*n >= encoderBytes && kernels.Encodes(c.Form, n) && kernels.EncodeScratchBytes(n, int64(rows)) == 0
}

// encode replaces rows that lie stride bytes apart in page-locked memory by their stored forms, and sets their stored lengths. Rows that do not shrink stay
// as they are. ok is false, and nothing has changed, if there is no memory to do it with.
func (e *encoder) encode(d device.Device, c kernels.Codec, rows device.Buffer, stride int, stored []uint32) (ok bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.opened(d) {
		return false, nil
	}
	lengths := e.lengths.Slice(0, int64(len(stored))*4)
	k := &kernels.Encode{
		Rows: rows, Stride: int64(stride), Count: int64(len(stored)), Codec: c, Lengths: lengths, Totals: e.totals, Blocks: encoderBlocks,
	}
	if err := errors.Join(e.stream.Launch(k), e.stream.Synchronize()); err != nil {
		return false, err
	}
	copy(stored, unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(lengths.Bytes()))), len(stored)))
	for i, n := range stored {
		if n == 0 {
			stored[i] = uint32(c.RowBytes())
		}
	}
	return true, nil
}

// opened makes what a device encodes with, unless it is made, and says whether it is there.
func (e *encoder) opened(d device.Device) bool {
	if e.stream == nil && !e.none {
		var errs [3]error
		e.lengths, errs[0] = d.AllocHost(residentRows*4, "lengths of updated rows")
		e.totals, errs[1] = d.Alloc(abi.EncodeTotalsBytes, "totals of updated rows")
		e.stream, errs[2] = d.NewStream()
		e.none = errors.Join(errs[:]...) != nil
	}
	return !e.none
}

func (e *encoder) close(d device.Device) {
	if e.stream != nil {
		e.stream.Close()
	}
	d.Free(e.lengths)
	d.Free(e.totals)
}

// encodeOnDevice encodes a batch's rows in the overlay by a device. It returns false if processors are to do it.
func (w *Writer) encodeOnDevice(b *residentBatch, data []byte, rowBytes int) (bool, error) {
	for i, d := range w.set.Devices {
		c := d.Table(b.table).Codec
		if d.IsLost() || !encodes(d.Device, c, len(b.rows)) {
			continue
		}
		to := w.store.Overlay.Mem
		b.inParts(func(from, end int) func() {
			for i := from; i < end; i++ {
				copy(to.Bytes()[b.slot(i).Offset:], data[i*rowBytes:][:rowBytes])
			}
			return nil
		})
		ok, err := w.encoders[i].encode(d.Device, c, to.Slice(b.piece.Offset, b.piece.Offset+int64(b.piece.Bytes)), b.stride, b.stored)
		if ok || err != nil && !w.set.Survives(d) {
			return true, err
		}
	}
	return false, nil
}
