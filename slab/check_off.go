//go:build !invariants

package slab

import "iter"

// slotCheck does nothing without the invariants tag.
type slotCheck struct{}

func (slotCheck) alloc(start, n int64) {}
func (slotCheck) free(start, n int64)  {}

func (slotCheck) allocRun(start, n int64, slots iter.Seq[int]) {}
