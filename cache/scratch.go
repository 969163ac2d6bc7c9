package cache

import (
	"slices"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
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

// When one launch serves a batch, and when one a stage. One launch saves some 25 us, but reads misses in the batch's order and
// from too many multiprocessors at once, which costs more the more there are. Measured on an H200, 200,000 rows of a 2 GiB
// table, one launch against stages: 4,000 misses 92 against 115 us at 256 bytes and 135 against 162 at 512; 20,000 misses
// 308 against 195 and 307 against 273; at 4096 bytes 20,000 misses 1.73 against 1.82 ms, 40,000 3.02 against 2.99. Of a table
// of 384 MiB, 40,000 misses of 512 bytes: 495 against 440 us.
const (
	togetherRows    = 8192
	togetherMisses  = 4096
	togetherLongRow = 2048    // bytes; then so are batches with a share of misses up to
	togetherShare   = 1.0 / 8 // this
)

// serveApart has every batch served by a launch a stage: tests try those on small tables with it.
var serveApart = false

// together says whether a batch of n rows is better served by one launch than by one a stage.
func (t *tableOnDevice) together(n int) bool {
	switch {
	case !t.short() || serveApart:
		return false
	case n <= togetherRows:
		return true
	case t.tier.RowBytes >= togetherLongRow:
		return t.missShare() <= togetherShare
	}
	return float64(n)*t.missShare() <= togetherMisses
}

// short says whether one launch can serve the table's rows.
func (t *tableOnDevice) short() bool { return t.tier.RowBytes < kernels.LongRow }

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
