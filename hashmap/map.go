package hashmap

import (
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/tensorcache/tensorcache/slab"
)

// Map is a view of a map's memory. Find is safe beside one writer; writers must not run at once.
type Map struct {
	layout  Layout
	words   []uint64 // key and location of each slot
	onStore func(word int64, value uint64)
}

// Entry is a key and where its row lies.
type Entry struct {
	Key      uint64
	Location slab.Location
}

// View returns the map that lies in mem, which must be l.Bytes() long and aligned to 8 bytes. The host must be
// little-endian.
func View(mem []byte, l Layout) *Map {
	if int64(len(mem)) != l.Bytes() || uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%8 != 0 {
		panic(fmt.Sprintf("hashmap: memory (%d bytes) must be %d bytes, aligned to 8", len(mem), l.Bytes()))
	}
	return &Map{layout: l, words: unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/8)}
}

// Layout returns the map's geometry.
func (m *Map) Layout() Layout { return m.layout }

// OnStore has every store of Insert, Erase, Delete and Reclaim reported to f: the index of a 64-bit word of the map's
// memory and its new value. Whoever repeats the stores in their order on a copy of that memory keeps it equal, under the
// same rules for its readers.
func (m *Map) OnStore(f func(word int64, value uint64)) { m.onStore = f }

// store is a store that readers may see.
func (m *Map) store(word int, value uint64) {
	atomic.StoreUint64(&m.words[word], value)
	if m.onStore != nil {
		m.onStore(int64(word), value)
	}
}

// Clear empties the map. No reader may run.
func (m *Map) Clear() {
	for i := range m.words {
		m.words[i] = ^uint64(0)
	}
}

// Find returns the location of key, or the word that says why there is none; a key that is not in the map is cold.
func (m *Map) Find(key uint64) slab.Location {
	home := m.layout.home(Hash(key))
	end := 2 * BucketSlots * (int(m.layout.last(home)) + 1)
	for i := 2 * BucketSlots * int(home); i < end; i += 2 {
		switch atomic.LoadUint64(&m.words[i]) {
		case key:
			return slab.Location(atomic.LoadUint64(&m.words[i+1]))
		case EmptyKey:
			return slab.NoLocation(slab.Cold)
		}
	}
	return slab.NoLocation(slab.Cold)
}

// Build fills the map with the entries, whose order does not matter: equal entries give equal bytes. It sorts them by
// hash and sets each at its home or right after its predecessor, whichever is further. The entries that do not fit
// within MaxProbe are returned; their rows are not cached. No reader may run. Keys must be distinct and not reserved.
func (m *Map) Build(entries []Entry) (rejected []Entry, err error) {
	m.Clear()
	type hashed struct {
		hash uint64
		Entry
	}
	sorted := make([]hashed, len(entries))
	for i, e := range entries {
		if e.Key >= deletedKey {
			return nil, fmt.Errorf("hashmap: key (%#x) is reserved", e.Key)
		}
		sorted[i] = hashed{Hash(e.Key), e}
	}
	slices.SortFunc(sorted, func(a, b hashed) int {
		if a.hash < b.hash {
			return -1
		}
		return 1
	})
	next := int64(0)
	for i, e := range sorted {
		if i > 0 && e.Key == sorted[i-1].Key {
			table, row := SplitKey(e.Key)
			return nil, fmt.Errorf("hashmap: key (table %d row %d) must not be given twice", table, row)
		}
		home := m.layout.home(e.hash)
		at := max(next, int64(home)*BucketSlots)
		if at >= (int64(m.layout.last(home))+1)*BucketSlots {
			rejected = append(rejected, e.Entry)
			continue
		}
		m.words[2*at], m.words[2*at+1] = e.Key, uint64(e.Location)
		next = at + 1
	}
	return rejected, nil
}

