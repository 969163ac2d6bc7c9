package transfer

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// ErrFull is returned by Write if a packed tier has no space for a row. Repack makes space.
var ErrFull = errors.New("transfer: packed host tier is full")

// One byte in packedSpare of a packed tier is free space for rows that grow.
const packedSpare = 32

// spare plans the memory behind the rows of a packed tier, which take size bytes. It begins with a row of zeros,
// which all further rows up to the capacity share until they are written. Then comes space for these rows, and for
// rows that grow. A tier that cannot grow gets the space only at its first write. spare returns the total bytes.
func (t *Tier) spare(locations []slab.Location, size int64, written bool) int64 {
	more := t.capacity - t.rows
	if more > 0 {
		for r := t.rows; r < t.capacity; r++ {
			locations[r] = slab.Raw(0, size)
		}
		size += roundUp(int64(t.rowBytes))
	}
	t.owned, t.tailFrom, t.tail = t.rows, (size+slab.Align-1)&^(slab.Align-1), slab.NewAllocator(0, 0)
	if more == 0 && !written {
		return size
	}
	places := int64(slab.SlotBytes(t.rowBytes))
	bytes := max(size/packedSpare, 4*places) + more*places
	t.tail = slab.NewAllocator(0, max(0, min(bytes, slab.MaxBytes-slab.TailSlack-t.tailFrom)))
	return t.tailFrom + t.tail.Capacity()
}

// Grow extends the tier to at least the given number of rows, which must not exceed the capacity. New rows are zeros until Write has written them.
func (t *Tier) Grow(rows int64) {
	t.writes.Lock()
	defer t.writes.Unlock()
	if more := rows - t.Rows(); more > 0 {
		defer t.keepTotals()
		t.keep.setRows(rows) // first: the next owner must have each row that batches have found
		t.added.Add(more)
		t.total.RawRows += more
		t.total.RawBytes += more * int64(t.rowBytes)
		t.total.StoredBytes += more * int64(t.rowBytes)
		t.total.SlotBytes += more * int64(slab.SlotBytes(t.rowBytes))
	}
}

// Written is a 64-bit word to store in every device's copy of the row bits (in place) or of the index (packed).
// kernels.Store does it.
type Written struct{ Index, Value uint64 }

// Write replaces a row, which must be below Rows. stored is the codec's output, or the row as it is, in memory outside the tier.
// If ok is true, the caller must store the returned word on every device before any batch reads the row from the tier. If the
// error is ErrFull, nothing has changed. Writes must not run concurrently.
func (t *Tier) Write(row int64, stored []byte, compressed bool) (w Written, ok bool, err error) {
	t.writes.Lock()
	defer t.writes.Unlock()
	if rows := t.Rows(); row >= rows {
		return w, false, fmt.Errorf("transfer: row %d: must be 0 to %d", row, rows-1)
	}
	if t.part != nil {
		w, ok = t.replace(row, stored, compressed)
		return w, ok, nil
	}
	before, _, err := t.Stored(row)
	if err != nil {
		return w, false, err
	}
	old := len(before)
	mem := t.host.Mem.Bytes()
	if compressed && t.lacksTail(row, len(stored)) {
		plain := make([]byte, t.rowBytes)
		if _, err := t.codec.Decode(plain, stored); err != nil {
			return w, false, fmt.Errorf("transfer: row %d: %w", row, err)
		}
		stored, compressed = plain, false
	}
	if t.mode == InPlace {
		if left, ok := t.groups.leave(row); ok {
			t.left(left, old)
		}
		copy(mem[row*t.host.Stride:], stored)
		if words := view[uint64](t.host.Compressed); len(words) != 0 {
			bit := uint64(1) << (row & 63)
			value := words[row>>6] &^ bit
			if compressed {
				value |= bit
			}
			if ok = value != words[row>>6]; ok {
				atomic.StoreUint64(&words[row>>6], value)
				w = Written{uint64(row >> 6), value}
			}
		} else if compressed {
			return w, false, fmt.Errorf("transfer: row %d: a table of raw rows cannot have a compressed one", row)
		}
	} else {
		index := t.locations()
		l := index[row]
		room := t.place(l, row)
		at := l.Offset()
		if int64(len(stored)) > room {
			offset, free := t.tail.Alloc(slab.SlotBytes(len(stored)))
			if !free {
				return w, false, ErrFull
			}
			if t.inTail(l) {
				t.tail.Free(at-t.tailFrom, int(room))
			}
			at = t.tailFrom + offset
		} else if t.inTail(l) { // the length may have changed, so the row gets new space
			t.tail.Free(at-t.tailFrom, int(room))
			offset, _ := t.tail.Alloc(slab.SlotBytes(len(stored)))
			at = t.tailFrom + offset
		}
		if t.several.has(row) {
			t.leave(row, l)
		}
		copy(mem[at:], stored)
		now := slab.Raw(0, at)
		if compressed {
			now = slab.Compressed(0, at, len(stored))
		}
		if ok = now != l; ok {
			atomic.StoreUint64((*uint64)(&index[row]), uint64(now))
			w = Written{uint64(row), uint64(now)}
		}
	}
	defer t.keepTotals()
	t.total.StoredBytes += int64(len(stored) - old)
	t.total.SlotBytes += int64(slab.SlotBytes(len(stored)) - slab.SlotBytes(old))
	if was := old == t.rowBytes; was && compressed {
		t.total.RawRows--
	} else if !was && !compressed {
		t.total.RawRows++
	}
	return w, ok, nil
}

