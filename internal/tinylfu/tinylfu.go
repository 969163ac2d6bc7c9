// Package tinylfu is the policy of ristretto v2, TinyLFU admission and sampled LFU eviction, without its concurrency.
//
// A ristretto cache counts accesses and admits rows in goroutines of its own, drops what they cannot keep up with, and draws the candidates
// for eviction by the order of a Go map: what it holds depends on what else the processors do. Here the same steps are taken in the
// order of the accesses, none is dropped, and candidates are drawn from a seeded generator. Equal accesses give equal content.
package tinylfu

import (
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/dgraph-io/ristretto/v2/z"
)

// What ristretto has as constants, or advises.
const (
	samples  = 5  // entries of which one is evicted
	buffer   = 64 // accesses that are counted together
	counters = 10 // for each key that fits
	highest  = 15 // that a counter counts to
)

// Entry is a key that is held.
type Entry struct {
	Key  uint64
	Size int64
	// Hits are its accesses since it was admitted, and the one that admitted it.
	Hits int64
}

// Cache is a set of keys of bounded size. It is not safe for concurrent use.
type Cache struct {
	capacity, used int64
	held           []Entry
	at             map[uint64]uint32 // index in held
	refused        func(key uint64)
	counts         frequencies
	accessed       []uint64 // not counted yet
	sample         []uint64
	random         *rand.Rand
}

// New returns an empty cache of the given size. keys is about how many fit: it sets how many accesses are counted, and how fast counts
// age. refused, unless it is nil, is told of keys that are rejected or evicted.
func New(capacity, keys int64, seed uint64, refused func(key uint64)) *Cache {
	return &Cache{
		capacity: capacity, at: map[uint64]uint32{}, refused: refused, counts: newFrequencies(max(64, counters*keys)),
		accessed: make([]uint64, 0, buffer), sample: make([]uint64, 0, samples), random: rand.New(rand.NewPCG(seed, 1)),
	}
}

// Access counts an access to a key, and returns whether the key was held. If not, it is admitted if it fits after less
// frequent keys are evicted. What was evicted for a key that does not fit in the end stays evicted.
func (c *Cache) Access(key uint64, size int64) bool {
	if c.accessed = append(c.accessed, key); len(c.accessed) == buffer {
		for _, k := range c.accessed {
			c.counts.add(k)
		}
		c.accessed = c.accessed[:0]
	}
	if i, ok := c.at[key]; ok {
		c.held[i].Hits++
		return true
	}
	if !c.makeRoom(key, size) {
		c.refuse(key)
		return false
	}
	c.at[key] = uint32(len(c.held))
	c.held = append(c.held, Entry{key, size, 1})
	c.used += size
	return false
}

// makeRoom evicts until size fits, and returns whether it does.
func (c *Cache) makeRoom(key uint64, size int64) bool {
	if size > c.capacity {
		return false
	}
	c.sample = c.sample[:0]
	for mine := -1; c.used+size > c.capacity; {
		if mine < 0 {
			mine = c.counts.of(key)
		}
		for len(c.sample) < min(samples, len(c.held)) {
			if k := c.held[c.random.IntN(len(c.held))].Key; !slices.Contains(c.sample, k) {
				c.sample = append(c.sample, k)
			}
		}
		worst, least := 0, c.counts.of(c.sample[0])
		for i, k := range c.sample[1:] {
			if n := c.counts.of(k); n < least {
				worst, least = i+1, n
			}
		}
		if mine < least {
			return false
		}
		victim, last := c.sample[worst], len(c.sample)-1
		c.sample[worst] = c.sample[last]
		c.sample = c.sample[:last]
		c.Remove(victim)
		c.refuse(victim)
	}
	return true
}

func (c *Cache) refuse(key uint64) {
	if c.refused != nil {
		c.refused(key)
	}
}

// Remove withdraws a key, if it is held. It stays counted.
func (c *Cache) Remove(key uint64) {
	i, ok := c.at[key]
	if !ok {
		return
	}
	c.used -= c.held[i].Size
	last := len(c.held) - 1
	if c.held[i] = c.held[last]; int(i) < last {
		c.at[c.held[i].Key] = i
	}
	c.held = c.held[:last]
	delete(c.at, key)
}

// Resize changes the capacity. A smaller one evicts when a key is admitted next.
func (c *Cache) Resize(capacity int64) { c.capacity = capacity }

// Entries returns what is held, in any order. It is valid until the next Access or Remove, and must not be changed.
func (c *Cache) Entries() []Entry { return c.held }

// Entry returns the entry of a key, and whether it is held.
func (c *Cache) Entry(key uint64) (Entry, bool) {
	i, ok := c.at[key]
	if !ok {
		return Entry{}, false
	}
	return c.held[i], true
}

// frequencies counts accesses as ristretto does: the first in a Bloom filter, further ones in a sketch of small counters, and both
// age. Ristretto's sketch has four rows of counters, with the key xor a random number as index, cut to the same length: so keys that
// share a counter in one row share one in all, and one row has the same minimum.
type frequencies struct {
	once     *z.Bloom
	counters []uint8 // a power of two
	n, limit int64   // accesses since the counters were halved, and when they are
}

func newFrequencies(n int64) frequencies {
	return frequencies{once: z.NewBloomFilter(float64(n), 0.01), counters: make([]uint8, 1<<bits.Len64(uint64(n-1))), limit: n}
}

func (f *frequencies) counter(key uint64) *uint8 { return &f.counters[key&uint64(len(f.counters)-1)] }

func (f *frequencies) add(key uint64) {
	if !f.once.AddIfNotHas(key) {
		if n := f.counter(key); *n < highest {
			*n++
		}
	}
	if f.n++; f.n == f.limit {
		f.n = 0
		f.once.Clear()
		for i := range f.counters {
			f.counters[i] /= 2
		}
	}
}

func (f *frequencies) of(key uint64) int {
	n := int(*f.counter(key))
	if f.once.Has(key) {
		n++
	}
	return n
}
