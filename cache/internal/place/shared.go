package place

import (
	"fmt"
	"sync"

	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// Group names rows of a table that are equal, as its host tier knows.
type Group struct {
	table int
	place transfer.Place
}

// GroupOf returns the group of a row that has equal ones, and how many rows the group has; ok is false for other rows.
func (s *Store) GroupOf(key uint64) (g Group, rows int64, ok bool) {
	table, row := hashmap.SplitKey(key)
	p, rows, ok := s.Set.Tables[table].Tier.Shared(row)
	return Group{table, p}, rows, ok
}

// Shared is the slots that location words of several rows may name: equal rows have one slot in each slab where any of them lies. The slot is free when no
// word names it any more. The slots of other rows are not in Shared, and have one word each. The zero value has no slots. It is safe for concurrent use.
type Shared struct {
	mu sync.RWMutex
	// slots are those that more rows of a group are put in. words has all, of which a group has others while, and after, rows move.
	slots map[groupSlab]slab.Location
	words map[slab.Location]*sharedSlot
	saved map[int]int64 // for each table how many words there are beyond one a slot
}

type groupSlab struct {
	group Group
	slab  int
}

type sharedSlot struct {
	group Group
	words int64 // location words that name the slot, or will
	// twin is the slot that words move to or come from, nil if there is none. One of the two is counted in Slab.Reserved.
	twin *sharedSlot
}

// Take returns the slot of a group in a slab, which one more word will name; ok is false if there is none but the slot except.
func (s *Shared) Take(g Group, id int, except slab.Location) (l slab.Location, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok = s.slots[groupSlab{g, id}]; !ok || l == except {
		return l, false
	}
	s.words[l].words++
	s.saved[g.table]++
	return l, true
}

// Add adds a slot of a group, which one word will name. from, if it is a slot of the group in the same slab, is the one that words move from.
func (s *Shared) Add(g Group, l, from slab.Location) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.words == nil {
		s.slots, s.words, s.saved = map[groupSlab]slab.Location{}, map[slab.Location]*sharedSlot{}, map[int]int64{}
	}
	if s.words[l] != nil {
		panic(fmt.Sprintf("place: slot %v is shared already", l))
	}
	slot := &sharedSlot{group: g, words: 1, twin: s.words[from]}
	if slot.twin != nil {
		slot.twin.twin = slot
	}
	s.slots[groupSlab{g, l.Slab()}], s.words[l] = l, slot
}

// Moves says whether words move to or from a slot.
func (s *Shared) Moves(l slab.Location) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.words[l] != nil && s.words[l].twin != nil
}

// Release notes that one word less names a slot. shared is false for a slot that is not in Shared. Otherwise, if it was the last word, the slot leaves
// Shared; reserved says whether it is to be counted in Slab.Reserved until it is free.
func (s *Shared) Release(l slab.Location) (shared, last, reserved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.words[l]
	if slot == nil {
		return false, true, false
	}
	if slot.words--; slot.words > 0 {
		s.saved[slot.group.table]--
		return true, false, false
	}
	delete(s.words, l)
	if at := (groupSlab{slot.group, l.Slab()}); s.slots[at] == l {
		delete(s.slots, at)
	}
	if slot.twin != nil {
		slot.twin.twin = nil
		return true, true, true
	}
	return true, true, false
}

// Of returns the group of a slot, and how many words name it; ok is false for a slot that is not in Shared.
func (s *Shared) Of(l slab.Location) (g Group, words int64, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if slot := s.words[l]; slot != nil {
		return slot.group, slot.words, true
	}
	return g, 0, false
}

// Slabs returns the slabs where more rows of a group find a slot, as bits.
func (s *Shared) Slabs(g Group) (bits uint8) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i := range slab.MaxSlabs {
		if _, ok := s.slots[groupSlab{g, i}]; ok {
			bits |= 1 << i
		}
	}
	return bits
}

// Any says whether there are slots in Shared.
func (s *Shared) Any() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.words) > 0
}

// Saved returns how many words of a table's rows there are beyond one for each slot in Shared.
func (s *Shared) Saved(table int) int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.saved[table]
}

// Words yields each slot in Shared and how many words name it.
func (s *Shared) Words(yield func(slab.Location, int64) bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for l, slot := range s.words {
		if !yield(l, slot.words) {
			return
		}
	}
}

// Targets is Topology.Targets for a row: equal rows are to lie in the same slabs.
func (s *Store) Targets(key uint64, copied bool, now Places) uint8 {
	topology := s.Topology.Load()
	if len(s.Set.Devices) == 1 || now.Valid() {
		return topology.Targets(key, copied, now)
	}
	g, _, ok := s.GroupOf(key)
	if !ok {
		return topology.Targets(key, copied, now)
	}
	var all []slab.Location
	for i := range SlabsOf(s.Shared.Slabs(g) & topology.Live) {
		all = append(all, slab.Raw(i, 0)) // Targets asks for the slab alone
	}
	return topology.Targets(hashmap.Key(g.table, int64(g.place.Hash()&(1<<50-1))), copied, Of(all))
}
