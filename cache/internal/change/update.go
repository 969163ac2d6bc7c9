package change

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// updatedRow is a row whose newest version is in the overlay and is served from there. It leaves the overlay in three steps, an epoch
// after each other. First it is written to the host tier and, if admitted, to slabs. Then batches are directed to these. Last its
// overlay slot is retired.
type updatedRow struct {
	key          uint64
	slot         place.OverlaySlot
	bytes        int // stored length
	compressed   bool
	replaced     bool // a newer version exists
	written      bool // the host tier has this version
	admitted     bool
	oldSlabs     uint8           // bits of the slabs that held the previous version
	newLocations place.Locations // in slabs, once written; not yet published
	reason       slab.Reason     // of misses, if not admitted
	by           *observe.Cause  // the update
}

// updateRows and updateBytes bound how much one hold of the writer's lock publishes.
const (
	updateRows  = 1024
	updateBytes = 1 << 20
)

// encodedRow is a row as tiers store it.
type encodedRow struct {
	stored     []byte
	compressed bool
}

// updateInParts encodes rows and makes them visible by publish, part by part. publish returns how many of its rows it has published. updateInParts returns how many
// are published in all: always the first ones.
func (c *cached) updateInParts(ctx context.Context, rows []int64, data []byte, publish func(rows []int64, all []encodedRow) (done int, err error)) (done int, err error) {
	rowBytes := c.t.Tier.RowBytes()
	part := max(1, min(updateRows, updateBytes/rowBytes))
	for done < len(rows) {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		to := min(done+part, len(rows))
		all, err := c.encode(data[done*rowBytes : to*rowBytes])
		if err != nil {
			return done, err
		}
		n, err := publish(rows[done:to], all)
		if done += n; err != nil {
			return done, err
		}
	}
	return done, nil
}

// encode returns rows as tiers store them.
func (c *cached) encode(data []byte) ([]encodedRow, error) {
	rowBytes, k := c.t.Tier.RowBytes(), c.t.Tier.Codec()
	all := make([]encodedRow, len(data)/rowBytes)
	var buf []byte
	for i := range all {
		bound := 0
		if k != nil {
			bound = k.EncodeBound()
		}
		if cap(buf)-len(buf) < bound {
			buf = make([]byte, 0, max(bound, 64<<10))
		}
		var err error
		if all[i], err = encodeRow(k, buf[len(buf):len(buf)+bound], data[i*rowBytes:][:rowBytes]); err != nil {
			return nil, err
		}
		if all[i].compressed {
			buf = buf[:len(buf)+len(all[i].stored)]
		}
	}
	return all, nil
}

// encodeRow returns a row as tiers store it, by a codec, nil if all rows are raw. A compressed row is in buf, which has the codec's EncodeBound.
func encodeRow(k codec.Codec, buf, row []byte) (encodedRow, error) {
	if k == nil {
		return encodedRow{row, false}, nil
	}
	n, err := k.Encode(buf, row)
	switch {
	case errors.Is(err, codec.ErrIncompressible):
		return encodedRow{row, false}, nil
	case err != nil:
		return encodedRow{}, err
	}
	return encodedRow{buf[:n:n], true}, nil
}

// update appends rows to the log, if there is one, before it publishes them.
func (p *paged) update(ctx context.Context, rows []int64, data []byte, by *observe.Cause) (done int, err error) {
	return p.updateInParts(ctx, rows, data, func(rows []int64, all []encodedRow) (done int, err error) {
		if err := p.w.mayLog(all); err != nil {
			return 0, err
		}
		stored, compressed := make([][]byte, len(all)), make([]bool, len(all))
		for i, e := range all {
			stored[i], compressed[i] = e.stored, e.compressed
		}
		err = p.t.Cold.Commit(rows, stored, compressed, func() (err error) {
			done, err = p.publish(rows, all, by, p.w.awaitLogged) // what the log has is to be served
			return err
		})
		return done, err
	})
}

