package place

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/slab"
)

// Copies holds the locations of the rows that have more than one. The first one is also the row's word in the index. One goroutine writes at a time;
// others may read meanwhile.
type Copies struct {
	Rows atomic.Int64 // rows with more than one location
	mu   struct {
		sync.RWMutex
		byKey map[uint64]copies
	}
}

// copies are the locations of one row, followed by words that are none. It is an array, so that the garbage collector has no pointers to follow.
type copies [slab.MaxSlabs]slab.Location

// Get returns the locations of a row, whose word in the index is l.
func (c *Copies) Get(key uint64, l slab.Location) Locations {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all, ok := c.mu.byKey[key]
	if !ok || all[0] != l { // the index has changed since l was read there
		return Locations{First: l}
	}
	n := 1
	for n < len(all) && all[n].Valid() {
		n++
	}
	return Locations{l, slices.Clone(all[1:n])}
}

// Put sets the locations of a row.
func (c *Copies) Put(key uint64, p Locations) {
	if len(p.More) == 0 && c.Rows.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p.More) == 0 {
		delete(c.mu.byKey, key)
	} else {
		all := copies{p.First}
		for i := copy(all[1:], p.More) + 1; i < len(all); i++ {
			all[i] = slab.NoLocation(slab.Cold)
		}
		if c.mu.byKey == nil {
			c.mu.byKey = map[uint64]copies{}
		}
		c.mu.byKey[key] = all
	}
	c.Rows.Store(int64(len(c.mu.byKey)))
}
