package demand

var _ = register(Policy{Name: "sieve", New: func(c Config) cache { return &sieve{base: newBase(c), line: make([]uint32, 1024)} }})

// sieve is SIEVE (Zhang et al., NSDI '24): a hand goes from the oldest row to the newest and round again, spares rows accessed since
// it last came by, and evicts the others.
//
// line has the rows from the oldest to the newest, with a gap: what the hand has spared lies before it, what it has yet to
// look at after it.
//
//	0        spared      hand           len
//	+--------+-----------+--------------+
//	| spared |  gap      | not yet seen |
//	+--------+-----------+--------------+
type sieve struct {
	base
	line         []uint32
	spared, hand int
	end          int
	used         int64
}

// Marks of a place. A row's place says which entry of line is its own.
const (
	sieveHeld    = 1
	sieveVisited = 1
)

func (c *sieve) access(id uint32) bool {
	p := &c.place[id]
	if p.in == sieveHeld {
		p.note = sieveVisited
		return true
	}
	size := c.bytes(id)
	if size > c.capacity {
		return false
	}
	for c.used+size > c.capacity {
		c.evict()
	}
	if c.end == len(c.line) {
		c.closeGap()
	}
	c.line[c.end] = id
	*p = place{at: uint32(c.end), in: sieveHeld}
	c.end++
	c.used += size
	return false
}

// evict evicts one row. REQUIRES: there is one.
func (c *sieve) evict() {
	for {
		c.skip()
		id := c.line[c.hand]
		p := &c.place[id]
		c.hand++
		if p.note == sieveVisited {
			p.note, p.at = 0, uint32(c.spared)
			c.line[c.spared] = id
			c.spared++
			continue
		}
		p.in = 0
		c.used -= c.bytes(id)
		c.skip()
		return
	}
}

// skip moves the hand on to a row that is held. From the newest it goes back to the oldest at once: rows that are admitted before it
// moves again are not next.
func (c *sieve) skip() {
	for range 2 {
		for ; c.hand < c.end; c.hand++ {
			if p := &c.place[c.line[c.hand]]; p.in == sieveHeld && p.at == uint32(c.hand) {
				return
			}
		}
		c.end, c.spared, c.hand = c.spared, 0, 0
	}
}

// closeGap makes room at the end of line.
func (c *sieve) closeGap() {
	to := 0
	spared, hand := 0, 0
	for i := 0; i < c.end; i++ {
		if i == c.spared {
			spared, hand = to, to
			i = c.hand
			if i == c.end {
				break
			}
		}
		id := c.line[i]
		if p := &c.place[id]; p.in == sieveHeld && p.at == uint32(i) {
			c.line[to], p.at = id, uint32(to)
			to++
		}
	}
	if c.spared == c.end {
		spared, hand = to, to
	}
	c.spared, c.hand, c.end = spared, hand, to
	if to > len(c.line)/2 {
		c.line = append(c.line, make([]uint32, len(c.line))...)
	}
}

func (c *sieve) remove(id uint32) {
	if c.place[id].in == sieveHeld {
		c.place[id].in = 0
		c.used -= c.bytes(id)
		c.skip()
	}
}
