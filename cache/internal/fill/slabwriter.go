package fill

import (
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/slab"
)

// slabWriter writes rows to a slab; where the host cannot address that, through page-locked memory.
type slabWriter struct {
	owner  *read.Device
	stream device.Stream
	stage  device.Buffer
	at     int64 // offset in the slab of what is staged
	filled int64
}

const slabStageBytes = 32 << 20

func newSlabWriter(d *read.Device) (*slabWriter, error) {
	w := &slabWriter{owner: d}
	if d.Slab.Bytes() != nil {
		return w, nil
	}
	var err error
	if w.stage, err = d.Device.AllocHost(slabStageBytes, "slab staging"); err != nil {
		return nil, err
	}
	if w.stream, err = d.Device.NewStream(); err != nil {
		d.Device.Free(w.stage)
		return nil, err
	}
	return w, nil
}

// write puts a row in its slot.
func (w *slabWriter) write(offset int64, stored []byte) error {
	if mem := w.owner.Slab.Bytes(); mem != nil {
		copy(mem[offset:], stored)
		return nil
	}
	next := w.at + w.filled // slots follow each other, but for the rest of the last one
	if offset < next || offset-w.at+int64(len(stored)) > w.stage.Size() || offset-next >= slab.Align {
		if err := w.flush(); err != nil {
			return err
		}
		w.at = offset
	}
	copy(w.stage.Bytes()[offset-w.at:], stored)
	w.filled = offset - w.at + int64(len(stored))
	return nil
}

func (w *slabWriter) flush() error {
	if w.filled == 0 {
		return nil
	}
	n := w.filled
	w.filled = 0
	if err := w.stream.Copy(w.owner.Slab.Slice(w.at, w.at+n), w.stage.Slice(0, n)); err != nil {
		return err
	}
	return w.stream.Synchronize()
}

func (w *slabWriter) close() {
	if w.stream != nil {
		w.stream.Close()
	}
	w.owner.Device.Free(w.stage)
}
