package change

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/slab"
)

// Slots of different lengths leave free pieces between them. A hole is a free piece that is too short for the longest row. If holes take
// more than 1/holeShare of a slab, windows of the slab are emptied: their free pieces are reserved, their rows move to free slots
// elsewhere, and an epoch later each window is one free piece. Windows with the most hole bytes are emptied first.
const (
	holeShare     = 16
	windowSlots   = 16 // length of a window, in slots of the longest row
	smallSlab     = 4  // slabs of fewer windows are not compacted
	compactRounds = 4  // most rounds per slab and cycle
)

// compact empties windows of all slabs until holes are within their bound or most bytes have been moved.
func (w *Writer) compact(ctx context.Context, most int64) error {
	for i, d := range w.set.Devices {
		for range compactRounds {
			if d.IsLost() {
				break
			}
			moved, err := w.compactDevice(ctx, i, most)
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

// compactDevice empties windows of one slab and returns the bytes moved. They are 0 if holes are within their bound.
func (w *Writer) compactDevice(ctx context.Context, device int, most int64) (int64, error) {
	of, longest := w.store.Slabs[device], w.store.LongestSlot()
	width := int64(windowSlots * longest)
	if of.Slots.Capacity() < smallSlab*width {
		return 0, nil
	}
	extents, excess := w.holes(of, longest)
	if excess <= 0 {
		return 0, nil
	}
	// The windows are chosen without the lock, because that takes long if there are many.
	type window struct{ index, free, holes int64 }
	all := make([]window, (of.Slots.End()+width-1)/width)
	for i := range all {
		all[i].index = int64(i)
	}
	for _, e := range extents {
		start, bytes := e[0], e[1]
		for at := start; at < start+bytes; {
			i := at / width
			part := min((i+1)*width, start+bytes) - at
			all[i].free += part
			if bytes < int64(longest) {
				all[i].holes += part
			}
			at += part
		}
	}
	windows := slices.DeleteFunc(all, func(v window) bool { return v.holes == 0 })
	slices.SortFunc(windows, func(a, b window) int { return cmp.Compare(b.holes, a.holes) })
	chosen := map[int64]bool{}
	live := int64(0)
	for _, v := range windows {
		if excess <= 0 || live+width-v.free > most {
			break
		}
		chosen[v.index] = true
		live += width - v.free
		excess -= v.holes
	}
	var claimed []slot
	err := w.change(func() error {
		for _, s := range of.Slots.Claim(width, func(i int64) bool { return chosen[i] }) {
			claimed = append(claimed, slot{device: device, offset: s[0], bytes: int(s[1]), reserved: true})
			of.Reserved += s[1]
		}
		return nil
	})
	if err != nil {
		return 0, err
	}

	var rows []wanted
	moving := map[uint64]slab.Location{}
	for key, first := range w.mu.index.m.All() {
		if w.store.Overlay.Has(first) {
			continue
		}
		if l, ok := w.mu.index.locationsAt(key, first).In(device); ok && chosen[l.Offset()/width] {
			rows = append(rows, wanted{key: key})
			moving[key] = l
		}
	}
	moved := int64(0)
	if err = w.fetchUnread(ctx, device, rows); err == nil {
		moved, err = w.admitRows(ctx, rows, moving)
	}
	released := w.change(func() error {
		w.mu.retire.open.slots = append(w.mu.retire.open.slots, claimed...)
		w.startProcessingLocked()
		return nil
	})
	if err = errors.Join(err, released); err == nil {
		err = w.flush(ctx)
	}
	return moved, err
}

// holes returns the free pieces of a slab, and the bytes by which its holes exceed their bound. If they do not, it returns no pieces.
func (w *Writer) holes(of *place.Slab, longest int) (extents [][2]int64, excess int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if excess = of.Slots.HoleBytes(longest) - of.Slots.Capacity()/holeShare; excess <= 0 {
		return nil, excess
	}
	extents = make([][2]int64, 0, of.Slots.NumExtents())
	for start, bytes := range of.Slots.Extents() {
		extents = append(extents, [2]int64{start, bytes})
	}
	return extents, excess
}
