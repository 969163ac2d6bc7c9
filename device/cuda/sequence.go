//go:build cuda && linux

package cuda

import (
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda/internal/driver"
)

// Sequence collects work for streams and enqueues it by one call. It implements device.Sequence.
type Sequence struct {
	device *Device
	calls  *driver.Sequence
	// streams and used are the streams that On has returned since the sequence was empty. Batches use two.
	streams [2]Stream
	used    int
}

// NewSequence implements device.Sequencer.
func (d *Device) NewSequence() device.Sequence {
	return &Sequence{device: d, calls: d.ctx.NewSequence()}
}

// On implements device.Sequence.
func (q *Sequence) On(s device.Stream) device.Stream {
	var on *Stream
	if q.used < len(q.streams) {
		on = &q.streams[q.used]
		q.used++
	} else {
		on = &Stream{}
	}
	*on = Stream{device: q.device, stream: s.(*Stream).stream, sequence: q.calls}
	return on
}

// Enqueue implements device.Sequence.
func (q *Sequence) Enqueue() error {
	q.used = 0
	return q.device.note(q.calls.Enqueue())
}

// Drop implements device.Sequence.
func (q *Sequence) Drop() {
	q.used = 0
	q.calls.Drop()
}

// flush enqueues the collected work. It comes before every call that cannot be collected.
func (s *Stream) flush() error {
	if s.sequence == nil {
		return nil
	}
	return s.device.note(s.sequence.Enqueue())
}
