// Package board is the memory that one client of a shared cache writes and the owner reads: which batches of the client run, which memory it
// has mapped, and what its batches have counted. Each client has a board of its own, which the owner allocates, so that whatever a dead client's
// kernels still write is read by nobody.
//
// Every word has one writer: the client, or the one batch that has a lane. Words are 64 bits, little-endian, aligned.
//
//	word 0        version of the layout, written by the owner
//	word 1        generation of the memory that the client reads by
//	word 2        1 when no batch of the client will run any more
//	word 3        reserved
//	words 4-11    by device: how many places of captured batches have been used
//	words 12-15   reserved
//	lanes         128 bytes a lane: number of the last batch that has begun, and of the last that has ended; the rest is reserved
//	captures      384 bytes a place of a captured batch: see Capture
//	records       192 bytes a lane and table: see Record
//
// A batch writes its number as begun, sequentially consistent, before it loads anything that the owner may withdraw. The owner withdraws, fences,
// and then reads the lanes. So either the batch sees what replaced the withdrawn, or the owner sees the batch.
package board

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/slab"
)

const (
	version      = 2
	headWords    = 16
	usedAt       = 4
	maxDevices   = 8
	laneWords    = 16
	captureWords = abi.BoardCaptureBytes / 8
	recordWords  = 24
)

// Shape is the size of a board.
type Shape struct {
	Lanes    int `json:"lanes"`    // of all devices together
	Captures int `json:"captures"` // places of captured batches, of all devices together
	Tables   int `json:"tables"`
}

// Bytes returns the memory that a board takes.
func (s Shape) Bytes() int64 {
	return 8 * (int64(s.recordsAt()) + int64(s.Lanes)*int64(s.Tables)*recordWords)
}

// capturesAt and recordsAt are the words where these begin.
func (s Shape) capturesAt() int { return headWords + s.Lanes*laneWords }
func (s Shape) recordsAt() int  { return s.capturesAt() + s.Captures*captureWords }

// Board is a client's board. It is safe for concurrent use within the rules of the package.
type Board struct {
	words []uint64
	shape Shape
}

// New begins a board in zeroed memory.
func New(memory []byte, s Shape) *Board {
	b := view(memory, s)
	b.words[0] = version
	return b
}

// Open returns the board that New has begun in some memory.
func Open(memory []byte, s Shape) (*Board, error) {
	if s.Lanes < 1 || s.Tables < 1 || s.Captures < 0 || int64(len(memory)) != s.Bytes() {
		return nil, fmt.Errorf("board: memory (%d bytes) must be that of %d lanes, %d captured batches and %d tables", len(memory), s.Lanes, s.Captures, s.Tables)
	}
	b := view(memory, s)
	if b.words[0] != version {
		return nil, fmt.Errorf("board: version (%d) must be %d", b.words[0], version)
	}
	return b, nil
}

func view(memory []byte, s Shape) *Board {
	return &Board{unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(memory))), len(memory)/8), s}
}

// Shape returns the board's size.
func (b *Board) Shape() Shape { return b.shape }

// Generation returns the generation of the memory that the client reads by.
func (b *Board) Generation() uint64 { return atomic.LoadUint64(&b.words[1]) }

// SetGeneration says that every batch of the client that begins from now on reads by memory of a generation.
func (b *Board) SetGeneration(g uint64) { atomic.StoreUint64(&b.words[1], g) }

// Left says whether no batch of the client will run any more.
func (b *Board) Left() bool { return atomic.LoadUint64(&b.words[2]) != 0 }

// Leave says that no batch of the client will run any more.
func (b *Board) Leave() { atomic.StoreUint64(&b.words[2], 1) }

// Lane returns a lane, 0 to Shape.Lanes-1.
func (b *Board) Lane(i int) *Lane {
	at := headWords + i*laneWords
	return (*Lane)(unsafe.Pointer(&b.words[at : at+laneWords][0]))
}

// Lane has the numbers of a lane's batches. A batch runs if they differ.
type Lane struct{ Begun, Ended atomic.Uint64 }

