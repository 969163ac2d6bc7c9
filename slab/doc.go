// Package slab defines where cached rows lie in GPU memory, and allocates their slots.
//
// A slab is one contiguous allocation in the memory of one device. A cache has at most [MaxSlabs] of them. A slot is the
// space of one row in a slab: the row's stored bytes rounded up to [Align]. Slots, not stored bytes, count against the
// cache's budget. Every slab ends in [TailSlack] bytes that belong to no slot, so that the vector loads of a decoder stay
// inside the allocation.
//
// The package holds formats and host algorithms. It touches no device memory. A [Location] is a value. An [Allocator] is
// not safe for concurrent use.
package slab

// Geometry of a slab.
const (
	// MaxSlabs is the number of slabs a location word can name.
	MaxSlabs = 8
	// MaxBytes is the largest slab, in bytes, that a location word can address.
	MaxBytes = 1 << offsetBits
	// Align is the alignment and granularity of slots, in bytes: one 16-byte vector access.
	Align = 16
	// TailSlack is the number of bytes after the last slot that readers may touch: one 128-byte line.
	TailSlack = 128
)

// SlotBytes returns the bytes of the slot that holds a row of the given stored length.
func SlotBytes(stored int) int { return (stored + Align - 1) &^ (Align - 1) }
