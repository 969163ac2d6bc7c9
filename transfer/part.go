package transfer

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// ErrAbsent is returned by Stored for a row that the tier does not hold.
var ErrAbsent = errors.New("transfer: row is absent")

// PartOptions describe a tier that may hold only a part of its table's rows.
type PartOptions struct {
	Rows     int64
	RowBytes int
	Codec    codec.Codec // nil if all rows are raw
	// Mean is the known or estimated mean stored length of the table's rows. Absent rows are assumed to have it.
	Mean int
	// Memory is the most bytes of host memory for rows and index together.
	Memory int64
	// Nodes and Shared are as in Options.
	Nodes  []int
	Shared bool
}

// part is the state of a tier that may hold only a part of its table's rows. Its memory has two regions. The main
// region has slots of rows that the policy has chosen. Behind it is a ring of segments. It holds rows for a while
// that a batch needed, or that were prefetched.
//
// The index is as in a packed tier; a word that is not a location marks an absent row. Whoever withdraws a row must
// wait for an epoch before the memory is used again.
type part struct {
	main  *slab.Allocator
	ring  ring
	ahead kernels.Ahead // a row's bit is set if the row was prefetched and no batch has read it
	mean  int
	held  atomic.Int64 // rows held
	bytes atomic.Int64 // bytes of their slots
	begun time.Time
	// When each row came to the tier or left it, in seconds after begun. It lies outside the Go heap, which would keep as
	// much memory again free.
	since []uint32
	times *numa.Memory
}

// partRowBytes is the memory of a Partial tier for each row of the table, held or not: the index's word and the time.
// partBits comes on top.
const partRowBytes = 8 + 4

// The ring takes one byte in ringShare of the memory, in up to ringSegments segments.
const (
	ringShare    = 8
	ringSegments = 8
)

// ring is a sequence of segments. They are written one after the other, and emptied as a whole, the oldest first.
type ring struct {
	from, segment int64 // offset of the first segment, and bytes of each
	rows          [][]ringRow
	head          int   // the segment being written
	used          int64 // bytes of it in use
	free          int   // empty segments, which follow head
	withdrawn     int   // segments behind these whose rows are withdrawn; they are empty after an epoch
}

type ringRow struct {
	row int64
	at  slab.Location
}

// partBits returns the bytes of a bitset with a bit for each row.
func partBits(rows int64) int64 { return (rows + 63) / 64 * 8 }

// partIndex returns the memory of a Partial tier without its regions.
func partIndex(rows int64) int64 { return rows*partRowBytes + partBits(rows) + slab.TailSlack }

// LeastPart returns the least PartOptions.Memory that OpenPart accepts: the index and three rows.
func LeastPart(rows int64, rowBytes int) int64 {
	return partIndex(rows) + 3*int64(slab.SlotBytes(rowBytes))
}

// OpenPart returns a tier that holds no rows yet. It allocates all memory that the tier will use.
func OpenPart(d device.Device, o PartOptions) (_ *Tier, err error) {
	t := &Tier{mode: Packed, rows: o.Rows, rowBytes: o.RowBytes, home: d, nodes: o.Nodes, capacity: o.Rows, codec: o.Codec, owned: o.Rows, shared: o.Shared}
	p := &part{mean: max(1, min(o.Mean, o.RowBytes)), begun: time.Now()}
	t.part = p
	if least := LeastPart(o.Rows, o.RowBytes); o.Memory < least {
		return nil, fmt.Errorf("transfer: host memory (%d bytes) must hold the index of %d rows and three rows: %d bytes", o.Memory, o.Rows, least)
	}
	p.since, p.times = numa.Make[uint32](o.Rows)
	slot := int64(slab.SlotBytes(o.RowBytes))
	index, bits := o.Rows*8, partBits(o.Rows)
	memory := o.Memory - partIndex(o.Rows)
	ring := max(memory/ringShare, 2*slot)
	if all := o.Rows*slot + 2*slot; memory > all { // enough for all rows
		memory, ring = all, 2*slot
	}
	segments := max(2, min(ringSegments, ring/slot))
	p.ring.segment = ring / segments &^ (slab.Align - 1)
	p.ring.rows, p.ring.free = make([][]ringRow, segments), int(segments)-1
	p.ring.from = (memory - segments*p.ring.segment) &^ (slab.Align - 1)
	p.ring.from = min(p.ring.from, slab.MaxBytes-slab.TailSlack-segments*p.ring.segment)
	p.main = slab.NewAllocator(0, p.ring.from)
	p.ahead.From, p.ahead.Unused = p.ring.from, make([]uint64, bits/8)
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	t.host = kernels.HostRows{RowBytes: o.RowBytes, ReadAhead: &p.ahead}
	if t.host.Mem, err = t.allocRows(p.ring.from + segments*p.ring.segment + slab.TailSlack); err != nil {
		return nil, err
	}
	if t.host.Index, err = d.AllocHost(index, "host tier index"); err != nil {
		return nil, err
	}
	locations := t.locations()
	for r := range locations {
		locations[r] = absent
	}
	t.total = Totals{Rows: o.Rows, RawBytes: o.Rows * int64(o.RowBytes), StoredBytes: o.Rows * int64(p.mean), SlotBytes: o.Rows * int64(slab.SlotBytes(p.mean))}
	if o.Codec == nil {
		t.total.RawRows = o.Rows
	}
	t.trained = t.total
	return t, nil
}

