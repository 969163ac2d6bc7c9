package hashmap

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/tensorcache/tensorcache/slab"
)

// Map is a view of a map's memory. Find is safe beside one writer; writers must not run at once.
type Map struct {
	layout Layout
	words  []uint64 // key and location of each slot
}

// Entry is a key and where its row lies.
type Entry struct {
	Key      uint64
	Location slab.Location
}

// bucket is the keys and locations of a bucket's slots.
type bucket [2 * BucketSlots]uint64

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

func (m *Map) bucket(b uint32) *bucket { return (*bucket)(m.words[2*BucketSlots*int(b):]) }

// Clear empties the map. No reader may run.
func (m *Map) Clear() {
	for i := range m.words {
		m.words[i] = ^uint64(0)
	}
}

// Find returns the location of key, or the word that says why there is none; a key that is not in the map is cold.
func (m *Map) Find(key uint64) slab.Location {
	p, want := m.layout.probe(Hash(key)), key|hintBits
	hintWord, _ := p.hintAt()
	for {
		b := m.bucket(p.bucket)
		for i := 0; i < len(b); i += 2 {
			if atomic.LoadUint64(&b[i])|hintBits == want {
				return slab.Location(atomic.LoadUint64(&b[i+1]))
			}
		}
		if !p.follow(p.hint(atomic.LoadUint64(&b[hintWord]))) {
			return slab.NoLocation(slab.Cold)
		}
	}
}

// Insert publishes the location of key: a new key, an erased one, or one that moves. It returns false, and changes
// nothing, when no slot within the key's probe is free: the row is then rejected.
func (m *Map) Insert(key uint64, l slab.Location) bool {
	if !isKey(key) {
		panic(fmt.Sprintf("hashmap: key (%#x) is reserved", key))
	}
	p, want := m.layout.probe(Hash(key)), key|hintBits
	hintWord, _ := p.hintAt()
	// The words of hints that will lead to the key: a probe may come to the same bucket again.
	var hinted [MaxProbe]struct {
		word *uint64
		with uint64
	}
	hints, free := 0, -1
	for {
		b, at := m.bucket(p.bucket), 2*BucketSlots*int(p.bucket)
		for i := 0; i < len(b); i += 2 {
			if b[i]|hintBits == want {
				atomic.StoreUint64(&b[i+1], uint64(l))
				return true
			}
			if free < 0 && b.isFree(i) {
				free = at + i
			}
		}
		word := b[hintWord]
		for _, h := range hinted[:hints] {
			if h.word == &b[hintWord] {
				word = h.with
			}
		}
		hint := p.hint(word)
		if hint == noHint {
			if free >= 0 {
				break
			}
			if p.hops == MaxProbe {
				return false
			}
			hint, _ = m.choose(&p)
			hinted[hints].word, hinted[hints].with = &b[hintWord], p.withHint(word, hint)
			hints++
		}
		if !p.follow(hint) {
			break
		}
	}
	if free < 0 {
		return false
	}
	for _, h := range hinted[:hints] {
		atomic.StoreUint64(h.word, h.with)
	}
	atomic.StoreUint64(&m.words[free+1], uint64(l))
	atomic.StoreUint64(&m.words[free], key|m.words[free]&hintBits)
	return true
}

// choose returns the first hint that leads from the probe's bucket to one with a free slot, or any where there is none: the
// probe then goes on from there.
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

// isFree says whether Insert may use the slot with word i.
func (b *bucket) isFree(i int) bool {
	return b[i] == EmptyKey || b[i]|hintBits == deletedKey && slab.Location(b[i+1]) == reclaimed
}

// Erase withdraws the location of key; later finds miss with the reason. It returns false when key is not in the map.
// The slot stays the key's until Delete.
func (m *Map) Erase(key uint64, why slab.Reason) bool {
	i := m.slot(key)
	if i < 0 {
		return false
	}
	atomic.StoreUint64(&m.words[i+1], uint64(slab.NoLocation(why)))
	return true
}

// Delete takes an erased key out of the map and returns its slot, for Reclaim after an epoch; ok is false when the key
// is not in the map or still has a location.
func (m *Map) Delete(key uint64) (slot int64, ok bool) {
	i := m.slot(key)
	if i < 0 || slab.Location(m.words[i+1]).Valid() {
		return 0, false
	}
	atomic.StoreUint64(&m.words[i], deletedKey&^hintBits|m.words[i]&hintBits)
	return int64(i / 2), true
}

// Reclaim lets Insert use a slot that Delete returned an epoch ago.
func (m *Map) Reclaim(slot int64) {
	if m.words[2*slot]|hintBits != deletedKey {
		panic(fmt.Sprintf("hashmap: slot %d is not deleted", slot))
	}
	atomic.StoreUint64(&m.words[2*slot+1], uint64(reclaimed))
}

// slot returns the index of key's words, or -1.
func (m *Map) slot(key uint64) int {
	p, want := m.layout.probe(Hash(key)), key|hintBits
	hintWord, _ := p.hintAt()
	for {
		b := m.bucket(p.bucket)
		for i := 0; i < len(b); i += 2 {
			if b[i]|hintBits == want {
				return 2*BucketSlots*int(p.bucket) + i
			}
		}
		if !p.follow(p.hint(b[hintWord])) {
			return -1
		}
	}
}
