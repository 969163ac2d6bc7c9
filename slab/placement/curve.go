package placement

import (
	"cmp"
	"slices"
)

// Curve is what the rows of a ranking take and give, added up from the best row on.
type Curve struct {
	points []point
	sum    point
	step   int64
	tail   point // rows outside the ranking
}

// point is a sum over rows. Frequencies are in lookups, bytes weighted by them but for slots.
type point struct {
	slots, count          int64 // count are the rows
	lookups, rows, stored float64
}

// maxPoints bounds a curve's memory; steps double beyond.
const maxPoints = 4096

// Add adds the next row of the ranking: what it takes in a slab, its length, its stored length, and how often it is looked up.
func (c *Curve) Add(slotBytes, rowBytes, storedBytes int, frequency float64) {
	c.sum.slots += int64(slotBytes)
	c.sum.count++
	c.sum.add(rowBytes, storedBytes, frequency)
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

// AddTail adds lookups of rows that are not ranked: they miss however the ranked ones are placed.
func (c *Curve) AddTail(rowBytes, storedBytes, lookups float64) {
	c.tail.lookups += lookups
	c.tail.rows += lookups * rowBytes
	c.tail.stored += lookups * storedBytes
}

// next returns the lookups of the row after those whose slots take so many bytes, as the mean of the rows of its step.
func (c *Curve) next(slots int64) float64 {
	i, _ := slices.BinarySearchFunc(c.points, slots+1, func(p point, slots int64) int { return cmp.Compare(p.slots, slots) })
	from, to := point{}, c.sum
	if i > 0 {
		from = c.points[i-1]
	}
	if i < len(c.points) {
		to = c.points[i]
	}
	return (to.lookups - from.lookups) / float64(max(1, to.count-from.count))
}

func (p *point) add(rowBytes, storedBytes int, frequency float64) {
	p.lookups += frequency
	p.rows += frequency * float64(rowBytes)
	p.stored += frequency * float64(storedBytes)
}

// Lookups returns those of the rows whose slots take the ranking's first so many bytes.
func (c *Curve) Lookups(slots int64) float64 { return c.at(slots).lookups }

// at returns the sum over the rows whose slots take so many bytes, between points as if all rows there were alike.
func (c *Curve) at(slots int64) point {
	if slots >= c.sum.slots {
		return c.sum
	}
	i, found := slices.BinarySearchFunc(c.points, slots, func(p point, slots int64) int {
		switch {
		case p.slots < slots:
			return -1
		case p.slots > slots:
			return 1
		}
		return 0
	})
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
	return point{slots, from.count, between(from.lookups, to.lookups), between(from.rows, to.rows), between(from.stored, to.stored)}
}

func (p point) minus(q point) point {
	return point{p.slots - q.slots, p.count - q.count, p.lookups - q.lookups, p.rows - q.rows, p.stored - q.stored}
}
