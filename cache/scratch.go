package cache

import (
	"slices"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/kernels"
)

const (
	// listBytes is a row's share of the lists of hits and misses: as Lookup leaves them, and the misses in order.
	listBytes = 2 * kernels.FoundBytes
	// scratchSpare is what all lists of a device may take beside those of the largest batch so far.
	scratchSpare = 32 << 20
)

// scratch is the device memory of batches' lists. It is kept for later batches, and bounded: a batch that finds none is
// served by one launch, which needs none. The lock of the lanes guards it.
type scratch struct {
	idle    []device.Buffer
	bytes   int64 // of all there are
	largest int64 // the most that a batch has needed
}

// take returns an idle buffer of at least so many bytes; or one to be allocated, of a size that is counted already, after
// those in drop have been freed; or says that there is no room.
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
	// So that batches of about the same size share buffers.
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

// give takes a buffer back, or none.
func (s *scratch) give(b device.Buffer) {
	if b.Size() > 0 {
		s.idle = append(s.idle, b)
	}
}

// Which kernels serve a batch. One launch for all saves some 25 us on an H200, but decodes hits more slowly, and reads misses in
// the batch's order and from too many multiprocessors at once: 200,000 rows of 256 bytes of a 2 GiB table with 4,000 misses
// took 92 us so and 115 by a launch a stage, with 20,000 misses 308 and 195. Larger batches that miss little have their hits
// looked up and decoded by one kernel, and their few misses read after that.
const (
	togetherRows = 8192
	fewMisses    = 4096
)

// strategy is how a batch is served.
type strategy uint8

const (
	oneLaunch  strategy = iota + 1 // everything
	hitsFirst                      // the hits by one, then the misses by another
	sideBySide                     // a launch a stage, hits and misses beside each other
)

// only, if not 0, is how every batch is served: tests try them all on small tables.
var only strategy

// strategy returns how a batch of n rows is served. Long rows are never served by one launch.
func (t *tableOnDevice) strategy(n int64) strategy {
	switch {
	case only != 0:
		return only
	case t.short() && n <= togetherRows:
		return oneLaunch
	case float64(n)*t.missShare() <= fewMisses:
		return hitsFirst
	}
	return sideBySide
}

// strategy is the table's, or of a traced batch that has lists the one with all stages.
func (l *lane) strategy(t *tableOnDevice, n int64) strategy {
	how := t.strategy(n)
	if b := l.traced; b != nil {
		b.planned, b.run = how, sideBySide
		if l.lists.Size() == 0 {
			b.run = oneLaunch
		}
		how = b.run
	}
	return how
}

// short says whether one launch can serve the table's rows.
func (t *tableOnDevice) short() bool { return t.tier.RowBytes < abi.LongRow }

// learn notes a finished batch's share of misses: the next one's is likely to be about the same.
func (t *tableOnDevice) learn(o *outcome) {
	if n := o.hits + o.misses; n > 0 {
		atomic.StoreUint32(&t.hitShare, uint32(o.hits*shareUnit/n))
	}
}

const shareUnit = 1 << 16

func (t *tableOnDevice) missShare() float64 {
	return 1 - float64(atomic.LoadUint32(&t.hitShare))/shareUnit
}