// leave records that a row with a new version no longer lies at a shared place.
func (t *Tier) leave(row int64, l slab.Location) {
	t.several.clear(row)
	t.left(t.sharers.leave(l), l.Stored(t.rowBytes))
}

// left records that a row has left equal rows of the given stored length. rows is how many remain.
func (t *Tier) left(rows int64, stored int) {
	t.total.EqualRows--
	if rows > 0 { // Write subtracts the old version's slot, but that slot remains
		t.total.SlotBytes += int64(slab.SlotBytes(stored))
		return
	}
	t.sharedBytes -= int64(slab.SlotBytes(stored))
}

func (t *Tier) locations() []slab.Location { return view[slab.Location](t.host.Index) }

func (t *Tier) inTail(l slab.Location) bool { return l.Offset() >= t.tailFrom }

// place returns the bytes that a row may use where it lies in a packed tier. It is 0 for a row that shares its place.
func (t *Tier) place(l slab.Location, row int64) int64 {
	n := l.Stored(t.rowBytes)
	switch {
	case t.inTail(l):
		return int64(slab.SlotBytes(n))
	case row >= t.owned, t.several.has(row):
		return 0
	}
	return roundUp(int64(n))
}

// Repack moves the rows of a packed tier to new memory with free space, and returns the old memory. The caller must
// attach the tier to the devices again, and free the old memory when no batch reads it any more. Until then the tier
// takes host memory twice.
func (t *Tier) Repack() (old kernels.HostRows, err error) {
	t.writes.Lock()
	defer t.writes.Unlock()
	from := t.locations()
	rows := t.Rows()
	index, err := t.allocHost(indexRole, t.capacity*8, "host tier index")
	if err != nil {
		return old, err
	}
	next := &Tier{mode: t.mode, rows: rows, rowBytes: t.rowBytes, capacity: t.capacity, host: kernels.HostRows{Index: index}}
	to := next.locations()
	size, slots, sharedBytes := int64(0), int64(0), int64(0)
	places := map[int64]slab.Location{} // new locations of shared places, by old offset
	for r := range rows {
		l := from[r]
		shared := t.place(l, r) == 0
		if shared && t.several == nil {
			t.several = newBitset(t.capacity)
		}
		if shared && !t.several.has(r) { // not at a shared place, so it shares the row of zeros
			t.several.set(r)
			t.total.EqualRows++
		}
		if at, ok := places[l.Offset()]; ok && shared {
			to[r] = at
			continue
		}
		if l.Compressed() {
			to[r] = slab.Compressed(0, size, l.Stored(t.rowBytes))
		} else {
			to[r] = slab.Raw(0, size)
		}
		if shared {
			places[l.Offset()] = to[r]
			sharedBytes += int64(slab.SlotBytes(l.Stored(t.rowBytes)))
		}
		size += roundUp(int64(l.Stored(t.rowBytes)))
		slots += int64(slab.SlotBytes(l.Stored(t.rowBytes)))
	}
	size = next.spare(to, size, true)
	mem, err := t.allocRows(size + slab.TailSlack)
	if err != nil {
		t.home.Free(index)
		return old, err
	}
	for r := range rows {
		copy(mem.Bytes()[to[r].Offset():], t.host.Mem.Bytes()[from[r].Offset():][:from[r].Stored(t.rowBytes)])
	}
	old = t.host
	t.host.Mem, t.host.Index = mem, index
	t.tail, t.tailFrom = next.tail, next.tailFrom
	t.owned = next.owned
	t.sharers, t.sharedBytes, t.total.SlotBytes = newSharers(host.Workers(0), t.several, to), sharedBytes, slots
	t.packs++
	t.shares.Store(len(t.sharers.rows) > 0 || t.capacity > rows)
	t.look()
	t.keepTotals()
	return old, t.keepPacked() // before anything is written to the new memory
}