// absent is the index's word for a row that the tier does not hold.
var absent = slab.NoLocation(slab.Cold)

// Partial says whether the tier may hold only a part of its table's rows.
func (t *Tier) Partial() bool { return t.part != nil }

// Holds says whether the tier holds a row. A tier that is not Partial holds all.
func (t *Tier) Holds(row int64) bool { return t.part == nil || t.at(row).Valid() }

// at returns the index's word of a row of a packed tier.
func (t *Tier) at(row int64) slab.Location {
	return slab.Location(atomic.LoadUint64((*uint64)(&t.locations()[row])))
}

// partBytes returns the stored length of a row, or the mean if the row is absent.
func (t *Tier) partBytes(row int64) int {
	if l := t.at(row); l.Valid() {
		return l.Stored(t.rowBytes)
	}
	return t.part.mean
}

// Held returns how many rows the tier holds, and the bytes of their slots. capacity is the bytes for slots of a
// Partial tier; for others it equals bytes.
func (t *Tier) Held() (rows, bytes, capacity int64) {
	if p := t.part; p != nil {
		return p.held.Load(), p.bytes.Load(), p.main.Capacity() + int64(len(p.ring.rows))*p.ring.segment
	}
	total := t.Totals()
	return total.Rows, total.StoredBytes, total.StoredBytes
}

// MainBytes returns the size of the main region of a Partial tier and how much of it is in use, in bytes.
func (t *Tier) MainBytes() (capacity, used int64) {
	t.writes.RLock()
	defer t.writes.RUnlock()
	return t.part.main.Capacity(), t.part.main.Used()
}

// MemoryBytes returns the host memory of a Partial tier: rows, index, times and bits.
func (t *Tier) MemoryBytes() int64 {
	return t.host.Mem.Size() + t.rows*partRowBytes + int64(len(t.part.ahead.Unused)*8)
}

// ListBytes returns the memory of the list of rows in a Partial tier's ring. MemoryBytes does not include it.
func (t *Tier) ListBytes() (bytes int64) {
	t.writes.RLock()
	defer t.writes.RUnlock()
	for _, rows := range t.part.ring.rows {
		bytes += int64(cap(rows)) * int64(unsafe.Sizeof(ringRow{}))
	}
	return bytes
}

// InMain says whether a row lies in the main region of a Partial tier.
func (t *Tier) InMain(row int64) bool {
	l := t.at(row)
	return l.Valid() && l.Offset() < t.part.ring.from
}

// Put writes an absent row to free memory of the main region and returns its location. ok is false if there is no
// room. No batch reads the row before Show.
func (t *Tier) Put(stored []byte, compressed bool) (l slab.Location, ok bool) {
	t.writes.Lock()
	defer t.writes.Unlock()
	offset, ok := t.part.main.Alloc(slab.SlotBytes(len(stored)))
	if !ok {
		return absent, false
	}
	return t.write(offset, stored, compressed), true
}

func (t *Tier) write(offset int64, stored []byte, compressed bool) slab.Location {
	copy(t.host.Mem.Bytes()[offset:], stored)
	if compressed {
		return slab.Compressed(0, offset, len(stored))
	}
	return slab.Raw(0, offset)
}

// Staged is a row in stored form, at offset At of memory that holds several rows.
type Staged struct {
	Row        int64
	At, Bytes  int
	Compressed bool
}

