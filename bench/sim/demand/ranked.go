package demand

var _ = register(Policy{Name: "lfu", New: func(c Config) cache { return newRanked(c, false) }})
var _ = register(Policy{Name: "gdsf", New: func(c Config) cache { return newRanked(c, true) }})

// ranked evicts the row of the least priority, which is how often it was accessed since it was admitted (LFU) or that per byte,
// plus the priority that was evicted last (GDSF; Cherkasova, HP Labs 1998). Of equal priorities, the one that has it
// longer goes.
type ranked struct {
	heaped
	count  []uint32
	greedy bool
	clock  float64
}

func newRanked(c Config, greedy bool) *ranked {
	return &ranked{heaped: newHeaped(c), count: make([]uint32, c.rows), greedy: greedy}
}

func (c *ranked) access(id uint32) bool {
	hit := c.heap.has(id)
	if !hit {
		size := c.bytes(id)
		if size > c.capacity {
			return false
		}
		c.clock = c.makeRoom(size, c.clock)
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
