package demand

var _ = register(Policy{Name: "2q", New: func(c Config) cache {
	return &twoQ{base: newBase(c), in: newQueue(1), main: newQueue(2), out: newQueue(3), inMost: c.Capacity / 4, outMost: c.Capacity / 2}
}})

// twoQ is 2Q (Johnson and Shasha, VLDB '94), the full version: rows enter a FIFO, are remembered for a while after they left it, and
// enter the LRU queue if they come back by then.
type twoQ struct {
	base
	in, main, out   queue // A1in, Am, A1out
	inMost, outMost int64
}

func (c *twoQ) access(id uint32) bool {
	switch c.place[id].in {
	case c.in.number:
		return true
	case c.main.number:
		c.main.again(&c.rows, id)
		return true
	}
	again := c.place[id].in == c.out.number
	if again {
		c.out.take(&c.rows, id)
	}
	size := c.bytes(id)
	if size > c.capacity {
		return false
	}
	for c.in.used+c.main.used+size > c.capacity {
		if c.in.used <= c.inMost && c.main.live > 0 {
			c.main.pop(&c.rows)
			continue
		}
		victim := c.in.pop(&c.rows)
		remember(&c.out, &c.rows, victim, c.outMost)
	}
	if again {
		c.main.push(&c.rows, id)
	} else {
		c.in.push(&c.rows, id)
	}
	return false
}

// remember puts a row in a queue of rows that are no more held, which forgets others to stay within most.
func remember(ghosts *queue, r *rows, id uint32, most int64) {
	size := r.bytes(id)
	if size > most {
		return
	}
	for ghosts.used+size > most {
		ghosts.pop(r)
	}
	ghosts.push(r, id)
}

func (c *twoQ) remove(id uint32) { takeFrom(&c.rows, id, &c.in, &c.main, &c.out) }

// takeFrom takes a row out of whichever queue it is in.
func takeFrom(r *rows, id uint32, queues ...*queue) {
	for _, q := range queues {
		if r.place[id].in == q.number {
			q.take(r, id)
			return
		}
	}
}