// Running returns the number of the batch that runs, 0 for none.
func (l *Lane) Running() uint64 {
	ended := l.Ended.Load()
	if begun := l.Begun.Load(); begun != ended {
		return begun
	}
	return 0
}

// Passed says whether batch n of the lane has ended.
func (l *Lane) Passed(n uint64) bool { return l.Ended.Load() >= n }

// Totals is what batches of one table have counted.
type Totals struct {
	Gathers, Hits, PeerHits, HostBytes int64
	Reasons                            [slab.NumReasons]int64
	// Overflow is the part of Hits that were read from overflow places of a resident table, too. Boards have it as a reason: see OfResident.
	Overflow int64
	// PeerBytes is the part of HostBytes that was read from overflow places on devices. Boards do not have it: the owner knows where they lie.
	PeerBytes int64
}

// OfResident turns what a board has of a resident table to totals: there are no misses, and the reason slab.Oversize counts Overflow.
func (t *Totals) OfResident() {
	t.Overflow, t.Reasons = t.Reasons[slab.Oversize], [slab.NumReasons]int64{}
}

// Add adds other to t.
func (t *Totals) Add(other *Totals) {
	t.Gathers += other.Gathers
	t.Hits += other.Hits
	t.PeerHits += other.PeerHits
	t.HostBytes += other.HostBytes
	t.Overflow += other.Overflow
	t.PeerBytes += other.PeerBytes
	for r, n := range other.Reasons {
		t.Reasons[r] += n
	}
}

// Misses returns the sum of Reasons.
func (t *Totals) Misses() (n int64) {
	for _, r := range t.Reasons {
		n += r
	}
	return n
}

// Record is a lane's Totals of one table. It has two copies and a version, whose lowest bit says which copy is valid. The batch that has the lane
// writes the other copy and then the version. So a client that is killed at any moment leaves each batch counted as a whole or not at all.
type Record struct {
	version atomic.Uint64
	copies  [2][4 + slab.NumReasons]atomic.Int64
}

var _ [recordWords*8 - unsafe.Sizeof(Record{})]byte // a record fits its place

// Record returns the record of a lane and table.
func (b *Board) Record(lane, table int) *Record {
	at := b.shape.recordsAt() + (lane*b.shape.Tables+table)*recordWords
	return (*Record)(unsafe.Pointer(&b.words[at : at+recordWords][0]))
}

// Add counts a batch. One goroutine at a time may call it.
func (r *Record) Add(more *Totals) {
	version := r.version.Load()
	was, is := &r.copies[version&1], &r.copies[(version+1)&1]
	is[0].Store(was[0].Load() + more.Gathers)
	is[1].Store(was[1].Load() + more.Hits)
	is[2].Store(was[2].Load() + more.PeerHits)
	is[3].Store(was[3].Load() + more.HostBytes)
	for i, n := range more.Reasons {
		is[4+i].Store(was[4+i].Load() + n)
	}
	r.version.Store(version + 1)
}

// loads is how often Load reads a record that changes meanwhile. A batch takes far longer than reading its record.
const loads = 100

// Load returns the totals as of now. ok is false if the record changed at every attempt, which no client's does whose batches really read rows.
func (r *Record) Load() (t Totals, ok bool) { return r.load(r.version.Load) }

func (r *Record) load(version func() uint64) (t Totals, ok bool) {
	for range loads {
		before := version()
		from := &r.copies[before&1]
		t = Totals{Gathers: from[0].Load(), Hits: from[1].Load(), PeerHits: from[2].Load(), HostBytes: from[3].Load()}
		for i := range t.Reasons {
			t.Reasons[i] = from[4+i].Load()
		}
		if version() == before { // else the copy may be the one that is written now
			return t, true
		}
	}
	return Totals{}, false
}

// Sum returns the totals of a table over lanes from to to-1. ok is false if Load's is for any of them.
func (b *Board) Sum(table, from, to int) (t Totals, ok bool) {
	for i := from; i < to; i++ {
		if b.Lane(i).Begun.Load() != 0 { // records that were never used take no memory
			one, ok := b.Record(i, table).Load()
			if !ok {
				return Totals{}, false
			}
			t.Add(&one)
		}
	}
	return t, true
}
