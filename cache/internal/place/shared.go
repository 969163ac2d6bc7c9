package place

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// Group names rows of a table that are equal, as its host tier knows.
type Group struct {
	place transfer.Place
	table uint32
}

// GroupAt returns the group of the rows that share a place of a table.
func GroupAt(table int, p transfer.Place) Group { return Group{p, uint32(table)} }

// GroupOf returns the group of a row that has equal ones, and how many rows the group has; ok is false for other rows.
func (s *Store) GroupOf(key uint64) (g Group, rows int64, ok bool) {
	table, row := hashmap.SplitKey(key)
	p, rows, ok := s.Set.Tables[table].Tier.Shared(row)
	return GroupAt(table, p), rows, ok
}

// SharedSlots are the slots that location words of several rows may name: equal rows have one slot in each slab where any of them lies. The slot is free when no
// word names it any more. The slots of other rows are not in Shared, and have one word each. The zero value has no slots. It is safe for concurrent use.
//
// A table may have millions of groups, and New adds all of them before the cache serves. So slots are in one array without pointers, and are found by two tables of
// their numbers: about 50 bytes for each slot.
type SharedSlots struct {
	mu    sync.RWMutex
	slots []SharedSlot // those without words are free
	free  []uint32     // numbers of the free ones
	// at finds the slots that more rows of a group are put in, by group and slab. by finds all slots by location: while rows move, and after it, a group has
	// several.
	at, by hashTable
	// twins has, for a slot that words move to or come from, the other one. One of the two is counted in Slab.Reserved.
	twins map[uint32]uint32
	slabs uint8 // bits of the slabs that slots have been in
	// perTable has for each table how many slots there are, and how many words beyond one a slot.
	perTable []struct{ slots, saved int64 }
}

// SharedSlot is a slot of a group, and the number of location words that name it, or will.
type SharedSlot struct {
	Group    Group
	Location slab.Location
	Words    int64
}

// atHash and byHash are the hashes by which slots are found.
func atHash(g Group, slab int) uint64 {
	return hashmap.Hash(uint64(g.place) ^ uint64(g.table)<<48 ^ uint64(slab)<<56)
}
func byHash(l slab.Location) uint64 { return hashmap.Hash(uint64(l)) }

func (s *SharedSlots) atHashOf(n uint32) uint64 {
	return atHash(s.slots[n].Group, s.slots[n].Location.Slab())
}
func (s *SharedSlots) byHashOf(n uint32) uint64 { return byHash(s.slots[n].Location) }

// open returns the slot that more rows of a group are put in.
func (s *SharedSlots) open(g Group, slab int) (n uint32, ok bool) {
	return s.at.find(atHash(g, slab), func(n uint32) bool { return s.slots[n].Group == g && s.slots[n].Location.Slab() == slab })
}

// slot returns the slot at a location.
func (s *SharedSlots) slot(l slab.Location) (n uint32, ok bool) {
	return s.by.find(byHash(l), func(n uint32) bool { return s.slots[n].Location == l })
}

// count counts a slot of a table more or less, and words beyond one a slot.
func (s *SharedSlots) count(table uint32, slots, saved int64) {
	for int(table) >= len(s.perTable) {
		s.perTable = append(s.perTable, struct{ slots, saved int64 }{})
	}
	s.perTable[table].slots += slots
	s.perTable[table].saved += saved
}

// Load adds slots, which belong to different groups or slabs, to SharedSlots without any.
func (s *SharedSlots) Load(w device.Workers, slots []SharedSlot) {
	if len(slots) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots = make([]SharedSlot, len(slots))
	w.For(len(slots), loadGrain, func(from, to int) { copy(s.slots[from:to], slots[from:to]) })
	for i := range slots {
		s.count(slots[i].Group.table, 1, slots[i].Words-1)
		s.slabs |= 1 << slots[i].Location.Slab()
	}
	s.at.load(w, len(slots), s.atHashOf)
	s.by.load(w, len(slots), s.byHashOf)
}

// Take returns the slot of a group in a slab, which one more word will name; ok is false if there is none but the slot except.
func (s *SharedSlots) Take(g Group, id int, except slab.Location) (l slab.Location, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.open(g, id)
	if !ok {
		return l, false
	}
	if l = s.slots[n].Location; l == except {
		return l, false
	}
	s.slots[n].Words++
	s.count(g.table, 0, 1)
	return l, true
}