// Insert publishes the location of key: a new key, an erased one, or one that moves. It returns false, and changes
// nothing, when no slot within the key's probe is free: the row is then rejected.
func (m *Map) Insert(key uint64, l slab.Location) bool {
	if key >= deletedKey {
		panic(fmt.Sprintf("hashmap: key (%#x) is reserved", key))
	}
	free := -1
	home := m.layout.home(Hash(key))
	end := 2 * BucketSlots * (int(m.layout.last(home)) + 1)
probe:
	for i := 2 * BucketSlots * int(home); i < end; i += 2 {
		switch m.words[i] {
		case key:
			m.store(i+1, uint64(l))
			return true
		case deletedKey:
			if free < 0 && slab.Location(m.words[i+1]) == reclaimed {
				free = i
			}
		case EmptyKey:
			if free < 0 {
				free = i
			}
			break probe
		}
	}
	if free < 0 {
		return false
	}
	m.store(free+1, uint64(l))
	m.store(free, key)
	return true
}

// Erase withdraws the location of key; later finds miss with the reason. It returns false when key is not in the map.
// The slot stays the key's until Delete.
func (m *Map) Erase(key uint64, why slab.Reason) bool {
	i := m.slot(key)
	if i < 0 {
		return false
	}
	m.store(i+1, uint64(slab.NoLocation(why)))
	return true
}

// Delete takes an erased key out of the map and returns its slot, for Reclaim after an epoch; ok is false when the key
// is not in the map or still has a location.
func (m *Map) Delete(key uint64) (slot int64, ok bool) {
	i := m.slot(key)
	if i < 0 || slab.Location(m.words[i+1]).Valid() {
		return 0, false
	}
	m.store(i, deletedKey)
	return int64(i / 2), true
}

// Reclaim lets Insert use a slot that Delete returned an epoch ago.
func (m *Map) Reclaim(slot int64) {
	if m.words[2*slot] != deletedKey {
		panic(fmt.Sprintf("hashmap: slot %d is not deleted", slot))
	}
	m.store(int(2*slot+1), uint64(reclaimed))
}

// slot returns the index of key's words, or -1.
func (m *Map) slot(key uint64) int {
	home := m.layout.home(Hash(key))
	end := 2 * BucketSlots * (int(m.layout.last(home)) + 1)
	for i := 2 * BucketSlots * int(home); i < end; i += 2 {
		switch m.words[i] {
		case key:
			return i
		case EmptyKey:
			return -1
		}
	}
	return -1
}

// Slot returns the number of the slot that holds key, below Layout.Slots; ok is false when the map does not hold it.
func (m *Map) Slot(key uint64) (slot int64, ok bool) {
	i := m.slot(key)
	return int64(i / 2), i >= 0
}

// All yields the keys that have a location. Stores of the writer meanwhile may be seen or not.
func (m *Map) All() iter.Seq2[uint64, slab.Location] {
	return func(yield func(uint64, slab.Location) bool) {
		for i := 0; i < len(m.words); i += 2 {
			key := atomic.LoadUint64(&m.words[i])
			if key >= deletedKey {
				continue
			}
			if l := slab.Location(atomic.LoadUint64(&m.words[i+1])); l.Valid() && !yield(key, l) {
				return
			}
		}
	}
}

// Room says whether Insert would put key.
func (m *Map) Room(key uint64) bool {
	home := m.layout.home(Hash(key))
	end := 2 * BucketSlots * (int(m.layout.last(home)) + 1)
	free := false
	for i := 2 * BucketSlots * int(home); i < end; i += 2 {
		switch m.words[i] {
		case key, EmptyKey:
			return true
		case deletedKey:
			free = free || slab.Location(m.words[i+1]) == reclaimed
		}
	}
	return free
}

// Rivals yields the keys in the slots that key could be put in, erased ones too: with one of them gone, Insert finds a slot
// for key. It is for the writer.
func (m *Map) Rivals(key uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		home := m.layout.home(Hash(key))
		end := 2 * BucketSlots * (int(m.layout.last(home)) + 1)
		for i := 2 * BucketSlots * int(home); i < end; i += 2 {
			if k := m.words[i]; k < deletedKey && !yield(k) {
				return
			}
		}
	}
}
