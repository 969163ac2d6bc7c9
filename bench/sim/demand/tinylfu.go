package demand

import (
	"math/bits"
	"slices"

	"github.com/dgraph-io/ristretto/v2/z"
)

var _ = register(Policy{Name: "tinylfu", New: newTinyLFU})

// tinyLFU is the policy of ristretto v2: TinyLFU admission, sampled LFU eviction. A ristretto cache itself cannot be simulated
// with: it counts accesses and admits rows in goroutines of its own, drops what they cannot keep up with, and draws the candidates
// for eviction by the order of a Go map, so that its misses depend on what else the processors do. Here the same steps are
// taken in the order of the requests, none is dropped, and the candidates are drawn by Config.Seed.
type tinyLFU struct {
	drawn
	capacity, used int64
	sizes
	counts   frequencies
	accessed []uint32 // not counted yet
	sample   []uint32
}

// What ristretto has as constants, or advises.
const (
	tinyLFUSamples  = 5  // rows of which one is evicted
	tinyLFUBuffer   = 64 // accesses that are counted together
	tinyLFUCounters = 10 // for each row that fits
	tinyLFUMost     = 15 // that a counter counts to
)

func newTinyLFU(c Config) cache {
	fit := float64(c.Capacity)
	if c.size != nil {
		fit /= max(1, float64(c.trace.WorkingSet())/float64(c.rows))
	}
	return &tinyLFU{
		drawn: newDrawn(c), capacity: c.Capacity, sizes: c.sizes, counts: newFrequencies(max(64, int64(tinyLFUCounters*min(fit, float64(c.rows))))),
		accessed: make([]uint32, 0, tinyLFUBuffer), sample: make([]uint32, 0, tinyLFUSamples),
	}
}

func (c *tinyLFU) access(row uint32) bool {
	if c.accessed = append(c.accessed, row); len(c.accessed) == tinyLFUBuffer {
		for _, r := range c.accessed {
			c.counts.add(r)
		}
		c.accessed = c.accessed[:0]
	}
	if c.has(row) {
		return true
	}
	if c.makeRoom(row) {
		c.add(row)
		c.used += c.bytes(row)
	}
	return false
}

// makeRoom evicts what is accessed less often than row, until row fits, and returns whether it does. What it evicted for a row that
// does not fit in the end stays evicted.
func (c *tinyLFU) makeRoom(row uint32) bool {
	size := c.bytes(row)
	if size > c.capacity {
		return false
	}
	c.sample = c.sample[:0]
	for mine := c.counts.of(row); c.used+size > c.capacity; {
		for len(c.sample) < min(tinyLFUSamples, len(c.held)) {
			if r := c.draw(); !slices.Contains(c.sample, r) {
				c.sample = append(c.sample, r)
			}
		}
		worst, least := 0, c.counts.of(c.sample[0])
		for i, r := range c.sample[1:] {
			if n := c.counts.of(r); n < least {
				worst, least = i+1, n
			}
		}
		if mine < least {
			return false
		}
		c.remove(c.sample[worst])
		last := len(c.sample) - 1
		c.sample[worst] = c.sample[last]
		c.sample = c.sample[:last]
	}
	return true
}

func (c *tinyLFU) remove(row uint32) {
	if c.drop(row) {
		c.used -= c.bytes(row)
	}
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

func (f *frequencies) counter(row uint32) *uint8 { return &f.counters[int(row)&(len(f.counters)-1)] }

func (f *frequencies) add(row uint32) {
	if !f.once.AddIfNotHas(uint64(row)) {
		if n := f.counter(row); *n < tinyLFUMost {
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

func (f *frequencies) of(row uint32) int {
	n := int(*f.counter(row))
	if f.once.Has(uint64(row)) {
		n++
	}
	return n
}
