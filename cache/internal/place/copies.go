package place

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/slab"
)

// Copies holds the places of the rows that have more than one, by the row's slot in the index. The first place is the row's word
// there. One goroutine writes at a time; others may read meanwhile.
type Copies struct {
	Rows atomic.Int64 // rows with more than one place
	mu   struct {
		sync.RWMutex
		width int             // devices
		at    []uint32        // for each map slot 1 + the number of its row's set, 0 for none. Made with the first set
		sets  []slab.Location // width words each, no locations behind a row's
		free  []uint32
	}
}

// Get returns the places of the row at a map slot, whose first is l.
func (c *Copies) Get(slot int64, l slab.Location) Locations {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if len(c.mu.at) == 0 || c.mu.at[slot] == 0 {
		return Locations{First: l}
	}
	set := c.mu.sets[int(c.mu.at[slot]-1)*c.mu.width:][:c.mu.width]
	if set[0] != l { // the slot has become another row's meanwhile
		return Locations{First: l}
	}
	n := 1
	for n < len(set) && set[n].Valid() {
		n++
	}
	return Locations{l, slices.Clone(set[1:n])}
}

// Reset forgets all sets.
func (c *Copies) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.at, c.mu.sets, c.mu.free = nil, nil, nil
	c.Rows.Store(0)
}

// Put notes the places of the row at a map slot, of so many slots.
func (c *Copies) Put(slot, slots int64, devices int, p Locations) {
	if len(p.More) == 0 && c.Rows.Load() == 0 {
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
	case len(p.More) == 0 && set == 0:
		return
	case len(p.More) == 0:
		m.at[slot] = 0
		m.free = append(m.free, set)
		c.Rows.Add(-1)
		return
	case set == 0:
		if n := len(m.free); n > 0 {
			set, m.free = m.free[n-1], m.free[:n-1]
		} else {
			m.sets = append(m.sets, make([]slab.Location, m.width)...)
			set = uint32(len(m.sets) / m.width)
		}
		m.at[slot] = set
		c.Rows.Add(1)
	}
	words := m.sets[int(set-1)*m.width:][:m.width]
	for i := range words {
		words[i] = slab.NoLocation(slab.Cold)
	}
	words[0] = p.First
	copy(words[1:], p.More)
}
