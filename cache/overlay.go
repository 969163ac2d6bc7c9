package cache

import (
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/slab"
)

// overlay holds the newest versions of rows that the host tier does not have yet. It is page-locked host memory, which the
// location words name like a slab of its own, after those of the devices: to a batch, a row there is a hit. Where the devices
// take all slab IDs, it is an extension of the first device's slab instead, and the host memory its copy.
//
// Slots begin at multiples of a line, and compressed rows have room after their end for what decoding reads there: no access
// to a slot brings along bytes of another, which a kernel that runs would find old when a row is published there.
type overlay struct {
	slab  int
	base  int64 // of the first slot in that slab
	far   bool  // in the first device's slab
	mem   device.Buffer
	slots *slab.Allocator
}

const (
	overlayAlign = 128
	// overlayPast is how far decoders read past a compressed row's end, rounded up to words: see kernels/decode.h.
	overlayPast = 24
)

func overlaySlot(stored int, compressed bool) int {
	if compressed {
		stored += overlayPast
	}
	return (stored + overlayAlign - 1) &^ (overlayAlign - 1)
}

// openOverlay takes memory for the overlay. payload is the slabs' bytes for slots.
func (c *Cache) openOverlay(payload int64) error {
	o := &c.overlay
	size := c.opts.Overlay
	for _, t := range c.tables {
		size = max(size, int64(overlaySlot(t.tier.RowBytes(), t.tier.Codec() != nil)))
	}
	size = size &^ (overlayAlign - 1)
	o.slab, o.slots = len(c.devices), slab.NewAllocator(size)
	if o.slab == slab.MaxSlabs {
		o.slab, o.far = 0, true
		o.base = (payload + slab.TailSlack + overlayAlign - 1) &^ (overlayAlign - 1)
	}
	var err error
	o.mem, _, err = device.AllocHostOn(c.devices[0].device, c.nodes.tier, size+slab.TailSlack, "overlay")
	return err
}

// extend returns the bytes that device i's slab has beyond the given ones.
func (o *overlay) extend(i int, bytes int64) int64 {
	if o.far && i == 0 {
		return o.base + o.mem.Size()
	}
	return bytes
}

// seen returns the word that device i's map is to have of a location in the overlay. Where the overlay is in the first
// device's slab, which not every device reads, the others have the host memory under that slab's ID.
func (o *overlay) seen(s *spread, i int, l slab.Location) slab.Location {
	if o.far && !s.reads(i, 0) {
		l -= slab.Location(o.base)
	}
	return l
}

// has says whether a location lies in the overlay.
func (o *overlay) has(l slab.Location) bool {
	return l.Slab() == o.slab && l.Offset() >= o.base
}

// put writes a row to a free slot; ok is false when there is none. side is the first device's, nil if that is lost.
func (o *overlay) put(side *side, stored []byte, compressed bool) (s slot, ok bool, err error) {
	s.bytes = overlaySlot(len(stored), compressed)
	if s.offset, ok = o.slots.Alloc(s.bytes); !ok {
		return s, false, nil
	}
	copy(o.mem.Bytes()[s.offset:], stored)
	if o.far && side != nil {
		err = side.put(o.base+s.offset, stored)
	}
	return s, true, err
}

// stored returns the bytes of a row in a slot.
func (o *overlay) stored(s slot, n int) []byte { return o.mem.Bytes()[s.offset:][:n] }

// location returns the location word of a row in a slot.
func (o *overlay) location(s slot, n int, compressed bool) slab.Location {
	if compressed {
		return slab.Compressed(o.slab, o.base+s.offset, n)
	}
	return slab.Raw(o.slab, o.base+s.offset)
}

func (o *overlay) free(s slot) { o.slots.Free(s.offset, s.bytes) }

func (o *overlay) close(d device.Device) { d.Free(o.mem) }
