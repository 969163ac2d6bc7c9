package change

import (
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// word is the index of a 64-bit word and its new value, in the format of kernels.Store.
type word struct{ index, value uint64 }

const wordBytes = 16

// redoLog collects the stores to the index, which are then repeated on the devices' maps. Stores of one operation must be made in order, so they go
// to successive waves. The stores of a wave may be made in any order, because different keys do not depend on each other. Of several stores
// to one word in a wave, only the last is kept.
type redoLog struct {
	waves [][]word
	last  lastStores
	next  int // first wave that may have the next store
	// views, if not nil, has for each device the value of the location that the operation stores. differing keeps the views of words, by
	// wave and position in the wave.
	views     []slab.Location
	differing []map[int][]slab.Location
}

// operation starts a new operation: its stores do not depend on earlier ones.
func (l *redoLog) operation() { l.next = 0 }

func (l *redoLog) add(index int64, value uint64) {
	wave := l.next
	last := l.last.of(index)
	if int(last.wave) > wave {
		wave, place := int(last.wave)-1, int(last.place)
		l.waves[wave][place].value = value
		l.differ(index, wave, place)
		l.next = wave + 1
		return
	}
	for len(l.waves) <= wave {
		l.waves = append(l.waves, nil)
	}
	last.wave, last.place = int32(wave+1), int32(len(l.waves[wave]))
	l.waves[wave] = append(l.waves[wave], word{uint64(index), value})
	l.differ(index, wave, len(l.waves[wave])-1)
	l.next = wave + 1
}

// differ sets or clears the views of the word at a position of a wave. Only locations have views; they are the odd words of a map.
func (l *redoLog) differ(index int64, wave, place int) {
	if l.views == nil || index%2 == 0 {
		if wave < len(l.differing) {
			delete(l.differing[wave], place)
		}
		return
	}
	for len(l.differing) <= wave {
		l.differing = append(l.differing, map[int][]slab.Location{})
	}
	l.differing[wave][place] = l.views
}

// wave returns the words of wave n for device i. They are valid until the next call.
func (l *redoLog) wave(n, i int) []word {
	if n < len(l.differing) {
		for place, views := range l.differing[n] {
			l.waves[n][place].value = uint64(views[i])
		}
	}
	return l.waves[n]
}

func (l *redoLog) clear() {
	for i := range l.waves {
		l.waves[i] = l.waves[i][:0]
	}
	for i := range l.differing {
		clear(l.differing[i])
	}
	l.last.clear()
	l.next = 0
}

// lastStores says where the log has the last store of each word. It is a hash table that is emptied at once: a cycle stores millions of words, a few
// ten thousand between two calls of clear.
type lastStores struct {
	all   []lastStore // their number is a power of two, and at most half are taken
	taken int
	round uint32 // entries of other rounds are free
}

// lastStore is the last store of a word: the wave after the one that has it, 0 for none, and the position in that wave.
type lastStore struct {
	index       int64
	wave, place int32
	round       uint32
}

// of returns the entry of a word, valid until the next call. It is new if the word has none.
func (t *lastStores) of(index int64) *lastStore {
	if 2*t.taken >= len(t.all) {
		t.grow()
	}
	mask := len(t.all) - 1
	for i := int(hashmap.Hash(uint64(index))) & mask; ; i = (i + 1) & mask {
		e := &t.all[i]
		if e.round != t.round {
			*e = lastStore{index: index, round: t.round}
			t.taken++
			return e
		}
		if e.index == index {
			return e
		}
	}
}

func (t *lastStores) grow() {
	old := t.all
	t.all, t.taken = make([]lastStore, max(64, 2*len(old))), 0
	round := t.round
	t.round = 1
	for _, e := range old {
		if e.round == round {
			at := t.of(e.index)
			at.wave, at.place = e.wave, e.place
		}
	}
}

func (t *lastStores) clear() {
	t.taken = 0
	if t.round++; t.round == 0 { // entries of the first rounds would be taken again
		clear(t.all)
		t.round = 1
	}
}
