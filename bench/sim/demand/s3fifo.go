package demand

var _ = register(Policy{Name: "s3fifo", New: func(c Config) cache {
	small := c.Capacity / 10
	return &s3fifo{
		base: newBase(c), small: newQueue(1), main: newQueue(2), ghost: newQueue(3),
		smallMost: small, mainMost: c.Capacity - small, ghostMost: c.Capacity * 9 / 10,
	}
}})

// s3fifo is S3-FIFO (Yang et al., SOSP '23): a small FIFO that most rows leave soon, a main one in which accessed rows go round again,
// and the memory of rows that left the small one.
type s3fifo struct {
	base
	small, main, ghost             queue
	smallMost, mainMost, ghostMost int64
}

const (
	s3Promote = 2 // accesses in the small FIFO that take a row to the main one
	s3Most    = 3 // accesses that count
)

func (c *s3fifo) access(id uint32) bool {
	p := &c.place[id]
	if p.in == c.small.number || p.in == c.main.number {
		p.note = min(p.note+1, s3Most)
		return true
	}
	again := p.in == c.ghost.number
	if again {
		c.ghost.take(&c.rows, id)
	}
	size := c.bytes(id)
	if size > c.capacity || size > max(1, c.smallMost) {
		return false
	}
	for c.small.used+c.main.used+size > c.capacity {
		c.evict()
	}
	p.note = 0
	if again {
		c.main.push(&c.rows, id)
	} else {
		c.small.push(&c.rows, id)
	}
	return false
}

func (c *s3fifo) evict() {
	if c.main.used > c.mainMost || c.small.live == 0 {
		reinsert(&c.main, &c.rows)
		return
	}
	for c.small.live > 0 {
		id := c.small.pop(&c.rows)
		if c.place[id].note < s3Promote {
			remember(&c.ghost, &c.rows, id, c.ghostMost)
			return
		}
		c.place[id].note = 0
		c.main.push(&c.rows, id)
	}
}

func (c *s3fifo) remove(id uint32) { takeFrom(&c.rows, id, &c.small, &c.main, &c.ghost) }

// reinsert removes the first row of a FIFO without accesses. Rows before it lose one access each, and enter again.
func reinsert(q *queue, r *rows) {
	for q.live > 0 {
		id := q.pop(r)
		p := &r.place[id]
		if p.note == 0 {
			return
		}
		p.note--
		q.push(r, id)
	}
}
