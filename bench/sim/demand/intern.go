package demand

import "math/bits"

// interner numbers 64-bit IDs in the order in which they come: linear probing, at most half full.
type interner struct {
	slots []internSlot
	shift uint
	count uint32
}

// internSlot has an ID and its number + 1, 0 for none, side by side: a probe reads one cache line.
type internSlot struct {
	id     uint64
	number uint32
}

func newInterner() interner { return interner{slots: make([]internSlot, 1<<12), shift: 64 - 12} }

// number returns the ID's number, a new one if it has none.
func (n *interner) number(id uint64) uint32 {
	mask := uint64(len(n.slots) - 1)
	for i := mix(id) >> n.shift; ; i++ {
		s := &n.slots[i&mask]
		if s.number == 0 {
			if uint64(n.count) >= mask/2 {
				n.grow()
				return n.number(id)
			}
			n.count++
			*s = internSlot{id, n.count}
			return n.count - 1
		}
		if s.id == id {
			return s.number - 1
		}
	}
}

func (n *interner) grow() {
	old := n.slots
	n.slots, n.shift = make([]internSlot, 2*len(old)), n.shift-1
	mask := uint64(len(n.slots) - 1)
	for _, s := range old {
		if s.number == 0 {
			continue
		}
		i := mix(s.id) >> n.shift
		for n.slots[i&mask].number != 0 {
			i++
		}
		n.slots[i&mask] = s
	}
}

// mix spreads an ID over the upper bits: IDs are often consecutive, or multiples of a page.
func mix(id uint64) uint64 {
	hi, lo := bits.Mul64(id^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return (hi ^ lo) * 0x9e3779b97f4a7c15
}
