package change

import (
	"fmt"

	"github.com/tensorcache/tensorcache/slab"
)

// poison overwrites a freed slot, with the invariants tag: a batch that still reads it returns wrong rows.
func poison(m *deviceWriter, freed slot) error {
	if !invariants {
		return nil
	}
	if err := m.stream.Fill(m.owner.Slab.Slice(freed.offset, freed.offset+int64(freed.bytes)), 0xdb); err != nil {
		return err
	}
	return m.stream.Synchronize()
}

// checkShared panics, with the invariants tag, if the counts of shared slots are wrong. place.SharedSlots counts the location words of each slot that equal rows
// share, every other slot has one word, and no bytes stay reserved when nothing moves. REQUIRES: the cycle's lock is held, and no row is being admitted.
func (w *Writer) checkShared() {
	if !invariants {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.store.SharedSlots.Any() || w.mu.err != nil {
		return
	}
	live, words := w.store.Topology.Load().Live, map[slab.Location]int64{}
	for key, first := range w.mu.index.m.All() {
		for l := range w.mu.index.cachedAt(key, first).All() {
			_, _, shared := w.store.SharedSlots.Of(l)
			if words[l]++; words[l] > 1 && !shared {
				panic(fmt.Sprintf("change: slot %#x has several words and is not shared", uint64(l)))
			}
		}
	}
	moving := false
	for l, n := range w.store.SharedSlots.Words {
		moving = moving || w.store.SharedSlots.Moves(l)
		if live>>l.Slab()&1 != 0 && words[l] != n {
			panic(fmt.Sprintf("change: shared slot %#x has %d words, %d are counted", uint64(l), words[l], n))
		}
	}
	if moving || !w.mu.retire.open.empty() || w.mu.retire.processing != nil {
		return
	}
	for i, of := range w.store.Slabs {
		if of.Reserved != 0 && live>>i&1 != 0 {
			panic(fmt.Sprintf("change: %d bytes of slab %d stay reserved", of.Reserved, i))
		}
	}
}
