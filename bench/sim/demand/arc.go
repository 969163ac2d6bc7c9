package demand

var _ = register(Policy{Name: "arc", New: func(c Config) cache {
	return &arc{base: newBase(c), t1: newQueue(1), t2: newQueue(2), b1: newQueue(3), b2: newQueue(4)}
}})

// arc is ARC (Megiddo and Modha, FAST '03, figure 4): T1 holds rows accessed once, T2 those accessed again, B1 and B2 remember what
// left them, and hits there move the target size of T1. With sizes, each step is done until it has made enough room.
type arc struct {
	base
	t1, t2, b1, b2 queue
	target         float64 // of t1: the paper's p
}

func (c *arc) access(id uint32) bool {
	in := c.place[id].in
	switch in {
	case c.t1.number:
		c.t1.take(&c.rows, id)
		c.t2.push(&c.rows, id)
		return true
	case c.t2.number:
		c.t2.again(&c.rows, id)
		return true
	}
	size := c.bytes(id)
	if size > c.capacity {
		return false
	}
	switch in {
	case c.b1.number:
		step := max(float64(c.b2.used)/float64(max(1, c.b1.used)), 1) * float64(size)
		c.target = min(c.target+step, float64(c.capacity))
		c.b1.take(&c.rows, id)
		c.replace(size, false)
		c.t2.push(&c.rows, id)
	case c.b2.number:
		step := max(float64(c.b1.used)/float64(max(1, c.b2.used)), 1) * float64(size)
		c.target = max(c.target-step, 0)
		c.b2.take(&c.rows, id)
		c.replace(size, true)
		c.t2.push(&c.rows, id)
	default:
		if c.t1.used+c.b1.used+size > c.capacity {
			for c.b1.live > 0 && c.t1.used+c.b1.used+size > c.capacity {
				c.b1.pop(&c.rows)
			}
			for c.t1.used+size > c.capacity {
				c.t1.pop(&c.rows) // forgotten at once
			}
		} else {
			for c.b2.live > 0 && c.t1.used+c.b1.used+c.t2.used+c.b2.used+size > 2*c.capacity {
				c.b2.pop(&c.rows)
			}
		}
		c.replace(size, false)
		c.t1.push(&c.rows, id)
	}
	return false
}

// replace makes room for size. fromB2 says that it is for a row of b2.
func (c *arc) replace(size int64, fromB2 bool) {
	for c.t1.used+c.t2.used+size > c.capacity {
		t1 := float64(c.t1.used)
		if c.t1.live > 0 && (t1 > c.target || fromB2 && t1 == c.target || c.t2.live == 0) {
			c.b1.push(&c.rows, c.t1.pop(&c.rows))
		} else {
			c.b2.push(&c.rows, c.t2.pop(&c.rows))
		}
	}
}

func (c *arc) remove(id uint32) { takeFrom(&c.rows, id, &c.t1, &c.t2, &c.b1, &c.b2) }
