package demand

var _ = register(Policy{Name: "lru", New: func(c Config) cache { return &lru{base: newBase(c), queue: newQueue(1)} }})
var _ = register(Policy{Name: "fifo", New: func(c Config) cache { return &fifo{lru{base: newBase(c), queue: newQueue(1)}} }})

// lru evicts the row that was accessed the longest ago.
type lru struct {
	base
	queue queue
}

func (c *lru) access(id uint32) bool {
	if c.place[id].in != 0 {
		c.queue.again(&c.rows, id)
		return true
	}
	c.admit(id)
	return false
}

func (c *lru) admit(id uint32) {
	size := c.bytes(id)
	if size > c.capacity {
		return
	}
	for c.queue.used+size > c.capacity {
		c.queue.pop(&c.rows)
	}
	c.queue.push(&c.rows, id)
}

func (c *lru) remove(id uint32) {
	if c.place[id].in != 0 {
		c.queue.take(&c.rows, id)
	}
}

// fifo evicts the row that was admitted first.
type fifo struct{ lru }

func (c *fifo) access(id uint32) bool {
	if c.place[id].in != 0 {
		return true
	}
	c.admit(id)
	return false
}
