package hashmap

import "math"

// Hints that no key needs any more lengthen the probes of absent keys: if they stayed, such a lookup would read 10 buckets
// instead of 1.05 after ten deletes per key. So the writer counts, from the first Delete on, the keys of each group that
// overflowed from each bucket, and resets the hint to noHint when the last of them is deleted. A reader that has already
// followed the hint finds nothing, as it would have before.
//
// A count that has reached overflowLimit is no longer exact. It keeps this value, and its hint stays.
const overflowLimit = math.MaxUint8

// eachOverflow calls f for every bucket that a lookup of key overflows from on its way to the key word with index slot: with
// the index of the count, the index of the word that holds the hint, and the probe.
func (m *Map) eachOverflow(key uint64, slot int, f func(count, word int, p *probe)) {
	last := uint32(slot / (2 * BucketSlots))
	p := m.layout.probe(Hash(key))
	hintWord, _ := p.hintAt()
	for p.bucket != last {
		word := 2*BucketSlots*int(p.bucket) + hintWord
		hint := p.hint(m.words[word])
		f(int(p.bucket)*groups+int(p.low%groups), word, &p)
		if !p.follow(hint) {
			return
		}
	}
}

// addOverflows counts key in the buckets that it overflowed from.
func (m *Map) addOverflows(key uint64, slot int) {
	m.eachOverflow(key, slot, func(count, _ int, _ *probe) {
		if m.overflows[count] < overflowLimit {
			m.overflows[count]++
		}
	})
}

// removeOverflows undoes addOverflows and resets hints that no key needs any more.
func (m *Map) removeOverflows(key uint64, slot int) {
	m.eachOverflow(key, slot, func(count, word int, p *probe) {
		if m.overflows[count] == overflowLimit {
			return
		}
		if m.overflows[count]--; m.overflows[count] == 0 {
			m.store(word, p.withHint(m.words[word], noHint))
		}
	})
}

// countOverflows makes the counts for all keys in the map.
func (m *Map) countOverflows() {
	m.overflows = make([]uint8, int(m.layout.Buckets)*groups)
	for i := 0; i < len(m.words); i += 2 {
		if key := m.words[i]; key|hintBits < deletedKey {
			m.addOverflows(key&^hintBits, i)
		}
	}
}
