package hashmap

import (
	"fmt"
	"iter"
	"sync/atomic"
	"unsafe"

	"github.com/tensorcache/tensorcache/slab"
)

// Map is a view of a map's memory. Readers are safe beside one writer. Writers must not run at once.
type Map struct {
	layout    Layout
	words     []uint64 // key and location of each slot
	onStore   func(word int64, value uint64)
	overflows []uint8 // used by the writer: see overflowLimit; nil before the first Delete
}

// Entry is a key and where its row lies.
type Entry struct {
	Key      uint64
	Location slab.Location
}

// bucket is the keys and locations of a bucket's slots.
type bucket [2 * BucketSlots]uint64

// find returns the index of the location of a key, 0 if no slot holds the key. All four keys are compared without a branch: which slot
// holds a key is random, and a mispredicted branch takes longer.
func (b *bucket) find(want uint64) (at int) {
	if atomic.LoadUint64(&b[0])|hintBits == want {
		at = 1
	}
	if atomic.LoadUint64(&b[2])|hintBits == want {
		at = 3
	}
	if atomic.LoadUint64(&b[4])|hintBits == want {
		at = 5
	}
	if atomic.LoadUint64(&b[6])|hintBits == want {
		at = 7
	}
	return at
}

// View returns the map that lies in mem, which must be l.Bytes() long and aligned to 8 bytes. The host must be
// little-endian.
func View(mem []byte, l Layout) *Map {
	m := &Map{}
	m.Read(mem, l)
	return m
}

// Read makes m the map that View returns, without allocating.
func (m *Map) Read(mem []byte, l Layout) {
	if int64(len(mem)) != l.Bytes() || uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%8 != 0 {
		panic(fmt.Sprintf("hashmap: memory (%d bytes) must be %d bytes, aligned to 8", len(mem), l.Bytes()))
	}
	m.layout, m.words = l, unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/8)
}

// Layout returns the map's geometry.
func (m *Map) Layout() Layout { return m.layout }

// OnStore makes Insert, Erase, Delete and Reclaim report each of their stores to f: the index of a 64-bit word of the map's
// memory and its new value. Repeating these stores in order on a copy of the memory keeps the copy equal, and keeps the
// rules for its readers.
func (m *Map) OnStore(f func(word int64, value uint64)) { m.onStore = f }

// store stores a word that readers may load at the same time.
func (m *Map) store(word int, value uint64) {
	atomic.StoreUint64(&m.words[word], value)
	if m.onStore != nil {
		m.onStore(int64(word), value)
	}
}

func (m *Map) bucket(b uint32) *bucket { return (*bucket)(m.words[2*BucketSlots*int(b):]) }

// Clear empties the map. No reader may run.
func (m *Map) Clear() {
	for i := range m.words {
		m.words[i] = ^uint64(0)
	}
}

// Find returns the location of key, or the word with the reason why there is none: slab.Cold if the map does not hold key.
func (m *Map) Find(key uint64) slab.Location {
	p, want := m.layout.probe(Hash(key)), key|hintBits
	for {
		b := m.bucket(p.bucket)
		if at := b.find(want); at != 0 {
			return slab.Location(atomic.LoadUint64(&b[at]))
		}
		hintWord, _ := p.hintAt()
		if !p.follow(p.hint(atomic.LoadUint64(&b[hintWord]))) {
			return slab.NoLocation(slab.Cold)
		}
	}
}

// FindAll is Find of many keys. locations is as long as keys. all says that every location is valid.
func (m *Map) FindAll(keys []uint64, locations []slab.Location) (all bool) {
	locations = locations[:len(keys)]
	most := slab.Location(0) // words of keys without a location are larger than any location
	for i, key := range keys {
		hash, want := Hash(key), key|hintBits
		b := m.bucket(m.layout.home(hash))
		var l slab.Location
		if at := b.find(want); at != 0 {
			l = slab.Location(atomic.LoadUint64(&b[at]))
		} else {
			l = m.Find(key)
		}
		locations[i], most = l, max(most, l)
	}
	return most.Valid()
}

// Insert publishes the location of key, which may be new, erased, or present with another location. It returns false and
// changes nothing when no slot within the key's probe is free. The caller then rejects the row.
func (m *Map) Insert(key uint64, l slab.Location) bool {
	if !isKey(key) {
		panic(fmt.Sprintf("hashmap: key (%#x) is reserved", key))
	}
	var w walk
	known := m.walk(key, &w)
	if w.slot < 0 {
		return false
	}
	if known {
		m.store(w.slot+1, uint64(l))
		return true
	}
	for _, h := range w.hinted[:w.hints] {
		m.store(h.word, h.with)
	}
	if m.overflows != nil {
		m.addOverflows(key, w.slot)
	}
	m.store(w.slot+1, uint64(l))
	m.store(w.slot, key|m.words[w.slot]&hintBits)
	return true
}

// Room reports whether Insert would succeed for key.
func (m *Map) Room(key uint64) bool {
	var w walk
	m.walk(key, &w)
	return w.slot >= 0
}