// mayLog returns an error if rows must not go to a log, which cannot be undone: the writer has failed, or the overlay is short of room and another process
// keeps rows from leaving it.
func (w *Writer) mayLog(all []encodedRow) error {
	short := false
	err := w.change(func() error {
		slots, bytes := w.store.Overlay.Slots, int64(0)
		for _, e := range all {
			bytes += int64(place.OverlayBytes(len(e.stored)))
		}
		short = bytes > slots.Capacity()-slots.Used()
		return nil
	})
	if err == nil && short {
		err = w.heldBack()
	}
	return err
}

// publish puts encoded rows in the overlay and publishes them, as far as it has room, and awaits more. It returns how many it published.
func (c *cached) publish(rows []int64, all []encodedRow, by *observe.Cause, await func(progress <-chan struct{}) error) (done int, err error) {
	w, t, table := c.w, c.t, c.table
	longest := int64(0)
	for done < len(rows) {
		reached, wait := done, (<-chan struct{})(nil)
		err := w.change(func() (err error) {
			w.setCauseLocked(by)
			defer w.setCauseLocked(nil)
			for reached < len(rows) {
				if wait, err = w.updateRowLocked(hashmap.Key(table, rows[reached]), all[reached].stored, all[reached].compressed); err != nil {
					return w.failLocked(err)
				}
				if wait != nil {
					break
				}
				longest = max(longest, rows[reached]+1)
				reached++
			}
			err = w.publishLocked()
			if err == nil && longest > t.Tier.Rows() { // after publishing, so that a row number becomes valid only once its row can be found
				t.Tier.Grow(longest)
				w.set.Lengthened(table)
			}
			return err
		})
		if err != nil {
			return done, err
		}
		if done = reached; done < len(rows) {
			w.Counts.Waits.Add(1)
			if err := await(wait); err != nil {
				return done, err
			}
		}
	}
	return done, nil
}

// updateRowLocked puts a row's new version in the overlay and in the index. If there is no room yet, it returns a channel to wait for.
func (w *Writer) updateRowLocked(key uint64, stored []byte, compressed bool) (wait <-chan struct{}, err error) {
	old := w.mu.index.locations(key)
	if _, known := w.mu.index.m.Slot(key); !known && !w.makeRoomLocked(key) {
		if w.mu.retire.open.empty() { // the group that makes room is being processed
			return w.mu.retire.progress, nil
		}
		return w.mu.retire.open.done, nil
	}
	slot, wait, err := w.overlayLocked(stored, compressed)
	if wait != nil || err != nil {
		return wait, err
	}
	w.store.Overlay.Note(slot, key, stored, compressed)
	f := &updatedRow{key: key, slot: slot, bytes: len(stored), compressed: compressed, newLocations: place.Nowhere(), by: w.mu.cause}
	if before := w.mu.updated[key]; before != nil {
		f.admitted, f.reason, f.oldSlabs = before.admitted, before.reason, before.oldSlabs
		w.replaceLocked(before)
	} else if old.Valid() {
		f.admitted, f.reason, f.oldSlabs = true, slab.Evicted, old.Slabs()
		w.retireLocked(key, old, false)
	} else {
		f.reason = old.First.Reason()
	}
	if !w.mu.index.insert(key, place.Locations{First: w.store.Overlay.Location(slot, len(stored), compressed)}) {
		return nil, fmt.Errorf("cache: no map slot for key %#x, which has one", key)
	}
	w.conflictLocked(key)
	table, row := hashmap.SplitKey(key)
	w.sources[table].updatedLocked(row)
	w.mu.updated[key] = f
	w.mu.retire.open.rows = append(w.mu.retire.open.rows, f)
	w.Counts.Updated.Add(1)
	return nil, nil
}

// overlayLocked puts a row in the overlay, where devices can read it. If there is no room yet, it returns a channel to wait for.
func (w *Writer) overlayLocked(stored []byte, compressed bool) (slot place.OverlaySlot, wait <-chan struct{}, err error) {
	first := w.set.Devices[0]
	front, lost := w.store.Overlay.Front > 0, first.IsLost()
	if front && lost && !w.losses.frontLeft() {
		return slot, w.losses.left, nil
	}
	slot, ok := w.store.Overlay.Put(stored, compressed)
	if !ok {
		return slot, w.mu.retire.progress, nil
	}
	if front && !lost { // devices see the location next, so the row must be there first
		m := w.mu.index.devices[0]
		if err := errors.Join(m.put(slot.Offset, stored), m.finish()); err != nil {
			w.store.Overlay.Free(slot)
			if w.set.Survives(first) { // the others read the row in host memory, once no batch reads the front of the lost slab
				return slot, w.losses.left, nil
			}
			return slot, w.mu.retire.progress, err
		}
	}
	return slot, nil, nil
}

