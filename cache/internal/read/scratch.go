package read

import (
	"slices"

	"github.com/tensorcache/tensorcache/device"
)

// Bytes that the scratch memory of a device may take in addition to that of the largest batch so far. A client gets less, as many
// clients may use one device. There, batches of more than about 100,000 rows share memory.
const (
	scratchSpare = 32 << 20
	clientSpare  = 4 << 20
)

// scratchBuffer is device memory for the lists of hits and misses of a batch, or its partial sums. Device.mu guards its
// fields.
type scratchBuffer struct {
	device.Buffer
	user *lane // the lane that took it last, until it is released; nil: idle
	// read is set when all of the user's batch is enqueued. It is recorded when the batch has used the memory for the
	// last time. Another batch may then take the memory over, and waits for read on its stream.
	read  device.Event
	taken uint64 // value of takings when it was taken last
}

// scratch is the device memory that batches use while they run. It is bounded, and kept for later batches. If more batches are
// enqueued than it has room for, a batch takes over the memory of an earlier one. So the batches run in order, and
// enqueueing does not wait. Device.mu guards it.
type scratch struct {
	all     []*scratchBuffer
	bytes   int64  // of all
	largest int64  // the most that a batch has needed
	most    int64  // what the device had memory for; 0 if it never refused any
	takings uint64 // calls of take
	client  bool   // the device belongs to a client of a shared cache
}

// take gives a lane a buffer of at least the given bytes. If it is not idle, the batch must wait for lane.after. If
// size is not 0, the caller frees the buffers in drop, and then allocates a buffer of that size. If ok is
// false, the caller must wait until a buffer becomes idle, or until another batch may take one over.
func (s *scratch) take(l *lane, bytes int64) (size int64, drop []device.Buffer, ok bool) {
	s.largest = max(s.largest, bytes)
	s.takings++
	var idle, passable *scratchBuffer
	unused := int64(0)
	for _, m := range s.all {
		if m.user == nil {
			unused += m.Size()
		}
		switch {
		case m.Size() < bytes:
		case m.user == nil && (idle == nil || m.Size() < idle.Size()):
			idle = m
		case m.user != nil && m.read != nil && (passable == nil || m.taken < passable.taken):
			passable = m
		}
	}
	// Sizes are rounded up, so that batches of about the same size can share buffers.
	step := int64(4 << 10)
	for step < 4<<20 && step*8 < bytes {
		step *= 2
	}
	size = (bytes + step - 1) / step * step
	limit := s.largest + scratchSpare
	if s.client {
		limit = s.largest + clientSpare
	}
	if s.most > 0 {
		limit = min(limit, s.most)
	}
	m, after := idle, device.Event(nil)
	switch {
	case idle != nil:
		size = 0
	case s.bytes+size <= limit || len(s.all) == 0:
		m = &scratchBuffer{}
	case passable != nil:
		m, after, size = passable, passable.read, 0
	case s.bytes-unused+size <= limit || s.bytes == unused:
		m = &scratchBuffer{}
		for _, o := range s.all {
			if o.user == nil {
				drop = append(drop, o.Buffer)
			}
		}
		s.all = slices.DeleteFunc(s.all, func(o *scratchBuffer) bool { return o.user == nil })
		s.bytes -= unused
	default:
		return 0, nil, false
	}
	if size > 0 {
		s.all = append(s.all, m)
		s.bytes += size
	}
	m.user, m.read, m.taken = l, nil, s.takings
	l.scratch, l.after = m, after
	return size, drop, true
}

// refused takes back a lane's new buffer, as the device has no memory for it. It says whether there are others to wait
// for.
func (s *scratch) refused(l *lane, bytes int64) bool {
	s.all = slices.DeleteFunc(s.all, func(m *scratchBuffer) bool { return m == l.scratch })
	s.bytes -= bytes
	s.most = max(1, s.bytes)
	l.scratch = nil
	return len(s.all) > 0
}

// scratchRead returns the event after which the lane's batch no longer uses its scratch memory. A batch that waits for absent
// rows has read its lists before it ends. REQUIRES: the batch is enqueued.
func (l *lane) scratchRead() device.Event {
	if l.route.absent && l.route.part == 0 {
		return l.rounds.tierEnd
	}
	return l.done
}

// pass allows another batch to take over a lane's buffer. REQUIRES: all of the lane's batch is enqueued.
func (s *scratch) pass(l *lane) {
	if m := l.scratch; m != nil && m.user == l {
		m.read = l.scratchRead()
	}
}

// give makes a lane's buffer idle, unless another batch has taken it over.
func (s *scratch) give(l *lane) {
	if m := l.scratch; m != nil && m.user == l {
		m.user, m.read = nil, nil
	}
	l.scratch = nil
}
