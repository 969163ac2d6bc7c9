package read

import (
	"slices"

	"github.com/tensorcache/tensorcache/device"
)

// scratchSpare is the most memory, in bytes, for lists of a device's batches, besides the lists of the largest batch so far.
const scratchSpare = 32 << 20

// scratch is the device memory for the lists of batches. It is bounded, and kept for later batches. Device.mu guards it.
type scratch struct {
	idle    []device.Buffer
	bytes   int64 // of all buffers, idle or not
	largest int64 // the most bytes that a batch has needed
}

// take returns an idle buffer of at least the given bytes. If there is none, it returns the size of a buffer that the caller must
// allocate, after freeing the buffers in drop; the size is counted already. If there is no room, ok is false.
func (s *scratch) take(bytes int64) (b device.Buffer, size int64, drop []device.Buffer, ok bool) {
	if bytes == 0 {
		return b, 0, nil, true
	}
	s.largest = max(s.largest, bytes)
	best := -1
	for i, b := range s.idle {
		if b.Size() >= bytes && (best < 0 || b.Size() < s.idle[best].Size()) {
			best = i
		}
	}
	if best >= 0 {
		b = s.idle[best]
		s.idle = slices.Delete(s.idle, best, best+1)
		return b, 0, nil, true
	}
	// Sizes are rounded up, so that batches of about the same size share buffers.
	step := int64(4 << 10)
	for step < 4<<20 && step*8 < bytes {
		step *= 2
	}
	size = (bytes + step - 1) / step * step
	unused := int64(0)
	for _, b := range s.idle {
		unused += b.Size()
	}
	switch limit := scratchSpare + s.largest; {
	case s.bytes+size <= limit:
	case s.bytes-unused+size <= limit:
		drop, s.idle = s.idle, nil
		s.bytes -= unused
	default:
		return b, 0, nil, false
	}
	s.bytes += size
	return b, size, drop, true
}

// give takes a buffer back. The zero Buffer is ignored.
func (s *scratch) give(b device.Buffer) {
	if b.Size() > 0 {
		s.idle = append(s.idle, b)
	}
}
