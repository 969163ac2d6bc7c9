package demand

import "math/rand/v2"

var _ = register(Policy{Name: "belady", Future: true, New: func(c Config) cache { return newBelady(c, false) }})
var _ = register(Policy{Name: "beladybypass", Future: true, New: func(c Config) cache { return newBelady(c, true) }})
var _ = register(Policy{Name: "belady-size", Future: true, New: func(c Config) cache { return newBeladySize(c) }})
var _ = register(Policy{Name: "static-optimal", Future: true, Prefilled: true, New: newStaticOptimal})

// belady evicts the row whose next access is the latest: with rows of one size, no cache that admits every row misses less, and if it
// may decline the new row, none at all that starts empty. With sizes it is neither, but still a yardstick.
type belady struct {
	heaped // by the next access, the latest on top
	bypass bool
	*future
}

// future is what clairvoyant caches know.
type future struct {
	next []uint32
	now  int // the request that access is called for
}

func newBelady(c Config, bypass bool) *belady {
	return &belady{heaped: newHeaped(c), bypass: bypass, future: c.future}
}

func (c *belady) access(id uint32) bool {
	due := -float64(c.next[c.now])
	if c.heap.has(id) {
		c.heap.set(id, due)
		return true
	}
	size := c.bytes(id)
	if size > c.capacity {
		return false
	}
	if !c.bypass {
		c.makeRoom(size, 0)
	}
	c.heap.set(id, due)
	c.used += size
	c.makeRoom(0, 0) // which may evict the row itself
	return false
}

// beladySize evicts, of beladySamples rows picked at random, the one with the largest product of size and time to the next access,
// and does not hold rows that are never accessed again: libCacheSim's BeladySize, an approximation.
type beladySize struct {
	capacity, used int64
	sizes
	held   []uint32
	at     []uint32 // of each row: its index in held + 1
	due    []uint32
	random *rand.Rand
	*future
}

const beladySamples = 128

func newBeladySize(c Config) *beladySize {
	return &beladySize{
		capacity: c.Capacity, sizes: c.sizes, at: make([]uint32, c.rows), due: make([]uint32, c.rows),
		random: rand.New(rand.NewPCG(c.Seed, 1)), future: c.future,
	}
}

func (c *beladySize) access(id uint32) bool {
	hit := c.at[id] != 0
	c.due[id] = c.next[c.now]
	if c.due[id] == never {
		c.remove(id)
		return hit
	}
	size := c.bytes(id)
	if hit || size > c.capacity {
		return hit
	}
	for c.used+size > c.capacity {
		worst, most := uint32(0), int64(-1)
		for range beladySamples {
			row := c.held[c.random.IntN(len(c.held))]
			if score := c.bytes(row) * (int64(c.due[row]) - int64(c.now)); score > most {
				worst, most = row, score
			}
		}
		c.remove(worst)
	}
	c.held = append(c.held, id)
	c.at[id] = uint32(len(c.held))
	c.used += size
	return false
}

func (c *beladySize) remove(id uint32) {
	if c.at[id] == 0 {
		return
	}
	last := c.held[len(c.held)-1]
	c.held[c.at[id]-1], c.at[last] = last, c.at[id]
	c.held = c.held[:len(c.held)-1]
	c.at[id] = 0
	c.used -= c.bytes(id)
}
