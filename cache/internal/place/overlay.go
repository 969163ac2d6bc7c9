package place

import (
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/slab"
)

// Overlay holds the newest versions of rows that the host tier does not have yet. It is page-locked host memory, which the
// Location words name like a slab of its own, after those of the devices: to a batch, a row there is a hit. Where the devices
// take all slab IDs, it is the front of the first device's slab instead, and devices that cannot read that have the host memory under
// its ID.
//
// Slots begin at multiples of a line, and compressed rows have room after their end for what decoding reads there: no access
// to a slot brings along bytes of another, which a kernel that runs would find old when a row is published there.
type Overlay struct {
	Slab  int
	Front int64 // bytes of the first device's slab that the overlay takes, 0 where it has a slab ID of its own
	Mem   device.Buffer
	Slots *slab.Allocator

	notes notes // of a cache whose memory outlives it
}

// OverlaySlot is a row's slot in the overlay.
type OverlaySlot struct {
	Offset int64
	Bytes  int
}

const (
	overlayAlign = 128
	// overlayPast is how far decoders read past a compressed row's end, rounded up to words: see kernels/words.h.
	overlayPast = 24
)

func overlaySlot(stored int, compressed bool) int {
	if compressed {
		stored += overlayPast
	}
	return (stored + overlayAlign - 1) &^ (overlayAlign - 1)
}

// OverlayBytes returns the most bytes that a row of a table takes in the overlay.
func OverlayBytes(rowBytes int) int { return overlaySlot(rowBytes, true) }

// OpenOverlay takes at least size bytes of host memory of the set's first device, on the given memory nodes: enough for the longest row of
// every table, compressed or not: resident tables have slots of one length there.
func OpenOverlay(set *read.Set, nodes []int, size int64) (*Overlay, error) {
	for _, t := range set.Tables {
		size = max(size, int64(OverlayBytes(t.Tier.RowBytes())))
	}
	size = size &^ (overlayAlign - 1)
	o := &Overlay{Slab: len(set.Devices), Slots: slab.NewAllocator(0, size)}
	if o.Slab == slab.MaxSlabs {
		o.Slab, o.Front = 0, size+slab.TailSlack
	}
	home, err := set.Devices[0].Device, error(nil)
	if set.Kept == nil {
		o.Mem, _, err = device.AllocHost(home, set.Shared, nodes, size+slab.TailSlack, "overlay")
		return o, err
	}
	if o.Mem, err = set.Kept.Alloc(home, overlayRole, size+slab.TailSlack, "overlay"); err == nil {
		o.notes, err = newNotes(set.Kept, home, size)
	}
	return o, err
}

// Close frees the memory.
func (o *Overlay) Close(home device.Device) {
	home.Free(o.Mem)
	home.Free(o.notes.mem)
}

// In returns the bytes at the front of device i's slab that the overlay takes.
func (o *Overlay) In(i int) int64 {
	if i == 0 {
		return o.Front
	}
	return 0
}

// Has reports whether a location is in the overlay.
func (o *Overlay) Has(l slab.Location) bool {
	return l.Slab() == o.Slab && (o.Front == 0 || l.Offset() < o.Front)
}

// Put writes a row to a free slot of the host memory; ok is false when there is none.
func (o *Overlay) Put(stored []byte, compressed bool) (s OverlaySlot, ok bool) {
	s.Bytes = overlaySlot(len(stored), compressed)
	if s.Offset, ok = o.Slots.Alloc(s.Bytes); ok {
		copy(o.Mem.Bytes()[s.Offset:], stored)
	}
	return s, ok
}

// Stored returns the bytes of a row in a slot.
func (o *Overlay) Stored(s OverlaySlot, n int) []byte { return o.Mem.Bytes()[s.Offset:][:n] }

// Location returns the location word of a row in a slot.
func (o *Overlay) Location(s OverlaySlot, n int, compressed bool) slab.Location {
	if compressed {
		return slab.Compressed(o.Slab, s.Offset, n)
	}
	return slab.Raw(o.Slab, s.Offset)
}

// Free gives a slot back.
func (o *Overlay) Free(s OverlaySlot) {
	o.notes.erase(s)
	o.Slots.Free(s.Offset, s.Bytes)
}

// Note notes which row a slot has, before batches can see it: the next owner finds it by that. It does nothing in a cache whose memory ends with it.
func (o *Overlay) Note(s OverlaySlot, key uint64, stored []byte, compressed bool) {
	o.notes.write(s, key, stored, compressed)
}
