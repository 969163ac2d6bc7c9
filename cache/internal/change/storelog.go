package change

import "github.com/tensorcache/tensorcache/slab"

// word is a 64-bit word of some memory and its new value, as kernels.Store takes them.
type word struct{ index, value uint64 }

const wordBytes = 16

// storeLog collects stores to a map's memory for copies of it. The stores of one operation on the map stay in their order:
// they are in successive waves. Otherwise the order of a wave's stores does not matter, since keys of a map do not depend on
// each other, but for stores to the same word, of which the last counts.
type storeLog struct {
	waves [][]word
	last  map[int64][2]int // of a word: its last wave, and place in it
	next  int              // first wave for the next store
	// views, unless nil, are what each device's map is to have for the location that the operation stores; differing has them
	// for words of each wave, by their place.
	views     []slab.Location
	differing []map[int][]slab.Location
}

// operation begins an operation.
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

// differ notes whether devices have different values of a word. Locations are the odd words of a map.
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

// wave returns a wave's words as device i is to have them, until the next call.
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