// Fill does Put and Show for many absent rows, as far as the main region has room. It returns how many it has
// written. Fill is safe for concurrent use. REQUIRES: neither batches nor devices use the tier yet.
func (t *Tier) Fill(memory []byte, rows []Staged) (held int) {
	at := make([]slab.Location, len(rows))
	bytes := int64(0)
	t.writes.Lock()
	for i, r := range rows {
		n := slab.SlotBytes(r.Bytes)
		offset, ok := t.part.main.Alloc(n)
		if at[i] = absent; !ok {
			continue
		}
		if at[i] = slab.Raw(0, offset); r.Compressed {
			at[i] = slab.Compressed(0, offset, r.Bytes)
		}
		held++
		bytes += int64(n)
	}
	t.writes.Unlock()
	t.part.held.Add(int64(held))
	t.part.bytes.Add(bytes)
	for i, r := range rows {
		if at[i] != absent {
			copy(t.host.Mem.Bytes()[at[i].Offset():], memory[r.At:][:r.Bytes])
			t.locations()[r.Row] = at[i]
		}
	}
	return held
}

// FillAheadBytes returns the bytes of slots that FillAhead has room for.
func (t *Tier) FillAheadBytes() int64 {
	return int64(len(t.part.ring.rows)-1) * t.part.ring.segment
}

// FillAhead is Fill for the ring. It leaves one segment empty, so that the first rows that batches read have room.
func (t *Tier) FillAhead(memory []byte, rows []Staged) (held int) {
	for _, r := range rows {
		t.writes.Lock()
		l, ok := t.putAhead(r.Row, memory[r.At:][:r.Bytes], r.Compressed, 1)
		t.writes.Unlock()
		if !ok {
			break
		}
		t.Show(r.Row, l, false)
		held++
	}
	return held
}

// PutAhead is Put for the ring. If there is no room, Withdraw and, an epoch later, Reuse make some.
func (t *Tier) PutAhead(row int64, stored []byte, compressed bool) (l slab.Location, ok bool) {
	t.writes.Lock()
	defer t.writes.Unlock()
	return t.putAhead(row, stored, compressed, 0)
}

// putAhead is PutAhead, but leaves the given number of segments empty. REQUIRES: t.writes is locked.
func (t *Tier) putAhead(row int64, stored []byte, compressed bool, leave int) (l slab.Location, ok bool) {
	r, n := &t.part.ring, int64(slab.SlotBytes(len(stored)))
	if r.used+n > r.segment {
		if r.free <= leave {
			return absent, false
		}
		r.head, r.used, r.free = (r.head+1)%len(r.rows), 0, r.free-1
	}
	l = t.write(r.from+int64(r.head)*r.segment+r.used, stored, compressed)
	r.used += n
	r.rows[r.head] = append(r.rows[r.head], ringRow{row, l})
	return l, true
}

// Show stores the location of an absent row in the index, and returns the word that devices must store. prefetched
// says that no batch has asked for the row yet.
func (t *Tier) Show(row int64, l slab.Location, prefetched bool) Written {
	if prefetched {
		atomic.OrUint64(&t.part.ahead.Unused[row>>6], 1<<(row&63))
	}
	t.part.held.Add(1)
	t.part.bytes.Add(int64(slab.SlotBytes(l.Stored(t.rowBytes))))
	return t.store(row, l)
}

// Since returns when a row came to a Partial tier, left it, or was touched, rounded down to a whole second after the
// tier was opened.
func (t *Tier) Since(row int64) time.Time {
	return t.part.begun.Add(time.Duration(atomic.LoadUint32(&t.part.since[row])) * time.Second)
}

// Touch records that a row's newest version arrives now where it lies, in a Partial tier or below it.
func (t *Tier) Touch(row int64) {
	atomic.StoreUint32(&t.part.since[row], uint32(time.Since(t.part.begun)/time.Second))
}

func (t *Tier) store(row int64, l slab.Location) Written {
	t.Touch(row)
	atomic.StoreUint64((*uint64)(&t.locations()[row]), uint64(l))
	return Written{uint64(row), uint64(l)}
}

// Hide makes a row absent and returns its location, which may be freed an epoch later. REQUIRES: the tier holds the
// row.
func (t *Tier) Hide(row int64) (w Written, was slab.Location) {
	was = t.at(row)
	t.part.held.Add(-1)
	t.part.bytes.Add(-int64(slab.SlotBytes(was.Stored(t.rowBytes))))
	return t.store(row, absent), was
}

