package placement

import (
	"cmp"
	"slices"
)

// Curve adds up the slots, lookups and bytes of the rows of a ranking, from the best row on.
type Curve struct {
	// LeastMiss is the stored bytes up to which a miss takes as long as that of the shortest row: misses of shorter rows count as so
	// many bytes. It applies to rows that are added afterwards.
	LeastMiss int

	points []point
	sum    point
	step   int64 // least slot bytes from one point to the next
	tail   point // rows outside the ranking
}

// point is a sum over rows: the bytes of their slots, how often they are looked up, the decoded and stored bytes that these lookups
// read, and the stored bytes that they count as if they miss.
type point struct {
	slots                         int64
	lookups, rows, stored, misses float64
}

// maxPoints bounds a curve's memory: when there are more points, every second one is dropped and step doubles.
const maxPoints = 4096

// Add adds the next row of the ranking: the bytes of its slot, its decoded and its stored length, and how often it is looked up.
func (c *Curve) Add(slotBytes, rowBytes, storedBytes int, frequency float64) {
	c.sum.slots += int64(slotBytes)
	c.sum.add(rowBytes, storedBytes, max(storedBytes, c.LeastMiss), frequency)
	if n := len(c.points); n == 0 || c.sum.slots-c.points[n-1].slots >= c.step {
		c.points = append(c.points, c.sum)
	}
	if len(c.points) > maxPoints {
		kept := 0
		for i := 1; i < len(c.points); i += 2 {
			c.points[kept] = c.points[i]
			kept++
		}
		c.points = c.points[:kept]
		c.step = 2 * max(c.step, c.sum.slots/maxPoints/2)
	}
}

// AddTail adds lookups of rows outside the ranking. They miss however the ranked rows are placed.
func (c *Curve) AddTail(rowBytes, storedBytes, lookups float64) {
	c.tail.lookups += lookups
	c.tail.rows += lookups * rowBytes
	c.tail.misses += lookups * max(storedBytes, float64(c.LeastMiss))
}

func (p *point) add(rowBytes, storedBytes, missBytes int, frequency float64) {
	p.lookups += frequency
	p.rows += frequency * float64(rowBytes)
	p.stored += frequency * float64(storedBytes)
	p.misses += frequency * float64(missBytes)
}

// Lookups returns the lookups of the rows whose slots take the first so many bytes of the ranking.
func (c *Curve) Lookups(slots int64) float64 { return c.at(slots).lookups }

// at returns the sum over the rows whose slots take the first so many bytes of the ranking, interpolated between points.
func (c *Curve) at(slots int64) point {
	if slots >= c.sum.slots {
		return c.sum
	}
	i, found := slices.BinarySearchFunc(c.points, slots, func(p point, slots int64) int { return cmp.Compare(p.slots, slots) })
	if found {
		return c.points[i]
	}
	from, to := point{}, c.sum
	if i > 0 {
		from = c.points[i-1]
	}
	if i < len(c.points) {
		to = c.points[i]
	}
	share := float64(slots-from.slots) / float64(max(1, to.slots-from.slots))
	between := func(a, b float64) float64 { return a + share*(b-a) }
	return point{slots, between(from.lookups, to.lookups), between(from.rows, to.rows), between(from.stored, to.stored), between(from.misses, to.misses)}
}

func (p point) minus(q point) point {
	return point{p.slots - q.slots, p.lookups - q.lookups, p.rows - q.rows, p.stored - q.stored, p.misses - q.misses}
}