// replaceLocked retires a version that a newer one replaces.
func (w *Writer) replaceLocked(f *updatedRow) {
	f.replaced = true
	w.mu.retire.open.overlay = append(w.mu.retire.open.overlay, overlaySlot{OverlaySlot: f.slot})
	w.dropSlotLocked(f)
}

// dropSlotLocked retires the slots that a row was written to but that were never published.
func (w *Writer) dropSlotLocked(f *updatedRow) {
	w.retireLocked(f.key, f.newLocations, false)
	f.newLocations = place.Nowhere()
}

// makeRoomLocked reports whether the maps have a free slot for a key that they do not hold. If not, it removes another key, whose slot is
// free after an epoch.
func (w *Writer) makeRoomLocked(key uint64) bool {
	if w.mu.index.m.Room(key) {
		return true
	}
	var victim uint64
	found := false
	for rival := range w.mu.index.m.Rivals(key) {
		if w.mu.updated[rival] != nil {
			continue
		}
		if w.mu.index.delete(rival) { // its slot held only the reason of misses
			w.mu.index.reject(rival)
			return false
		}
		victim, found = rival, true
	}
	if found {
		w.evictLocked(victim, w.mu.index.locations(victim), slab.Evicted)
		w.mu.index.delete(victim)
		w.mu.index.reject(victim)
		w.Counts.Evicted.Add(1)
	}
	return false // rivals that are updated or deleted free their slots later
}

// advanceUpdatedLocked takes an updated row one step out of the overlay. REQUIRES: an epoch has passed since the last step.
func (w *Writer) advanceUpdatedLocked(f *updatedRow) error {
	if !f.written {
		stored := w.store.Overlay.Stored(f.slot, f.bytes)
		if err := w.writeHostRowLocked(f.key, stored, f.compressed); err != nil {
			return err
		}
		w.Counts.HostBytes.Add(int64(len(stored)))
		f.written = true
		if f.admitted {
			if err := w.writeSlotsLocked(f, stored); err != nil {
				return err
			}
			if !f.newLocations.Valid() { // no slab has room for the newer version
				w.setCauseLocked(f.by)
				w.withdrawnLocked(f.key)
				w.setCauseLocked(nil)
				f.admitted, f.reason = false, slab.Evicted
				w.Counts.Evicted.Add(1)
			}
		}
		w.mu.retire.open.rows = append(w.mu.retire.open.rows, f)
		return nil
	}
	delete(w.mu.updated, f.key)
	w.mu.retire.open.overlay = append(w.mu.retire.open.overlay, overlaySlot{OverlaySlot: f.slot})
	if f.newLocations.Valid() {
		w.mu.index.insert(f.key, f.newLocations)
		return nil
	}
	if f.admitted { // its slots were on devices that are lost now
		w.setCauseLocked(observe.LossOfDevice)
		w.withdrawnLocked(f.key)
		w.setCauseLocked(nil)
		f.reason = slab.Evicted
		w.Counts.Lost.Add(1)
	}
	w.mu.index.withdraw(f.key, f.reason)
	return nil
}

