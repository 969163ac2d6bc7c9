//go:build invariants

package slab

import "fmt"

// slotCheck panics on slots freed twice, freed with another size, or handed out while in use.
type slotCheck struct{ live map[int64]int64 }

func (c *slotCheck) alloc(start, n int64) {
	if c.live == nil {
		c.live = map[int64]int64{}
	}
	if _, ok := c.live[start]; ok {
		panic(fmt.Sprintf("slab: slot at %d handed out twice", start*Align))
	}
	c.live[start] = n
}

func (c *slotCheck) free(start, n int64) {
	if have, ok := c.live[start]; !ok || have != n {
		panic(fmt.Sprintf("slab: slot at %d freed with %d bytes, handed out with %d", start*Align, n*Align, have*Align))
	}
	delete(c.live, start)
}
