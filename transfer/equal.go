package transfer

import (
	"bytes"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/slab"
)

// Rows of a tier that is being packed are hashed in parts of equalPart, and looked up in groups of equalGroup.
const equalPart = 1 << 16

// equalRows are the rows that share a place in a tier that is being packed.
type equalRows struct {
	equalSearch
	hashes []uint64 // of the rows of the current part
	t      *Tier
	places bitset // rows whose place has several rows
	copies bitset // these rows, without the first of each place
	n      int64  // rows in places
	bytes  int64  // slot bytes of these places
}

func (t *Tier) newEqualRows() *equalRows {
	return &equalRows{equalSearch: newEqualSearch(t.total.StoredBytes, t.rows), hashes: make([]uint64, min(t.rows, equalPart)), t: t}
}

// bitset has a bit for each row. Lower rows have lower bits in its words.
type bitset []uint64

func (b bitset) has(row int64) bool { return len(b) != 0 && b[row>>6]>>(row&63)&1 != 0 }
func (b bitset) set(row int64)      { b[row>>6] |= 1 << (row & 63) }
func (b bitset) clear(row int64)    { b[row>>6] &^= 1 << (row & 63) }

// setShared is set, but several goroutines may call it at once.
func (b bitset) setShared(row int64) { atomic.OrUint64(&b[row>>6], 1<<(row&63)) }

func newBitset(rows int64) bitset { return make(bitset, (rows+63)/64) }

// bytesOf returns the stored bytes of a row that has not been packed yet. length is 0 for raw rows.
func (e *equalRows) bytesOf(row int64, length uint32) []byte {
	n := int(length)
	if n == 0 {
		n = e.t.rowBytes
	}
	return e.t.host.Mem.Bytes()[row*e.t.host.Stride:][:n]
}

// part hashes the rows from first on, which have the given stored lengths.
func (e *equalRows) part(workers interruptible, first int64, lengths []uint32) {
	workers.For(len(lengths), packGrain, func(from, to int) {
		for i := from; i < to; i++ {
			e.hashes[i] = xxh3.Hash(e.bytesOf(first+int64(i), lengths[i]))
		}
	})
}

// place looks for an earlier row with the same stored bytes as a row of the part. It returns that row's place, which
// the two then share. ok is false if there is none. locations are those of the earlier rows.
func (e *equalRows) place(row int64, length uint32, hash uint64, locations []slab.Location) (l slab.Location, ok bool) {
	earlier, _, ok := e.find(row, hash, func(earlier int64) bool {
		l = locations[earlier]
		stored, n := e.bytesOf(row, length), l.Stored(e.t.rowBytes)
		return l.Compressed() == (length != 0) && n == len(stored) && bytes.Equal(stored, e.t.host.Mem.Bytes()[earlier*e.t.host.Stride:][:n])
	})
	if ok {
		e.share(earlier, row, l)
	}
	return l, ok
}

// share records that a row shares the place of an earlier one.
func (e *equalRows) share(earlier, row int64, l slab.Location) {
	if e.places == nil {
		e.places, e.copies = newBitset(e.t.capacity), newBitset(e.t.rows)
	}
	if !e.places.has(earlier) {
		e.places.set(earlier)
		e.n++
		e.bytes += int64(slab.SlotBytes(l.Stored(e.t.rowBytes)))
	}
	e.places.set(row)
	e.copies.set(row)
	e.n++
}

// sharers says how many rows lie at each shared place of a packed tier. The zero value has no places.
type sharers struct {
	offsets []int64 // of the places, in ascending order
	rows    []int64
}

// newSharers counts the rows of a set by place. All of them lie at shared places. A place's offset is above those of
// all rows before its first row.
func newSharers(workers device.Workers, several bitset, locations []slab.Location) (s sharers) {
	last := int64(-1)
	eachRow(host.Workers(1), several, func(row int64) {
		if at := locations[row].Offset(); at > last {
			s.offsets, last = append(s.offsets, at), at
		}
	})
	s.offsets = slices.Clip(s.offsets)
	s.rows = make([]int64, len(s.offsets))
	eachRow(workers, several, func(row int64) { atomic.AddInt64(&s.rows[s.number(locations[row])], 1) })
	return s
}

// number returns the number of a place, from 0 on.
func (s *sharers) number(l slab.Location) int {
	n, _ := slices.BinarySearch(s.offsets, l.Offset())
	return n
}

// of returns how many rows lie at a place.
func (s *sharers) of(l slab.Location) int64 { return s.rows[s.number(l)] }

// leave removes one row from a place, and returns how many remain.
func (s *sharers) leave(l slab.Location) int64 {
	n := s.number(l)
	s.rows[n]--
	return s.rows[n]
}

// memory returns the bytes that s takes.
func (s *sharers) memory() int64 { return int64(8*len(s.offsets) + 8*len(s.rows)) }

// eachRow calls f for each row of a set, from several goroutines for different parts of the set.
func eachRow(workers device.Workers, set bitset, f func(row int64)) {
	workers.For(len(set), setGrain, func(from, to int) {
		for w := from; w < to; w++ {
			for word := set[w]; word != 0; word &= word - 1 {
				f(int64(w)<<6 + int64(bits.TrailingZeros64(word)))
			}
		}
	})
}

// Place identifies equal rows of a tier. In a packed tier it is the place at which they lie, and stays the same until
// Repack. In an in-place tier it is their group.
//
//	[63:38]  packed tiers: how often Repack has run
//	[37:0]   packed tiers: the place's offset ÷ align; in place: the number of the group
type Place uint64

// packShift is the number of bits of a Place below the count of packs.
const packShift = 38

// Shared returns the place that a row shares with others, or the group of a row in place, and its number of rows. ok
// is false for a row that shares nothing. Shared may run beside Write.
func (t *Tier) Shared(row int64) (p Place, rows int64, ok bool) {
	if !t.shares.Load() {
		return p, 0, false
	}
	t.writes.RLock()
	defer t.writes.RUnlock()
	if t.vacated {
		return p, 0, false
	}
	if t.mode == InPlace {
		id, rows := t.groups.of(row)
		return Place(id), rows, id != 0
	}
	l := t.locations()[row]
	if t.place(l, row) != 0 {
		return p, 0, false
	}
	if rows = t.capacity - t.owned; row < t.owned {
		rows = t.sharers.of(l)
	}
	return t.placeAt(l.Offset()), rows, true
}

// placeAt returns the place at an offset of a packed tier.
func (t *Tier) placeAt(offset int64) Place {
	return Place(uint64(t.packs)<<packShift | uint64(offset/align))
}

// Shares says whether Shared may be true for any row.
func (t *Tier) Shares() bool { return t.shares.Load() }

// SharedBytes returns the part of Totals.SlotBytes that belongs to shared places and groups.
func (t *Tier) SharedBytes() int64 {
	t.writes.RLock()
	defer t.writes.RUnlock()
	return t.sharedBytes
}

// Hash returns a number for use in hash tables.
func (p Place) Hash() uint64 { return bits.RotateLeft64(uint64(p), 20) }