// Rivals yields the keys, erased ones included, whose slots key could take: those of its home bucket first. After a key of
// the home bucket is deleted and reclaimed, Insert finds a slot for key. After another one it may still find none. Only the
// writer may call it.
func (m *Map) Rivals(key uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		var w walk
		m.walk(key, &w)
		for _, bucket := range w.buckets[:w.seen] {
			b := m.bucket(bucket)
			for i := 0; i < len(b); i += 2 {
				if k := b[i] &^ hintBits; b[i]|hintBits < deletedKey && !yield(k) {
					return
				}
			}
		}
	}
}

// walk is the result of the search for a key's slot before an insert.
type walk struct {
	slot    int // index of the slot's key word, or -1 if no slot is free
	buckets [MaxProbe + 1]uint32
	seen    int
	// The hints to set so that lookups reach the slot: the index of each key word and its new value.
	hinted [MaxProbe]struct {
		word int
		with uint64
	}
	hints int
}

// walk finds the slot that holds key (known is true), or the one that it can take.
func (m *Map) walk(key uint64, w *walk) (known bool) {
	p, want := m.layout.probe(Hash(key)), key|hintBits
	hintWord, _ := p.hintAt()
	w.slot = -1
	for {
		b, at := m.bucket(p.bucket), 2*BucketSlots*int(p.bucket)
		w.buckets[w.seen] = p.bucket
		w.seen++
		for i := 0; i < len(b); i += 2 {
			if b[i]|hintBits == want {
				w.slot, w.hints = at+i, 0
				return true
			}
			if w.slot < 0 && b.isFree(i) {
				w.slot = at + i
			}
		}
		word := b[hintWord]
		for _, h := range w.hinted[:w.hints] { // a probe may reach a bucket twice
			if h.word == at+hintWord {
				word = h.with
			}
		}
		hint := p.hint(word)
		if hint == noHint {
			if w.slot >= 0 || p.hops == MaxProbe {
				return false
			}
			hint, _ = m.choose(&p)
			w.hinted[w.hints].word, w.hinted[w.hints].with = at+hintWord, p.withHint(word, hint)
			w.hints++
		}
		if !p.follow(hint) {
			return false
		}
	}
}

// choose returns the first hint that leads to a bucket with a free slot. If there is none, it returns a hint that depends on
// the hash, and the probe continues from its bucket.
func (m *Map) choose(p *probe) (hint uint32, free bool) {
	for hint = range uint32(noHint) {
		b := m.bucket(p.next(hint))
		for i := 0; i < len(b); i += 2 {
			if b.isFree(i) {
				return hint, true
			}
		}
	}
	return p.low >> 8 % noHint, false
}

// isFree reports whether Insert may use the slot whose key is word i.
func (b *bucket) isFree(i int) bool {
	return b[i] == EmptyKey || b[i]|hintBits == deletedKey && slab.Location(b[i+1]) == reclaimed
}

// Erase removes the location of key. Later calls of Find return the reason. Erase returns false if the map does not hold
// key. The key keeps its slot until Delete.
func (m *Map) Erase(key uint64, why slab.Reason) bool {
	i := m.slot(key)
	if i < 0 {
		return false
	}
	m.store(i+1, uint64(slab.NoLocation(why)))
	return true
}

// Delete removes an erased key from the map and returns its slot, to be passed to Reclaim one epoch later. ok is false if the
// map does not hold the key, or holds it with a location.
func (m *Map) Delete(key uint64) (slot int64, ok bool) {
	i := m.slot(key)
	if i < 0 || slab.Location(m.words[i+1]).Valid() {
		return 0, false
	}
	if m.overflows == nil {
		m.countOverflows()
	}
	m.removeOverflows(key, i)
	m.store(i, deletedKey&^hintBits|m.words[i]&hintBits)
	return int64(i / 2), true
}

// Reclaim lets Insert reuse a slot that Delete returned. The epoch of the Delete must have passed.
func (m *Map) Reclaim(slot int64) {
	if m.words[2*slot]|hintBits != deletedKey {
		panic(fmt.Sprintf("hashmap: slot %d is not deleted", slot))
	}
	m.store(int(2*slot+1), uint64(reclaimed))
}

// slot returns the index of key's key word, or -1. It is safe beside the writer.
func (m *Map) slot(key uint64) int {
	p, want := m.layout.probe(Hash(key)), key|hintBits
	hintWord, _ := p.hintAt()
	for {
		b := m.bucket(p.bucket)
		for i := 0; i < len(b); i += 2 {
			if atomic.LoadUint64(&b[i])|hintBits == want {
				return 2*BucketSlots*int(p.bucket) + i
			}
		}
		if !p.follow(p.hint(atomic.LoadUint64(&b[hintWord]))) {
			return -1
		}
	}
}

// Slot returns the number of the slot that holds key, below Layout.Slots. ok is false if the map does not hold it. It is
// safe beside the writer.
func (m *Map) Slot(key uint64) (slot int64, ok bool) {
	i := m.slot(key)
	return int64(i / 2), i >= 0
}

// All yields the keys that have a location. It may or may not see concurrent stores of the writer.
func (m *Map) All() iter.Seq2[uint64, slab.Location] {
	return func(yield func(uint64, slab.Location) bool) {
		for i := 0; i < len(m.words); i += 2 {
			key := atomic.LoadUint64(&m.words[i])
			if key|hintBits >= deletedKey {
				continue
			}
			if l := slab.Location(atomic.LoadUint64(&m.words[i+1])); l.Valid() && !yield(key&^hintBits, l) {
				return
			}
		}
	}
}
