package change

import (
	"context"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// admitted is a row that has been written to slots and is not published yet.
type admitted struct {
	key      uint64
	from, to place.Locations // where it is cached so far, and where it is to be
	moves    bool            // within a slab, for compaction
}

// admitRows writes rows to free slots and publishes them an epoch later: then no kernel can have read the slot before, not
// even the bytes of it that share a sector with a neighbour's. Rows that moving has a location for move from there; others
// get the slots that they do not have yet. Slabs without room for a row stay without it. It returns the bytes written.
func (w *Writer) admitRows(ctx context.Context, rows []wanted, moving map[uint64]slab.Location) (bytes int64, err error) {
	all := w.cycle.admitted[:0]
	defer func() {
		if n := cap(all); n > changedRows && n <= 2*sliceRows { // compaction may move more
			w.cycle.admitted = all[:0]
		}
	}()
	for len(rows) > 0 && err == nil {
		part := rows[:min(len(rows), changedRows)]
		rows = rows[len(part):]
		err = w.change(func() error {
			for _, want := range part {
				move, moves := moving[want.key]
				if !moves {
					move = slab.NoLocation(slab.Cold)
				}
				a, n, err := w.writeRowLocked(want, move)
				if err != nil {
					return w.failLocked(err)
				}
				if bytes += int64(n); a.to.Valid() {
					all = append(all, a)
				}
			}
			return w.publishLocked()
		})
	}
	if len(all) == 0 || err != nil {
		return bytes, err
	}
	w.Counts.Bytes.Add(bytes)
	begun := time.Now()
	waited := w.waitEpoch(ctx)
	w.cycle.waited += time.Since(begun)
	for part := range slices.Chunk(all, changedRows) {
		err := w.change(func() error {
			for _, a := range part {
				w.publishRowLocked(a, waited == nil)
			}
			return w.publishLocked()
		})
		if err != nil {
			return bytes, err
		}
	}
	return bytes, waited
}

// writeRowLocked writes a row to free slots, as far as there are, and returns their bytes. move, if it is a location, is one of
// the row's that is to be replaced by another one in the same slab. A row that is equal to others is not written where these have a slot. a.to is not valid
// if the row gets no slot.
func (w *Writer) writeRowLocked(want wanted, move slab.Location) (a admitted, bytes int, err error) {
	a.to = place.Nowhere()
	if w.mu.err != nil {
		return a, 0, w.mu.err
	}
	now := w.mu.index.locations(want.key)
	if w.mu.updated[want.key] != nil {
		return a, 0, nil
	}
	table, row := hashmap.SplitKey(want.key)
	stored, compressed, ok := w.sources[table].storedLocked(row, now)
	if !ok {
		return a, 0, nil
	}
	n := slab.SlotBytes(len(stored))
	group, _, shared := w.store.GroupOf(want.key)
	var own [slab.MaxSlabs]slab.Location
	to := slices.AppendSeq(own[:0], now.All())
	// put returns a slot in a slab: that of equal rows, or a new one that the row is written to.
	put := func(i int, alloc func(bytes int) (int64, bool)) (l slab.Location, ok bool, err error) {
		if w.set.Devices[i].IsLost() {
			return l, false, nil
		}
		if shared {
			if l, ok = w.store.SharedSlots.Take(group, i, move); ok {
				return l, true, nil
			}
			if move.Valid() && w.store.SharedSlots.Moves(move) {
				return l, false, nil
			}
		}
		offset, ok := alloc(n)
		if !ok {
			return l, false, nil
		}
		if l = place.Location(i, offset, len(stored), compressed); shared {
			w.store.SharedSlots.Add(group, l, move)
		}
		if move.Valid() {
			w.store.Slabs[i].Reserved += int64(n)
		}
		bytes += n
		return l, true, w.mu.index.put(l, stored)
	}
	found := false
	if move.Valid() {
		at := slices.Index(to, move)
		if _, _, several := w.store.SharedSlots.Of(move); at < 0 || several && !shared {
			return a, 0, nil
		}
		l, ok, err := put(move.Slab(), w.store.Slabs[move.Slab()].Slots.Alloc)
		if !ok || err != nil {
			return a, bytes, err
		}
		to[at], found = l, true
	} else {
		for i := range place.SlabsOf(want.slabs &^ now.Slabs()) {
			l, ok, err := put(i, w.store.Slabs[i].Alloc)
			if err != nil {
				return a, bytes, err
			}
			if ok {
				to, found = append(to, l), true
			}
		}
	}
	if !found {
		return a, 0, nil
	}
	w.mu.admitting++
	delete(w.mu.conflicts, want.key)
	return admitted{want.key, now, locationsOf(to), move.Valid()}, bytes, nil
}

// locationsOf returns locations without keeping all, so that it need not be allocated.
func locationsOf(all []slab.Location) place.Locations {
	if len(all) == 1 {
		return place.Locations{First: all[0]}
	}
	return place.Of(slices.Clone(all))
}

// conflictLocked keeps a row that is updated or invalidated from being published as it was.
func (w *Writer) conflictLocked(key uint64) {
	if w.mu.admitting > 0 {
		w.mu.conflicts[key] = struct{}{}
	}
}

// publishRowLocked publishes a row that was written, unless it has changed since.
func (w *Writer) publishRowLocked(a admitted, publish bool) {
	_, conflict := w.mu.conflicts[a.key]
	if w.mu.admitting--; w.mu.admitting == 0 {
		clear(w.mu.conflicts)
	}
	live := w.store.Topology.Load().Live
	now := w.mu.index.locations(a.key)
	was, _ := a.from.Within(live) // what a lost device had is withdrawn already
	to, _ := a.to.Within(live)
	unchanged := !conflict && now.Valid() == was.Valid() && (!now.Valid() || now.Equal(was))
	published := publish && unchanged && to.Valid() && w.mu.err == nil
	if published && !w.mu.index.insert(a.key, to) { // a full map is a rejection
		w.Counts.Refused.Add(1)
		published = false
	}
	unused := a.to.Without(a.from)
	if published {
		unused = a.from.Without(a.to)
	}
	w.retireLocked(a.key, unused, a.moves)
	switch {
	case !published:
	case a.moves:
		w.Counts.Moved.Add(1)
	case a.from.Valid():
		w.Counts.Copied.Add(1)
	default:
		w.admittedLocked(a.key)
		w.Counts.Admitted.Add(1)
	}
}