// writeSlotsLocked writes a row's new version to the slabs that held the previous one. If none of these is left, it
// writes to the slabs where the row belongs. Slabs without room are skipped.
func (w *Writer) writeSlotsLocked(f *updatedRow, stored []byte) error {
	topology := w.store.Topology.Load()
	oldSlabs := f.oldSlabs & topology.Live
	if oldSlabs == 0 {
		oldSlabs = topology.Targets(f.key, false, place.Nowhere())
	}
	var all []slab.Location
	for i := range place.SlabsOf(oldSlabs) {
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
	f.newLocations = place.Of(all)
	return nil
}

// writeHostRowLocked writes a row to the host tier. REQUIRES: no batch reads the row there.
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

// repackLocked moves a packed table to new memory with room for longer rows.
func (w *Writer) repackLocked(i int) error {
	t := w.set.Tables[i]
	old, err := t.Tier.Repack()
	if err != nil {
		return err
	}
	clear(w.mu.index.tiers[i]) // the devices' new indexes have them
	open := w.mu.retire.open
	home := w.set.Devices[0].Device
	open.buffers = append(open.buffers, retiredBuffer{home, old.Mem}, retiredBuffer{home, old.Index})
	for _, d := range w.set.Devices {
		was := d.Table(i)
		open.shares = append(open.shares, was.Share) // also of lost devices: their workers end late
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
		open.buffers = append(open.buffers, retiredBuffer{d.Device, was.Rows.Index})
		d.SetTable(i, was.WithRows(rows))
	}
	return nil
}

// Update replaces rows of a table and returns how many it replaced: always a prefix of rows. REQUIRES: row numbers are below the table's
// capacity. Cache.Update documents the guarantees.
func (w *Writer) Update(ctx context.Context, table int, rows []int64, data []byte, by *observe.Cause) (done int, err error) {
	all := rows
	rows, data = lastOfEach(rows, data, w.set.Tables[table].Tier.RowBytes())
	if done, err := w.sources[table].update(ctx, rows, data, by); err != nil {
		return prefixOf(all, rows, done), err
	}
	w.Counts.Updated.Add(int64(len(all) - len(rows)))
	return len(all), w.mapped(ctx)
}

// prefixOf returns how many of the first rows given are replaced once the first done of left, which lastOfEach has returned, are.
func prefixOf(given, left []int64, done int) int {
	switch {
	case len(given) == len(left):
		return done
	case done == len(left):
		return len(given)
	}
	missing := make(map[int64]struct{}, len(left)-done)
	for _, row := range left[done:] {
		missing[row] = struct{}{}
	}
	return slices.IndexFunc(given, func(row int64) bool { _, is := missing[row]; return is })
}

// lastOfEach returns the rows and their data without those that a later one of the same number supersedes: no Gather may see these.
func lastOfEach(rows []int64, data []byte, rowBytes int) ([]int64, []byte) {
	if ascending(rows) {
		return rows, data
	}
	// A hash table of positions in rows, plus 1, of the last row of each number.
	width := bits.Len(uint(len(rows))) + 1
	last, mask := make([]uint32, 1<<width), uint64(1<<width-1)
	superseded := 0
	for i, r := range slices.Backward(rows) {
		at := uint64(r) * 0x9e3779b97f4a7c15 >> (64 - width)
		for last[at] != 0 && rows[last[at]-1] != r {
			at = (at + 1) & mask
		}
		if last[at] != 0 {
			superseded++
			continue
		}
		last[at] = uint32(i + 1)
	}
	if superseded == 0 {
		return rows, data
	}
	left := make([]uint32, 0, len(rows)-superseded)
	for _, i := range last {
		if i != 0 {
			left = append(left, i-1)
		}
	}
	slices.Sort(left)
	kept, bytes := make([]int64, len(left)), make([]byte, 0, len(left)*rowBytes)
	for k, i := range left {
		kept[k], bytes = rows[i], append(bytes, data[int(i)*rowBytes:][:rowBytes]...)
	}
	return kept, bytes
}

// ascending reports whether each row has a higher number than the one before it.
func ascending(rows []int64) bool {
	for i := 1; i < len(rows); i++ {
		if rows[i] <= rows[i-1] {
			return false
		}
	}
	return true
}

// Invalidate withdraws rows of a table. The host tier keeps them.
func (w *Writer) Invalidate(table int, rows []int64, by *observe.Cause) error {
	for part := range slices.Chunk(rows, updateRows) {
		err := w.change(func() error {
			w.setCauseLocked(by)
			defer w.setCauseLocked(nil)
			w.sources[table].invalidateLocked(part)
			return w.publishLocked()
		})
		if err != nil {
			return err
		}
	}
	return w.mapped(w.life)
}
