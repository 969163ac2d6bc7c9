package demand

var _ = register(Policy{Name: "lfu", New: func(c Config) cache { return newRanked(c, false) }})
var _ = register(Policy{Name: "gdsf", New: func(c Config) cache { return newRanked(c, true) }})

// ranked evicts the row of the least priority, which is how often it was accessed since it was admitted (LFU) or that per byte,
// plus the priority that was evicted last (GDSF; Cherkasova, HP Labs 1998). Of equal priorities, the one that has it
// longer goes.
type ranked struct {
	capacity, used int64
	sizes
	count  []uint32
	heap   heap
	greedy bool
	clock  float64
}

func newRanked(c Config, greedy bool) *ranked {
	return &ranked{capacity: c.Capacity, sizes: c.sizes, count: make([]uint32, c.rows), heap: newHeap(c.rows), greedy: greedy}
}

func (c *ranked) access(id uint32) bool {
	hit := c.heap.has(id)
	if !hit {
		size := c.bytes(id)
		if size > c.capacity {
			return false
		}
		for c.used+size > c.capacity {
			victim := c.heap.items[0]
			c.clock = victim.key
			c.remove(victim.row)
		}
		c.used += size
		c.count[id] = 0
	}
	c.count[id]++
	priority := float64(c.count[id])
	if c.greedy {
		// Scaled as libCacheSim does: another scale rounds otherwise, and breaks ties otherwise.
		priority = c.clock + priority*1e6/float64(max(1, c.bytes(id)))
	}
	c.heap.set(id, priority)
	return hit
}

func (c *ranked) remove(id uint32) {
	if c.heap.has(id) {
		c.heap.remove(id)
		c.used -= c.bytes(id)
	}
}
