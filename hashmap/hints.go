package hashmap

import "math"

// Hints that nothing needs any more make lookups of keys that are not there longer and longer: without more ado, after ten
// times as many deletes as there are keys, such a lookup reads 10 buckets instead of 1.05. So the writer counts, from the
// first Delete on, how many keys went on from each bucket, by group, and takes the hint back with the last of them: readers
// that have followed it find nothing, as they would have.
//
// A count that has reached its limit stays there, and its hint too.
const passLimit = math.MaxUint8

// passes calls f for every bucket that a lookup of key, whose word has the index slot, goes on from: with the place of the
// count, the index of the word with the hint, and the probe.
func (m *Map) passes(key uint64, slot int, f func(count, word int, p *probe)) {
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

// pass counts the buckets that key goes on from to its slot.
func (m *Map) pass(key uint64, slot int) {
	m.passes(key, slot, func(count, _ int, _ *probe) {
		if m.passed[count] < passLimit {
			m.passed[count]++
		}
	})
}

// unpass takes pass back, and the hints that nothing needs any more.
func (m *Map) unpass(key uint64, slot int) {
	m.passes(key, slot, func(count, word int, p *probe) {
		if m.passed[count] == passLimit {
			return
		}
		if m.passed[count]--; m.passed[count] == 0 {
			m.store(word, p.withHint(m.words[word], noHint))
		}
	})
}

// countPasses counts the buckets that all keys go on from.
func (m *Map) countPasses() {
	m.passed = make([]uint8, int(m.layout.Buckets)*groups)
	for i := 0; i < len(m.words); i += 2 {
		if key := m.words[i]; key|hintBits < deletedKey {
			m.pass(key&^hintBits, i)
		}
	}
}