// Free frees the memory of a row that Hide made absent, or that Put wrote and Show never showed.
func (t *Tier) Free(l slab.Location) {
	if l.Offset() >= t.part.ring.from {
		return // segments are emptied as a whole
	}
	t.writes.Lock()
	defer t.writes.Unlock()
	t.part.main.Free(l.Offset(), slab.SlotBytes(l.Stored(t.rowBytes)))
}

// AskedFor clears the mark of a prefetched row that no batch has read: a batch has its bytes from elsewhere.
func (t *Tier) AskedFor(row int64) {
	atomic.AndUint64(&t.part.ahead.Unused[row>>6], ^(uint64(1) << (row & 63)))
}

// UsedAhead returns how many prefetched rows batches have read in the tier.
func (t *Tier) UsedAhead() int64 {
	if t.part == nil {
		return 0
	}
	return t.part.ahead.Used.Load()
}

// RingRows returns about how many rows the ring can hold.
func (t *Tier) RingRows() int64 {
	return max(1, int64(len(t.part.ring.rows))*t.part.ring.segment/int64(slab.SlotBytes(t.part.mean)))
}

// RingBytes returns the bytes of the ring.
func (t *Tier) RingBytes() int64 { return int64(len(t.part.ring.rows)) * t.part.ring.segment }

// Withdraw makes the rows of the ring's oldest segment absent, and returns the words that devices must store. unused
// is how many of these rows were prefetched and never read. An epoch later the caller must call Reuse. ok is false if
// there is no such segment.
func (t *Tier) Withdraw() (words []Written, unused int64, ok bool) {
	t.writes.Lock()
	defer t.writes.Unlock()
	r := &t.part.ring
	if r.free+r.withdrawn >= len(r.rows)-1 {
		return nil, 0, false
	}
	oldest := (r.head + 1 + r.free + r.withdrawn) % len(r.rows)
	for _, one := range r.rows[oldest] {
		if t.at(one.row) != one.at { // the row has moved, or was never shown
			continue
		}
		if bit := uint64(1) << (one.row & 63); atomic.AndUint64(&t.part.ahead.Unused[one.row>>6], ^bit)&bit != 0 {
			unused++
		}
		w, _ := t.Hide(one.row)
		words = append(words, w)
	}
	r.rows[oldest] = r.rows[oldest][:0]
	r.withdrawn++
	return words, unused, true
}

// Reuse makes the segments empty that Withdraw has withdrawn. REQUIRES: an epoch has passed.
func (t *Tier) Reuse() {
	t.writes.Lock()
	defer t.writes.Unlock()
	t.part.ring.free += t.part.ring.withdrawn
	t.part.ring.withdrawn = 0
}

// replace is Write for a Partial tier. The new version replaces the old one, or the row becomes absent if there is no
// room for it. An absent row stays absent, as its newest version is below the tier.
func (t *Tier) replace(row int64, stored []byte, compressed bool) (w Written, ok bool) {
	was := t.at(row)
	if !was.Valid() {
		return w, false
	}
	now := absent
	if was.Offset() < t.part.ring.from {
		t.part.main.Free(was.Offset(), slab.SlotBytes(was.Stored(t.rowBytes)))
		if offset, room := t.part.main.Alloc(slab.SlotBytes(len(stored))); room {
			now = t.write(offset, stored, compressed)
		}
	}
	w, _ = t.Hide(row)
	if now.Valid() {
		w = t.Show(row, now, false)
	}
	return w, now != was
}

// Victims appends rows of the main region for which keep is false to rows, until their slots have the given bytes. It
// looks at the table's rows from number from on. It returns the rows, the number to continue from, and the bytes that
// are missing. REQUIRES: 0 ≤ from ≤ the table's rows.
func (t *Tier) Victims(rows []int64, from, bytes int64, keep func(row int64) bool) (all []int64, next, left int64) {
	for ; from < t.rows && bytes > 0; from++ {
		row := from
		l := t.at(row)
		if !l.Valid() || l.Offset() >= t.part.ring.from || keep(row) {
			continue
		}
		rows = append(rows, row)
		bytes -= int64(slab.SlotBytes(l.Stored(t.rowBytes)))
	}
	return slices.Clip(rows), from, bytes
}
