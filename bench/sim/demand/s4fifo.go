package demand

import (
	"math"
	"strconv"
	"strings"

	"github.com/tensorcache/tensorcache/internal/faults"
)

var _ = register(Policy{Name: "s4fifo", New: newS4FIFO(s4Parameters{smallSize: 0.1, ghostSize: 0.9, moveToMain: 2}), With: func(text string) (func(Config) cache, error) {
	p, err := parseS4(text)
	return newS4FIFO(p), err
}})

// s4Parameters are those of libCacheSim's s4fifo, by the names that it gives them. Ratios of queues are of the cache's size.
type s4Parameters struct {
	smallSize, ghostSize float64
	// skip is the part of the small FIFO's rows, those that entered last, whose accesses do not count.
	skip float64
	// moveToMain accesses in the small FIFO take a row to the main one. ghostToMain 0 lets a row that is remembered in directly into the main FIFO.
	moveToMain, ghostToMain int
}

// parseS4 reads parameters that a policy's name has behind it, such as small-size-ratio=0.05:small-skip-ratio=0.25.
func parseS4(text string) (s4Parameters, error) {
	p := s4Parameters{smallSize: 0.1, ghostSize: 0.9, moveToMain: 2}
	f := faults.List{}
	for part := range strings.SplitSeq(text, ":") {
		name, value, _ := strings.Cut(part, "=")
		ratio := func(to *float64, most float64) {
			v, err := strconv.ParseFloat(value, 64)
			f.If(err != nil || !(v >= 0 && v <= most), "s4fifo: %s (%q) must be 0 to %g", name, value, most)
			*to = v
		}
		number := func(to *int, least int) {
			v, err := strconv.Atoi(value)
			f.If(err != nil || v < least || v > math.MaxUint8, "s4fifo: %s (%q) must be %d to %d", name, value, least, math.MaxUint8)
			*to = v
		}
		switch name {
		case "small-size-ratio":
			ratio(&p.smallSize, 1)
		case "ghost-size-ratio":
			ratio(&p.ghostSize, 100)
		case "small-skip-ratio":
			ratio(&p.skip, 1)
		case "move-to-main-threshold":
			number(&p.moveToMain, 0)
		case "ghost-to-main-threshold":
			number(&p.ghostToMain, 0)
		default:
			f.If(true, "s4fifo: parameter (%q) must be small-size-ratio, ghost-size-ratio, small-skip-ratio, move-to-main-threshold or ghost-to-main-threshold", name)
		}
	}
	return p, f.Err()
}

func newS4FIFO(p s4Parameters) func(Config) cache {
	return func(c Config) cache {
		small := int64(float64(c.Capacity) * p.smallSize)
		return &s4fifo{
			base: newBase(c), s4Parameters: p, small: newQueue(1), main: newQueue(2), ghost: newQueue(1), ghosts: rows{make([]place, c.rows), c.sizes}, entered: make([]uint32, c.rows),
			smallMost: small, mainMost: c.Capacity - small, ghostMost: int64(float64(c.Capacity) * p.ghostSize),
		}
	}
}

// s4fifo is the heuristic of S4-FIFO (Xia et al., OSDI '26) with parameters that stay as they are: S3-FIFO, which skips accesses to rows that have just entered the
// small FIFO, and may send remembered rows through it again. What the paper learns to choose the parameters with is not part of it.
type s4fifo struct {
	base
	s4Parameters
	small, main, ghost             queue
	smallMost, mainMost, ghostMost int64
	// ghosts has the places in ghost, where a row can stay while it is held.
	ghosts rows
	// entered says how many rows had entered the small FIFO when a row did, pushes how many have.
	entered []uint32
	pushes  uint32
	evicted bool // once a row had to go
}

func (c *s4fifo) access(id uint32) bool {
	p := &c.place[id]
	if p.in == c.small.number {
		if int64(c.pushes-c.entered[id]) >= int64(c.skip*float64(c.small.live)) {
			p.note = min(p.note, math.MaxUint8-1) + 1
		}
		return true
	}
	again := c.ghostToMain == 0 && c.ghosts.place[id].in == c.ghost.number
	if again {
		c.ghost.take(&c.ghosts, id)
	}
	if p.in == c.main.number {
		p.note = min(p.note+1, s3Most)
		return true
	}
	size := c.bytes(id)
	if size > c.capacity || size > max(1, c.smallMost) {
		return false
	}
	for c.small.used+c.main.used+size > c.capacity {
		c.evict()
	}
	p.note = 0
	switch {
	case again:
		c.main.push(&c.rows, id)
	case size >= c.smallMost && c.smallMost > 1: // it would fill the small FIFO alone
	case !c.evicted && c.small.used >= c.smallMost:
		c.main.push(&c.rows, id)
	default:
		c.small.push(&c.rows, id)
		c.entered[id] = c.pushes
		c.pushes++
	}
	return false
}

func (c *s4fifo) evict() {
	c.evicted = true
	if c.main.used > c.mainMost || c.small.live == 0 {
		reinsert(&c.main, &c.rows)
		return
	}
	for c.small.live > 0 {
		id := c.small.pop(&c.rows)
		if int(c.place[id].note) < c.moveToMain {
			if c.ghosts.place[id].in != c.ghost.number {
				remember(&c.ghost, &c.ghosts, id, c.ghostMost)
			}
			return
		}
		c.place[id].note = 0
		c.main.push(&c.rows, id)
	}
}

func (c *s4fifo) remove(id uint32) {
	takeFrom(&c.rows, id, &c.small, &c.main)
	takeFrom(&c.ghosts, id, &c.ghost)
}
