package change

import (
	"context"
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// fresh is a row whose newest version lies in the overlay and is served from there. Once no batch reads the row from the
// host tier, it is written there, and to a slab if it is admitted; an epoch later it is served from these, and another one
// later its place in the overlay is free.
type fresh struct {
	key        uint64
	place      place.OverlaySlot
	bytes      int // stored
	compressed bool
	replaced   bool // there is a newer version
	written    bool // the host tier has it
	admitted   bool
	homes      uint8          // bits of the slabs that it was in before
	reslot     place.Places   // written: its places in slabs
	reason     slab.Reason    // of misses, if it is not admitted
	by         *observe.Cause // the update
}

// updateRows and updateBytes bound the rows that are published together, under the writers' lock.
const (
	updateRows  = 1024
	updateBytes = 1 << 20
)

// updatePart updates rows on someone's behalf and returns how many.
func (w *Writer) updatePart(ctx context.Context, t *read.Table, table int, rows []int64, data []byte, by *observe.Cause) (done int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	rowBytes := t.Tier.RowBytes()
	type encoded struct {
		stored     []byte
		compressed bool
	}
	all := make([]encoded, len(rows))
	var buf []byte
	for i := range rows {
		row := data[i*rowBytes:][:rowBytes]
		all[i] = encoded{row, false}
		if k := t.Tier.Codec(); k != nil {
			bound := k.EncodeBound()
			if cap(buf)-len(buf) < bound {
				buf = make([]byte, 0, max(bound, 64<<10))
			}
			dst := buf[len(buf) : len(buf)+bound]
			switch n, err := k.Encode(dst, row); {
			case err == nil:
				all[i] = encoded{dst[:n:n], true}
				buf = buf[:len(buf)+n]
			case !errors.Is(err, codec.ErrIncompressible):
				return 0, err
			}
		}
	}
	longest := int64(0)
	for done < len(rows) {
		w.mu.Lock()
		if w.mu.err != nil {
			w.mu.Unlock()
			return done, w.mu.err
		}
		w.behalfLocked(by)
		reached, wait := done, (<-chan struct{})(nil)
		for reached < len(rows) {
			var err error
			wait, err = w.refreshRowLocked(hashmap.Key(table, rows[reached]), all[reached].stored, all[reached].compressed)
			if err != nil {
				err = w.failLocked(err)
				w.behalfLocked(nil)
				w.mu.Unlock()
				return done, err
			}
			if wait != nil {
				break
			}
			longest = max(longest, rows[reached]+1)
			reached++
		}
		w.behalfLocked(nil)
		err := w.publishLocked()
		if err == nil && longest > t.Tier.Rows() { // what is new is there before anyone can ask for it, and counts before it is written
			t.Tier.Grow(longest)
		}
		w.mu.Unlock()
		if err != nil {
			return done, err
		}
		if done = reached; done < len(rows) {
			w.Counts.Waits.Add(1)
			if err := w.await(ctx, wait); err != nil {
				return done, err
			}
		}
	}
	return done, nil
}

// refreshRowLocked puts a row's new version in the overlay and in the index; where that takes waiting, it returns for what.
func (w *Writer) refreshRowLocked(key uint64, stored []byte, compressed bool) (wait <-chan struct{}, err error) {
	old := w.mu.index.places(key)
	if _, known := w.mu.index.m.Slot(key); !known && !w.makeRoomLocked(key) {
		if w.mu.retire.open.empty() { // what makes room is being dealt with
			return w.mu.retire.progress, nil
		}
		return w.mu.retire.open.done, nil
	}
	first := w.set.Devices[0]
	slot, ok := w.store.Overlay.Put(stored, compressed)
	if !ok {
		return w.mu.retire.progress, nil
	}
	if w.store.Overlay.Far && !first.IsLost() { // the row must be on the device before its location is
		m := w.mu.index.mirrors[0]
		if err := errors.Join(m.put(w.store.Overlay.Base+slot.Offset, stored), m.finish()); err != nil && !w.set.Survives(first) { // else the host memory has the row
			return w.mu.retire.progress, err
		}
	}
	f := &fresh{key: key, place: slot, bytes: len(stored), compressed: compressed, reslot: place.Nowhere(), by: w.mu.by}
	if before := w.mu.fresh[key]; before != nil {
		f.admitted, f.reason, f.homes = before.admitted, before.reason, before.homes
		w.replaceLocked(before)
	} else if old.Valid() {
		f.admitted, f.reason, f.homes = true, slab.Evicted, old.Slabs()
		w.retireLocked(key, old)
	} else {
		f.reason = old.First.Reason()
	}
	if !w.mu.index.insert(key, place.Places{First: w.store.Overlay.Location(slot, len(stored), compressed)}) {
		return nil, fmt.Errorf("cache: no map slot for key %#x, which has one", key)
	}
	delete(w.mu.admitting, key)
	w.mu.fresh[key] = f
	w.mu.retire.open.rows = append(w.mu.retire.open.rows, f)
	w.Counts.Updated.Add(1)
	return nil, nil
}

// replaceLocked retires a version of a row that a newer one replaces.
func (w *Writer) replaceLocked(f *fresh) {
	f.replaced = true
	w.mu.retire.open.overlay = append(w.mu.retire.open.overlay, overlaySlot{OverlaySlot: f.place})
	w.dropSlotLocked(f)
}

// dropSlotLocked gives back the slot that a row was written to but never published at.
func (w *Writer) dropSlotLocked(f *fresh) {
	w.retireLocked(f.key, f.reslot)
	f.reslot = place.Nowhere()
}

// makeRoomLocked says whether the maps have a slot for a key that they do not hold. If not, it sees to it that some
// progress later they have.
func (w *Writer) makeRoomLocked(key uint64) bool {
	if w.mu.index.m.Room(key) {
		return true
	}
	var victim uint64
	found := false
	for rival := range w.mu.index.m.Rivals(key) {
		if w.mu.fresh[rival] != nil {
			continue
		}
		if w.mu.index.delete(rival) { // it only said why it has no location
			w.mu.index.reject(rival)
			return false
		}
		victim, found = rival, true
	}
	if found {
		w.evictLocked(victim, w.mu.index.places(victim), slab.Evicted)
		w.mu.index.delete(victim)
		w.mu.index.reject(victim)
		w.Counts.Evicted.Add(1)
	}
	return false // if all rivals are fresh or deleted, they make room by themselves
}

// advanceFreshLocked takes a row a step on its way from the overlay, an epoch after the last one.
func (w *Writer) advanceFreshLocked(f *fresh) error {
	if !f.written {
		stored := w.store.Overlay.Stored(f.place, f.bytes)
		if err := w.writeHostRowLocked(f.key, stored, f.compressed); err != nil {
			return err
		}
		w.Counts.HostBytes.Add(int64(len(stored)))
		f.written = true
		if f.admitted {
			if err := w.reslotLocked(f, stored); err != nil {
				return err
			}
			if !f.reslot.Valid() { // there is no room for the newer version
				w.behalfLocked(f.by)
				w.withdrawnLocked(f.key)
				w.behalfLocked(nil)
				f.admitted, f.reason = false, slab.Evicted
				w.Counts.Evicted.Add(1)
			}
		}
		w.mu.retire.open.rows = append(w.mu.retire.open.rows, f)
		return nil
	}
	delete(w.mu.fresh, f.key)
	w.mu.retire.open.overlay = append(w.mu.retire.open.overlay, overlaySlot{OverlaySlot: f.place})
	if f.reslot.Valid() {
		w.mu.index.insert(f.key, f.reslot)
		return nil
	}
	if f.admitted { // its slots were on a device that is lost now
		w.behalfLocked(observe.LossOfDevice)
		w.withdrawnLocked(f.key)
		w.behalfLocked(nil)
		f.reason = slab.Evicted
		w.Counts.Lost.Add(1)
	}
	w.mu.index.erase(f.key, f.reason)
	return nil
}

// reslotLocked writes a row's new version to the slabs that it was in, or else to where it belongs, as far as they have room.
func (w *Writer) reslotLocked(f *fresh, stored []byte) error {
	sp := w.store.Topology.Load()
	homes := f.homes & sp.Live
	if homes == 0 {
		homes = sp.Targets(f.key, false, place.Nowhere())
	}
	var all []slab.Location
	for i := range place.SlabsOf(homes) {
		offset, ok := w.store.Slabs[i].Alloc(slab.SlotBytes(f.bytes))
		if !ok {
			continue
		}
		l := place.Location(i, offset, f.bytes, f.compressed)
		if err := w.mu.index.put(l, stored); err != nil {
			return err
		}
		all = append(all, l)
	}
	f.reslot = place.Of(all)
	return nil
}

// writeHostRowLocked writes a row to the host tier, where no batch reads it.
func (w *Writer) writeHostRowLocked(key uint64, stored []byte, compressed bool) error {
	table, row := hashmap.SplitKey(key)
	err := w.mu.index.setHostRow(table, row, stored, compressed)
	if errors.Is(err, transfer.ErrFull) {
		if err := w.repackLocked(table); err != nil {
			return err
		}
		return w.mu.index.setHostRow(table, row, stored, compressed)
	}
	return err
}

// repackLocked gives a packed table new memory with room for rows that grow.
func (w *Writer) repackLocked(i int) error {
	t := w.set.Tables[i]
	old, err := t.Tier.Repack()
	if err != nil {
		return err
	}
	open := w.mu.retire.open
	home := w.set.Devices[0].Device
	open.buffers = append(open.buffers, retiredBuffer{home, old.Mem}, retiredBuffer{home, old.Index})
	for _, d := range w.set.Devices {
		if d.IsLost() {
			continue
		}
		rows, err := t.Tier.AttachRows(d.Device)
		if err != nil && w.set.Survives(d) {
			continue
		}
		if err != nil {
			return err
		}
		was := d.Table(i)
		open.buffers = append(open.buffers, retiredBuffer{d.Device, was.Rows.Index})
		d.SetTable(i, was.WithRows(rows))
	}
	return nil
}

// invalidatePart withdraws rows.
func (w *Writer) invalidatePart(table int, rows []int64, by *observe.Cause) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.behalfLocked(by)
	defer w.behalfLocked(nil)
	if w.mu.err != nil {
		return w.mu.err
	}
	for _, r := range rows {
		key := hashmap.Key(table, r)
		delete(w.mu.admitting, key)
		if f := w.mu.fresh[key]; f != nil {
			if f.admitted {
				w.withdrawnLocked(key)
				f.admitted, f.reason = false, slab.Invalidated
				w.dropSlotLocked(f)
				w.Counts.Invalidated.Add(1)
			}
		} else if p := w.mu.index.places(key); p.Valid() {
			w.evictLocked(key, p, slab.Invalidated)
			w.Counts.Invalidated.Add(1)
		}
	}
	return w.publishLocked()
}

