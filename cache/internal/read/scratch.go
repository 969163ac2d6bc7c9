package read

import (
	"slices"

	"github.com/tensorcache/tensorcache/device"
)

// What the lists of a device may take beside those of the largest batch so far: of a client of a shared cache less, as there may be many on a device. Batches
// of more than some 100,000 rows share lists there.
const (
	scratchSpare = 32 << 20
	clientSpare  = 4 << 20
)

// lists is device memory for the hits and misses of a batch. Device.mu guards its fields.
type lists struct {
	device.Buffer
	user *lane // the last lane that took them and has not been released; nil: idle
	// read, if not nil, is behind everything that the user's batch does with them, all of which is enqueued. Another batch may
	// take them then, if it waits for that event on its stream.
	read  device.Event
	taken uint64 // the time of the last taking, counted in takings
}

// scratch is the device memory of batches' lists. It is bounded, and kept for later batches. Where more batches are enqueued than there is
// memory for, a batch takes over the lists of an earlier one: so batches are served in order, however many are enqueued. Device.mu guards it.
type scratch struct {
	all     []*lists
	bytes   int64  // of all
	largest int64  // the most that a batch has needed
	most    int64  // what the device had memory for, 0 if it never refused
	takings uint64 // calls of take
	client  bool   // of a client of a shared cache
}

// take gives a lane lists of at least so many bytes. They are idle, or lane.after is the event that the batch has to wait for. If size is
// not 0, the caller allocates their buffer, of that size, after freeing those in drop. If ok is false, the caller has to wait until lists
// become idle or passable.
func (s *scratch) take(l *lane, bytes int64) (size int64, drop []device.Buffer, ok bool) {
	s.largest = max(s.largest, bytes)
	s.takings++
	var idle, passable *lists
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
	// Sizes are rounded up, so that batches of about the same size share buffers.
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
		m = &lists{}
	case passable != nil:
		m, after, size = passable, passable.read, 0
	case s.bytes-unused+size <= limit || s.bytes == unused:
		m = &lists{}
		for _, o := range s.all {
			if o.user == nil {
				drop = append(drop, o.Buffer)
			}
		}
		s.all = slices.DeleteFunc(s.all, func(o *lists) bool { return o.user == nil })
		s.bytes -= unused
	default:
		return 0, nil, false
	}
	if size > 0 {
		s.all = append(s.all, m)
		s.bytes += size
	}
	m.user, m.read, m.taken = l, nil, s.takings
	l.lists, l.after = m, after
	return size, drop, true
}

// refused notes that the device has no memory for the new lists of a lane, of so many bytes. It says whether there are others to wait for.
func (s *scratch) refused(l *lane, bytes int64) bool {
	s.all = slices.DeleteFunc(s.all, func(m *lists) bool { return m == l.lists })
	s.bytes -= bytes
	s.most = max(1, s.bytes)
	l.lists = nil
	return len(s.all) > 0
}

// listsRead is the event behind which the lane's batch, which is enqueued, does not use its lists: one that waits for absent rows has read them before.
func (l *lane) listsRead() device.Event {
	if l.route.absent && l.route.part == 0 {
		return l.rounds.tierEnd
	}
	return l.done
}

// pass lets another batch take over a lane's lists: everything that the lane's batch does with them is enqueued.
func (s *scratch) pass(l *lane) {
	if m := l.lists; m != nil && m.user == l {
		m.read = l.listsRead()
	}
}

// give takes a lane's lists back, unless another batch has taken them over.
func (s *scratch) give(l *lane) {
	if m := l.lists; m != nil && m.user == l {
		m.user, m.read = nil, nil
	}
	l.lists = nil
}
