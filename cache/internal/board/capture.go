package board

import (
	"sync/atomic"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/slab"
)

// Capture is the place of a captured batch. Kernels write it: the one before a replay Begun, and the one behind it what the replays so far have
// counted together, into the copy that is not valid, and then Ended, whose lowest bit says which copy is valid. So here, too, each replay counts as a
// whole or not at all. A place is used by one captured batch after another; the numbers of replays go on.
type Capture struct {
	Lane
	table  atomic.Uint64 // the table, and above 32 bits how often the counts began or ended to be cleared: an odd number while they are
	_      [13]uint64
	copies [2][16]atomic.Int64
}

// Capture is laid out as kernels write it.
var (
	_ [abi.BoardCaptureBytes - unsafe.Sizeof(Capture{})]byte
	_ [unsafe.Sizeof(Capture{}) - abi.BoardCaptureBytes]byte
	_ [unsafe.Offsetof(Capture{}.copies) - unsafe.Offsetof(abi.BoardCapture{}.Copies)]byte
	_ [unsafe.Offsetof(abi.BoardCapture{}.Copies) - unsafe.Offsetof(Capture{}.copies)]byte
)

// Capture returns a place, 0 to Shape.Captures-1.
func (b *Board) Capture(i int) *Capture {
	at := b.shape.capturesAt() + i*captureWords
	return (*Capture)(unsafe.Pointer(&b.words[at : at+captureWords][0]))
}

// CaptureIn returns a place as a part of the memory of the board.
func (b *Board) CaptureIn(memory device.Buffer, i int) device.Buffer {
	at := int64(b.shape.capturesAt()+i*captureWords) * 8
	return memory.Slice(at, at+abi.BoardCaptureBytes)
}

// Used returns how many places of a device have been used, at most `most`: the others need not be looked at.
func (b *Board) Used(device, most int) int {
	return int(min(atomic.LoadUint64(&b.words[usedAt+device%maxDevices]), uint64(most)))
}

// Use says that a device uses at most this number of places, before any replay of theirs begins.
func (b *Board) Use(device, places int) {
	if places > b.Used(device, b.shape.Captures) {
		atomic.StoreUint64(&b.words[usedAt+device%maxDevices], uint64(places))
	}
}

// Begin gives the place to a batch of a table, and returns the number of the last replay that it has seen. Its counts must be zero.
func (c *Capture) Begin(table int) (from uint64) {
	c.table.Store(c.table.Load()>>32<<32 | uint64(uint32(table)))
	return c.Ended.Load()
}

// Load returns the table of the batch that has the place, and what its replays have counted: hits are the rows that are neither out of range nor counted by a
// reason. ok is false if the place has changed all the time.
func (c *Capture) Load() (table uint64, t Totals, ok bool) {
	for range loads {
		before, of := c.Ended.Load(), c.table.Load()
		from := &c.copies[before&1]
		t = Totals{Gathers: from[0].Load(), Hits: from[1].Load(), PeerHits: from[2].Load(), HostBytes: from[3].Load()}
		for i := range slab.NumReasons {
			t.Reasons[i] = from[4+i].Load()
		}
		// Else the copy may be the one that is written now, or of another batch, or cleared in part.
		if c.Ended.Load() == before && c.table.Load() == of && of>>32&1 == 0 {
			return uint64(uint32(of)), t, true
		}
	}
	return 0, Totals{}, false
}

// Clear zeroes the counts. REQUIRES: no replay runs.
func (c *Capture) Clear() {
	of := c.table.Load()
	c.table.Store(of + 1<<32)
	for i := range c.copies {
		for j := range c.copies[i] {
			c.copies[i][j].Store(0)
		}
	}
	c.table.Store(of + 2<<32)
}
