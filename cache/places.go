package cache

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/slab"
)

// places are where a row lies: its slots, at most one in each slab, or its place in the overlay.
type places struct {
	first slab.Location
	more  []slab.Location // never changed
}

// nowhere is no place at all.
func nowhere() places { return places{first: slab.NoLocation(slab.Cold)} }

func placesOf(all []slab.Location) places {
	if len(all) == 0 {
		return nowhere()
	}
	return places{all[0], all[1:len(all):len(all)]}
}

func (p places) valid() bool { return p.first.Valid() }

// all yields the places.
func (p places) all() iter.Seq[slab.Location] {
	return func(yield func(slab.Location) bool) {
		if p.valid() && yield(p.first) {
			for _, l := range p.more {
				if !yield(l) {
					return
				}
			}
		}
	}
}

// list returns the places in memory of its own.
func (p places) list() []slab.Location { return slices.Collect(p.all()) }

// in returns the place in a slab.
func (p places) in(id int) (slab.Location, bool) {
	for l := range p.all() {
		if l.Slab() == id {
			return l, true
		}
	}
	return 0, false
}

// slabs returns the bits of the slabs.
func (p places) slabs() (bits uint8) {
	for l := range p.all() {
		bits |= 1 << l.Slab()
	}
	return bits
}

func (p places) equal(q places) bool { return p.first == q.first && slices.Equal(p.more, q.more) }

// within returns the places in the slabs of the given bits, and the others.
func (p places) within(bits uint8) (in, out places) {
	if p.slabs()&^bits == 0 {
		return p, nowhere()
	}
	var kept, dropped []slab.Location
	for l := range p.all() {
		if bits>>l.Slab()&1 != 0 {
			kept = append(kept, l)
		} else {
			dropped = append(dropped, l)
		}
	}
	return placesOf(kept), placesOf(dropped)
}

// copySets holds the places of the rows that have more than one, by the row's slot in the index, whose word there is the first
// of them. It is changed under the lock of changes and may be read beside that.
type copySets struct {
	rows atomic.Int64 // that have more than one place
	mu   struct {
		sync.RWMutex
		width int             // devices
		at    []uint32        // for each map slot 1 + the number of its row's set, 0 for none. Made with the first set
		sets  []slab.Location // width words each, no locations behind a row's
		free  []uint32
	}
}

// get returns the places of the row at a map slot, whose first is l.
func (c *copySets) get(slot int64, l slab.Location) places {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if len(c.mu.at) == 0 || c.mu.at[slot] == 0 {
		return places{first: l}
	}
	set := c.mu.sets[int(c.mu.at[slot]-1)*c.mu.width:][:c.mu.width]
	if set[0] != l { // the slot has become another row's meanwhile
		return places{first: l}
	}
	n := 1
	for n < len(set) && set[n].Valid() {
		n++
	}
	return places{l, slices.Clone(set[1:n])}
}

// put notes the places of the row at a map slot, of so many slots.
func (c *copySets) put(slot, slots int64, devices int, p places) {
	if len(p.more) == 0 && c.rows.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &c.mu
	if len(m.at) == 0 {
		m.at, m.width = make([]uint32, slots), devices
	}
	set := m.at[slot]
	switch {
	case len(p.more) == 0 && set == 0:
		return
	case len(p.more) == 0:
		m.at[slot] = 0
		m.free = append(m.free, set)
		c.rows.Add(-1)
		return
	case set == 0:
		if n := len(m.free); n > 0 {
			set, m.free = m.free[n-1], m.free[:n-1]
		} else {
			m.sets = append(m.sets, make([]slab.Location, m.width)...)
			set = uint32(len(m.sets) / m.width)
		}
		m.at[slot] = set
		c.rows.Add(1)
	}
	words := m.sets[int(set-1)*m.width:][:m.width]
	for i := range words {
		words[i] = slab.NoLocation(slab.Cold)
	}
	words[0] = p.first
	copy(words[1:], p.more)
}
