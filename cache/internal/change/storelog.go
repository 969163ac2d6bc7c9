package change

import "github.com/tensorcache/tensorcache/slab"

// word is the index of a 64-bit word and its new value, in the format of kernels.Store.
type word struct{ index, value uint64 }

const wordBytes = 16

// storeLog collects the stores of the index, to be repeated on the devices' maps. Stores of one operation must be made in order, so they go
// to successive waves. The stores of a wave may be made in any order, because different keys do not depend on each other. Of several stores
// to one word in a wave, only the last is kept.
type storeLog struct {
	waves [][]word
	last  map[int64][2]int // by word index: the last wave that stores the word, and the position there
	next  int              // first wave that may have the next store
	// views, if not nil, has for each device the value of the location that the operation stores. differing keeps the views of words, by
	// wave and position in the wave.
	views     []slab.Location
	differing []map[int][]slab.Location
}

// operation starts a new operation: its stores do not depend on earlier ones.
func (l *storeLog) operation() { l.next = 0 }

func (l *storeLog) add(index int64, value uint64) {
	wave := l.next
	if at, ok := l.last[index]; ok && at[0] >= wave {
		l.waves[at[0]][at[1]].value = value
		l.differ(index, at[0], at[1])
		l.next = at[0] + 1
		return
	}
	if l.last == nil {
		l.last = map[int64][2]int{}
	}
	for len(l.waves) <= wave {
		l.waves = append(l.waves, nil)
	}
	l.last[index] = [2]int{wave, len(l.waves[wave])}
	l.waves[wave] = append(l.waves[wave], word{uint64(index), value})
	l.differ(index, wave, len(l.waves[wave])-1)
	l.next = wave + 1
}

// differ sets or clears the views of the word at a position of a wave. Only locations have views; they are the odd words of a map.
func (l *storeLog) differ(index int64, wave, place int) {
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
func (l *storeLog) wave(n, i int) []word {
	if n < len(l.differing) {
		for place, views := range l.differing[n] {
			l.waves[n][place].value = uint64(views[i])
		}
	}
	return l.waves[n]
}

func (l *storeLog) clear() {
	for i := range l.waves {
		l.waves[i] = l.waves[i][:0]
	}
	for i := range l.differing {
		clear(l.differing[i])
	}
	clear(l.last)
	l.next = 0
}
