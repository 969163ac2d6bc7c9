package experiment

import (
	"sort"

	"github.com/tensorcache/tensorcache/hashmap"
)

// curve is the hit ratio of a cache that is filled once, over its size: entry i is of the first i+1 looked-up rows in the order of admission, and of the other rows between
// them. It is exact, but for the bytes of these.
type curve struct {
	order   []uint32 // numbers of the rows
	rows    []int64  // cached, others included
	bytes   []int64  // of slots
	hits    []int64
	saved   []float64 // seconds, by hits
	lookups int64
	misses  float64 // seconds, if all lookups missed
}

// newCurve fills a cache in the order of a policy's ranking, then with the rows that it does not rank, as cache.New does.
func newCurve(s *sizes, ranking func(func(uint64) bool), counts []int64) *curve {
	c := &curve{}
	for r, n := range counts {
		c.lookups += n
		c.misses += float64(n) * s.cost.Miss(int(s.stored[r]))
	}
	ranked, held := make([]bool, len(s.slot)), make([]bool, len(s.members))
	var bytes, hits, between int64
	saved := 0.0
	add := func(r int64) {
		ranked[r] = true
		c.order = append(c.order, uint32(r))
		hits += counts[r]
		if s.group == nil || s.group[r] == 0 || !held[s.group[r]] {
			bytes += int64(s.slot[r])
		}
		if s.group != nil {
			held[s.group[r]] = true
		}
		saved += float64(counts[r]) * (s.cost.Miss(int(s.stored[r])) - s.cost.Hit)
		c.rows = append(c.rows, int64(len(c.order))+between)
		c.bytes, c.hits, c.saved = append(c.bytes, bytes+int64(float64(between)*s.others.slot)), append(c.hits, hits), append(c.saved, saved)
	}
	for key := range ranking {
		if _, r := hashmap.SplitKey(key); !ranked[r] {
			add(r)
		}
	}
	if s.looked == nil {
		for r := range int64(len(s.slot)) {
			if !ranked[r] {
				add(r)
			}
		}
		return c
	}
	for r, number := range s.looked.rows { // the rows that are not ranked are taken in the order of their numbers, whether they are looked up or not
		if !ranked[r] {
			between = number - r
			add(r)
		}
	}
	return c
}

// entriesFor returns how many entries reach a hit ratio, or all of them.
func (c *curve) entriesFor(target float64) int64 {
	i := sort.Search(len(c.hits)-1, func(i int) bool { return float64(c.hits[i]) >= target*float64(c.lookups) })
	return int64(i + 1)
}

// hitRatio returns that of the first entries.
func (c *curve) hitRatio(entries int64) float64 {
	if entries == 0 {
		return 0
	}
	return ratio(c.hits[entries-1], c.lookups)
}

// rowNanos returns the mean time of a lookup with the first entries cached, 1 or more, in nanoseconds.
func (c *curve) rowNanos(entries int64) float64 {
	return 1e9 * (c.misses - c.saved[entries-1]) / float64(max(1, c.lookups))
}

// within returns how many entries a budget holds.
func (c *curve) within(s *sizes, budget int64) int64 {
	return int64(sort.Search(len(c.bytes), func(i int) bool { return s.budgetFor(c.rows[i], c.bytes[i]) > budget }))
}

// entriesOf returns the entries of the first rows.
func (c *curve) entriesOf(rows int64) int64 {
	return int64(sort.Search(len(c.rows), func(i int) bool { return c.rows[i] > rows }))
}