// Add adds a slot of a group, which one word will name. from, if it is a slot of the group in the same slab, is the one that words move from.
func (s *SharedSlots) Add(g Group, l, from slab.Location) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.slot(l); ok {
		panic(fmt.Sprintf("place: slot %v is shared already", l))
	}
	twin, moves := s.slot(from)
	n := uint32(len(s.slots))
	if last := len(s.free) - 1; last >= 0 {
		n, s.free = s.free[last], s.free[:last]
	} else {
		s.slots = append(s.slots, SharedSlot{})
	}
	s.slots[n] = SharedSlot{Group: g, Location: l, Words: 1}
	if moves {
		if s.twins == nil {
			s.twins = map[uint32]uint32{}
		}
		s.twins[n], s.twins[twin] = twin, n
	}
	if old, ok := s.open(g, l.Slab()); ok {
		s.at.remove(old, s.atHashOf)
	}
	s.at.add(n, s.atHashOf)
	s.by.add(n, s.byHashOf)
	s.slabs |= 1 << l.Slab()
	s.count(g.table, 1, 0)
}

// Moves says whether words move to or from a slot.
func (s *SharedSlots) Moves(l slab.Location) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n, ok := s.slot(l)
	if ok {
		_, ok = s.twins[n]
	}
	return ok
}

// Release notes that one word less names a slot. shared is false for a slot that is not in Shared. Otherwise, if it was the last word, the slot leaves
// Shared; reserved says whether it is to be counted in Slab.Reserved until it is free.
func (s *SharedSlots) Release(l slab.Location) (shared, last, reserved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.slot(l)
	if !ok {
		return false, true, false
	}
	slot := &s.slots[n]
	if slot.Words--; slot.Words > 0 {
		s.count(slot.Group.table, 0, -1)
		return true, false, false
	}
	s.by.remove(n, s.byHashOf)
	if open, ok := s.open(slot.Group, l.Slab()); ok && open == n {
		s.at.remove(n, s.atHashOf)
	}
	twin, reserved := s.twins[n]
	if reserved {
		delete(s.twins, twin)
		delete(s.twins, n)
	}
	s.count(slot.Group.table, -1, 0)
	*slot, s.free = SharedSlot{}, append(s.free, n)
	return true, true, reserved
}

// Of returns the group of a slot, and how many words name it; ok is false for a slot that is not in Shared.
func (s *SharedSlots) Of(l slab.Location) (g Group, words int64, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n, ok := s.slot(l)
	if !ok {
		return g, 0, false
	}
	return s.slots[n].Group, s.slots[n].Words, true
}

// Slabs returns the slabs where more rows of a group find a slot, as bits.
func (s *SharedSlots) Slabs(g Group) (bits uint8) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i := range SlabsOf(s.slabs) {
		if _, ok := s.open(g, i); ok {
			bits |= 1 << i
		}
	}
	return bits
}

// Any says whether there are slots in Shared.
func (s *SharedSlots) Any() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.by.n > 0
}

// Saved returns how many words of a table's rows there are beyond one for each slot in Shared.
func (s *SharedSlots) Saved(table int) int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if table >= len(s.perTable) {
		return 0
	}
	return s.perTable[table].saved
}

// Bytes returns a table's part of the memory of Shared, in proportion to the slots.
func (s *SharedSlots) Bytes(table int) int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.by.n == 0 || table >= len(s.perTable) {
		return 0
	}
	bytes := int64(cap(s.slots))*int64(unsafe.Sizeof(SharedSlot{})) + 4*int64(cap(s.free)+len(s.at.numbers)+len(s.by.numbers))
	return int64(float64(bytes) * float64(s.perTable[table].slots) / float64(s.by.n))
}

// Words yields each slot in Shared and how many words name it.
func (s *SharedSlots) Words(yield func(slab.Location, int64) bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i := range s.slots {
		if slot := &s.slots[i]; slot.Words > 0 && !yield(slot.Location, slot.Words) {
			return
		}
	}
}

// Targets is Topology.Targets for a row: equal rows are to lie in the same slabs.
func (s *Store) Targets(key uint64, copied bool, now Locations) uint8 {
	topology := s.Topology.Load()
	if len(s.Set.Devices) > 1 && !now.Valid() {
		if g, _, ok := s.GroupOf(key); ok {
			return topology.GroupTargets(g, copied, s.SharedSlots.Slabs(g))
		}
	}
	return topology.Targets(key, copied, now)
}

// GroupTargets is Targets for rows of a group, which has slots in some slabs.
func (s *Topology) GroupTargets(g Group, copied bool, have uint8) uint8 {
	return s.targets(hashmap.Key(int(g.table), int64(g.place.Hash()&(1<<50-1))), copied, have&s.Live)
}
