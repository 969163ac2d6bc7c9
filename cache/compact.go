package cache

import (
	"cmp"
	"context"
	"slices"

	"github.com/tensorcache/tensorcache/slab"
)

// Slots of different sizes leave free pieces between them. Holes are the free pieces that the longest row does not fit in.
// Where they take more than one byte in holeShare of a slab, windows of it are emptied: their free pieces are set aside,
// their rows move to free slots elsewhere, and an epoch later each window is a free piece of its own. Windows with the
// most holes come first.
const (
	holeShare     = 16
	windowSlots   = 16 // of the longest row, in a window
	smallSlab     = 4  // windows: smaller slabs are left alone
	compactRounds = 4
)

// longestSlot returns the bytes of the longest slot there can be.
func (c *Cache) longestSlot() int {
	longest := 0
	for _, t := range c.tables {
		longest = max(longest, slab.SlotBytes(t.tier.RowBytes()))
	}
	return longest
}

// compact empties windows until holes are within their bound, or so many bytes are moved.
func (c *Cache) compact(ctx context.Context, most int64) error {
	for i, d := range c.devices {
		for range compactRounds {
			if d.isLost() {
				break
			}
			moved, err := c.compactDevice(ctx, i, most)
			if err != nil {
				return err
			}
			if moved == 0 {
				break
			}
			most -= moved
		}
	}
	return nil
}

// compactDevice empties windows of one slab and returns the bytes moved: none when holes are within their bound.
func (c *Cache) compactDevice(ctx context.Context, device int, most int64) (int64, error) {
	ch, d, longest := &c.changes, c.devices[device], c.longestSlot()
	width := int64(windowSlots * longest)
	if d.slots.Capacity() < smallSlab*width {
		return 0, nil
	}
	ch.mu.Lock()
	holes := d.slots.HoleBytes(longest)
	excess := holes - d.slots.Capacity()/holeShare
	if excess <= 0 {
		ch.mu.Unlock()
		return 0, nil
	}
	// Choosing does not need the lock, and takes long where windows are many.
	extents := make([][2]int64, 0, d.slots.NumExtents())
	for start, bytes := range d.slots.Extents() {
		extents = append(extents, [2]int64{start, bytes})
	}
	ch.mu.Unlock()
	type window struct{ index, free, holes int64 }
	all := make([]window, (d.slots.Capacity()+width-1)/width)
	for i := range all {
		all[i].index = int64(i)
	}
	for _, e := range extents {
		start, bytes := e[0], e[1]
		for at := start; at < start+bytes; {
			w := at / width
			part := min((w+1)*width, start+bytes) - at
			all[w].free += part
			if bytes < int64(longest) {
				all[w].holes += part
			}
			at += part
		}
	}
	windows := slices.DeleteFunc(all, func(w window) bool { return w.holes == 0 })
	slices.SortFunc(windows, func(a, b window) int { return cmp.Compare(b.holes, a.holes) })
	chosen := map[int64]bool{}
	live := int64(0)
	for _, w := range windows {
		if excess <= 0 || live+width-w.free > most {
			break
		}
		chosen[w.index] = true
		live += width - w.free
		excess -= w.holes
	}
	var claimed []slot
	ch.mu.Lock()
	for _, s := range d.slots.Claim(width, func(w int64) bool { return chosen[w] }) {
		claimed = append(claimed, slot{device: device, offset: s[0], bytes: int(s[1]), aside: true})
		d.aside += s[1]
	}
	ch.mu.Unlock()

	var rows []wanted
	moving := map[uint64]slab.Location{}
	for key, first := range ch.mu.index.All() {
		if c.overlay.has(first) {
			continue
		}
		if l, ok := ch.placesAt(key, first).in(device); ok && chosen[l.Offset()/width] {
			rows = append(rows, wanted{key: key})
			moving[key] = l
		}
	}
	moved, err := c.admitRows(ctx, rows, moving)
	ch.mu.Lock()
	ch.mu.open.slots = append(ch.mu.open.slots, claimed...)
	ch.workLocked()
	ch.mu.Unlock()
	if err == nil {
		err = ch.flush(ctx)
	}
	return moved, err
}
