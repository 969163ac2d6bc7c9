// Package slab says where cached rows lie in GPU memory and hands out the places.
//
// A slab is one contiguous allocation in one device's memory; a data store has at most [MaxSlabs] of them. A slot is one
// row's place in a slab: the row's stored bytes rounded up to [Align]. The budget pays for slots, not for stored bytes.
// Every slab ends in [TailSlack] bytes that belong to no slot, so that a decoder's vector reads of the last row stay
// inside the allocation.
//
// The package holds formats and host algorithms; it touches no device memory. A [Location] is a value; an [Allocator] is
// not safe for concurrent use, its owner serialises.
package slab

// Geometry of a slab.
const (
	// MaxSlabs is the number of slabs a location word can name.
	MaxSlabs = 8
	// MaxBytes is the size up to which a location word can address a slab.
	MaxBytes = 1 << offsetBits
	// Align is the alignment and granularity of slots, in bytes: one 16-byte vector access.
	Align = 16
	// TailSlack is the number of bytes after the last slot that readers may touch: one 128-byte line.
	TailSlack = 128
)

// SlotBytes returns the bytes of the slot that holds a row of the given stored length.
func SlotBytes(stored int) int { return (stored + Align - 1) &^ (Align - 1) }