// Update publishes rows of a table, which must be below its capacity, and returns how many are updated, a prefix. Package cache says
// what its caller is promised.
func (w *Writer) Update(ctx context.Context, table int, rows []int64, data []byte, by *observe.Cause) (done int, err error) {
	t := w.set.Tables[table]
	rowBytes := t.Tier.RowBytes()
	given := len(rows)
	rows, data = lastOfEach(rows, data, rowBytes)
	part := max(1, min(updateRows, updateBytes/rowBytes))
	for from := 0; from < len(rows); from += part {
		to := min(from+part, len(rows))
		n, err := w.updatePart(ctx, t, table, rows[from:to], data[from*rowBytes:to*rowBytes], by)
		if err != nil {
			return from + n, err
		}
	}
	w.Counts.Updated.Add(int64(given - len(rows)))
	return given, nil
}

// lastOfEach returns the rows and their data without those that a later one of the same number supersedes: no Gather may see these.
func lastOfEach(rows []int64, data []byte, rowBytes int) ([]int64, []byte) {
	last := make(map[int64]int, len(rows))
	for i, r := range rows {
		last[r] = i
	}
	if len(last) == len(rows) {
		return rows, data
	}
	kept, bytes := make([]int64, 0, len(last)), make([]byte, 0, len(last)*rowBytes)
	for i, r := range rows {
		if last[r] == i {
			kept, bytes = append(kept, r), append(bytes, data[i*rowBytes:][:rowBytes]...)
		}
	}
	return kept, bytes
}

// Invalidate withdraws rows of a table from the data store.
func (w *Writer) Invalidate(table int, rows []int64, by *observe.Cause) error {
	for from := 0; from < len(rows); from += updateRows {
		if err := w.invalidatePart(table, rows[from:min(from+updateRows, len(rows))], by); err != nil {
			return err
		}
	}
	return nil
}
