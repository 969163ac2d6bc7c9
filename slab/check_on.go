//go:build invariants

package slab

import (
	"fmt"
	"iter"
)

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

// allocRun is alloc of slots that follow each other, n units in all.
func (c *slotCheck) allocRun(start, n int64, slots iter.Seq[int]) {
	end := start + n
	for bytes := range slots {
		if bytes <= 0 || bytes%Align != 0 {
			panic(fmt.Sprintf("slab: slot bytes (%d) in a run must be a positive multiple of %d", bytes, Align))
		}
		c.alloc(start, int64(bytes/Align))
		start += int64(bytes / Align)
	}
	if start != end {
		panic(fmt.Sprintf("slab: slots of a run end at %d, not at %d", start*Align, end*Align))
	}
}

func (c *slotCheck) free(start, n int64) {
	if have, ok := c.live[start]; !ok || have != n {
		panic(fmt.Sprintf("slab: slot at %d freed with %d bytes, handed out with %d", start*Align, n*Align, have*Align))
	}
	delete(c.live, start)
}
