package cache

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

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
	place      slot // in the overlay
	bytes      int  // stored
	compressed bool
	replaced   bool // there is a newer version
	written    bool // the host tier has it
	admitted   bool
	homes      uint8       // bits of the slabs that it was in before
	reslot     places      // written: its places in slabs
	reason     slab.Reason // of misses, if it is not admitted
	by         *cause      // the update
}

// updateRows and updateBytes bound the rows that are published together, under the writers' lock.
const (
	updateRows  = 1024
	updateBytes = 1 << 20
)

// Update replaces rows[i] of the table by data[i × row bytes:], for every i; of a row number given twice the last counts.
// When it has returned, every Gather that begins sees the new rows; those under way see either version of each, never a
// mixture. data is used until it returns.
//
// Row numbers from Rows(table) on, below the table's capacity, insert rows: the table becomes as long as the highest one
// needs, and rows between that were never given are zeros. An error that wraps ErrRows, with nothing changed, is for row
// numbers beyond the capacity.
//
// Rows on their way to the host tier are bounded by Options.Overlay: Update waits for earlier ones when there are more,
// which takes as long as the longest batch under way. ctx bounds that; the error then says how many rows are updated, a
// prefix of those given.
func (c *Cache) Update(ctx context.Context, table int, rows []int64, data []byte) (err error) {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	ctx, watch := c.watchChange(ctx, "update", table, rows, len(data))
	defer func() { watch.end(err) }()
	t, err := c.tableFor(table, rows, true)
	if err != nil {
		return err
	}
	rowBytes := t.tier.RowBytes()
	if len(data) != len(rows)*rowBytes {
		return fmt.Errorf("%w: %d bytes for %d rows of table %s must be %d", ErrOutput, len(data), len(rows), t.name, len(rows)*rowBytes)
	}
	part, by := max(1, min(updateRows, updateBytes/rowBytes)), watch.cause()
	for from := 0; from < len(rows); from += part {
		to := min(from+part, len(rows))
		n, err := c.updatePart(ctx, t, table, rows[from:to], data[from*rowBytes:to*rowBytes], by)
		if err != nil {
			return fmt.Errorf("cache: Update of table %s: %d of %d rows are updated: %w", t.name, from+n, len(rows), err)
		}
	}
	return nil
}

// Invalidate withdraws rows from the data store: their later lookups miss, with reason Invalidated, and are read from the
// host tier until admission takes them again: by the next Refresh, if the policy ranks them high. Rows that are not cached
// stay as they are. It waits for no batch. Row numbers outside the table are an error that wraps ErrRows, with nothing changed.
func (c *Cache) Invalidate(table int, rows []int64) (err error) {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	_, watch := c.watchChange(context.Background(), "invalidate", table, rows, 0)
	defer func() { watch.end(err) }()
	if _, err := c.tableFor(table, rows, false); err != nil {
		return err
	}
	for from := 0; from < len(rows); from += updateRows {
		if err := c.changes.invalidate(table, rows[from:min(from+updateRows, len(rows))], watch.cause()); err != nil {
			return err
		}
	}
	return nil
}

// tableFor returns the table and checks the row numbers, up to its capacity where it may grow.
func (c *Cache) tableFor(table int, rows []int64, grow bool) (*table, error) {
	if table < 0 || table >= len(c.tables) {
		return nil, fmt.Errorf("cache: table (%d) must be 0 to %d", table, len(c.tables)-1)
	}
	t := c.tables[table]
	if !grow {
		return t, checkRows(rows, t)
	}
	for i, r := range rows {
		if uint64(r) >= uint64(t.tier.Capacity()) {
			return nil, fmt.Errorf("%w: row number (%d) at position %d must be 0 to %d, the capacity of table %s", ErrRows, r, i, t.tier.Capacity()-1, t.name)
		}
	}
	return t, nil
}

// updatePart updates rows on someone's behalf and returns how many.
func (c *Cache) updatePart(ctx context.Context, t *table, table int, rows []int64, data []byte, by *cause) (done int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	rowBytes := t.tier.RowBytes()
	type encoded struct {
		stored     []byte
		compressed bool
	}
	all := make([]encoded, len(rows))
	var buf []byte
	for i := range rows {
		row := data[i*rowBytes:][:rowBytes]
		all[i] = encoded{row, false}
		if k := t.tier.Codec(); k != nil {
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
	ch := &c.changes
	longest := int64(0)
	for done < len(rows) {
		ch.mu.Lock()
		if ch.mu.err != nil {
			ch.mu.Unlock()
			return done, ch.mu.err
		}
		ch.behalfLocked(by)
		reached, wait := done, (<-chan struct{})(nil)
		for reached < len(rows) {
			var err error
			wait, err = ch.refreshRowLocked(hashmap.Key(table, rows[reached]), all[reached].stored, all[reached].compressed)
			if err != nil {
				err = ch.failLocked(err)
				ch.behalfLocked(nil)
				ch.mu.Unlock()
				return done, err
			}
			if wait != nil {
				break
			}
			longest = max(longest, rows[reached]+1)
			reached++
		}
		ch.behalfLocked(nil)
		err := ch.publishLocked()
		if err == nil && longest > t.tier.Rows() { // what is new is there before anyone can ask for it, and counts before it is written
			t.tier.Grow(longest)
		}
		ch.mu.Unlock()
		if err != nil {
			return done, err
		}
		if done = reached; done < len(rows) {
			ch.counts.waits.Add(1)
			if err := ch.await(ctx, wait); err != nil {
				return done, err
			}
		}
	}
	return done, nil
}

// refreshRowLocked puts a row's new version in the overlay and in the index; where that takes waiting, it returns for what.
// REQUIRES: ch.mu is locked.
func (ch *changes) refreshRowLocked(key uint64, stored []byte, compressed bool) (wait <-chan struct{}, err error) {
	c := ch.cache
	old := ch.placesOf(key)
	if _, known := ch.mu.index.Slot(key); !known && !ch.makeRoomLocked(key) {
		if ch.mu.open.empty() { // what makes room is being dealt with
			return ch.mu.progress, nil
		}
		return ch.mu.open.done, nil
	}
	first := c.devices[0]
	var side *side
	if !first.isLost() {
		side = ch.mu.sides[0]
	}
	place, ok, err := c.overlay.put(side, stored, compressed)
	if err == nil && ok && c.overlay.far && side != nil { // the row must be there before its location is
		err = side.finish()
	}
	if err != nil && c.survives(first) {
		err = nil // the host memory has it
	}
	if !ok || err != nil {
		return ch.mu.progress, err
	}
	f := &fresh{key: key, place: place, bytes: len(stored), compressed: compressed, reslot: nowhere(), by: ch.mu.by}
	if before := ch.mu.fresh[key]; before != nil {
		f.admitted, f.reason, f.homes = before.admitted, before.reason, before.homes
		ch.replaceLocked(before)
	} else if old.valid() {
		f.admitted, f.reason, f.homes = true, slab.Evicted, old.slabs()
		ch.retireLocked(key, old)
	} else {
		f.reason = old.first.Reason()
	}
	if !ch.insertLocked(key, places{first: c.overlay.location(place, len(stored), compressed)}) {
		return nil, fmt.Errorf("cache: no map slot for key %#x, which has one", key)
	}
	delete(ch.mu.admitting, key)
	ch.mu.fresh[key] = f
	ch.mu.open.rows = append(ch.mu.open.rows, f)
	ch.counts.updated.Add(1)
	return nil, nil
}

// replaceLocked retires a version of a row that a newer one replaces. REQUIRES: ch.mu is locked.
func (ch *changes) replaceLocked(f *fresh) {
	f.replaced = true
	ch.mu.open.overlay = append(ch.mu.open.overlay, f.place)
	ch.dropSlotLocked(f)
}

// dropSlotLocked gives back the slot that a row was written to but never published at. REQUIRES: ch.mu is locked.
func (ch *changes) dropSlotLocked(f *fresh) {
	ch.retireLocked(f.key, f.reslot)
	f.reslot = nowhere()
}

// makeRoomLocked says whether the maps have a slot for a key that they do not hold. If not, it sees to it that some
// progress later they have. REQUIRES: ch.mu is locked.
func (ch *changes) makeRoomLocked(key uint64) bool {
	if ch.mu.index.Room(key) {
		return true
	}
	var victim uint64
	found := false
	for rival := range ch.mu.index.Rivals(key) {
		if ch.mu.fresh[rival] != nil {
			continue
		}
		if ch.deleteLocked(rival) { // it only said why it has no location
			ch.rejectLocked(rival)
			return false
		}
		victim, found = rival, true
	}
	if found {
		ch.evictLocked(victim, ch.placesOf(victim), slab.Evicted)
		ch.deleteLocked(victim)
		ch.rejectLocked(victim)
		ch.counts.evicted.Add(1)
	}
	return false // if all rivals are fresh or deleted, they make room by themselves
}

// advanceFreshLocked takes a row a step on its way from the overlay, an epoch after the last one. REQUIRES: ch.mu is
// locked.
func (ch *changes) advanceFreshLocked(f *fresh) error {
	c := ch.cache
	if !f.written {
		stored := c.overlay.stored(f.place, f.bytes)
		if err := c.writeHostRow(f.key, stored, f.compressed); err != nil {
			return err
		}
		ch.counts.hostBytes.Add(int64(len(stored)))
		f.written = true
		if f.admitted {
			if err := c.reslotLocked(f, stored); err != nil {
				return err
			}
			if !f.reslot.valid() { // there is no room for the newer version
				ch.behalfLocked(f.by)
				ch.withdrawnLocked(f.key)
				ch.behalfLocked(nil)
				f.admitted, f.reason = false, slab.Evicted
				ch.counts.evicted.Add(1)
			}
		}
		ch.mu.open.rows = append(ch.mu.open.rows, f)
		return nil
	}
	delete(ch.mu.fresh, f.key)
	ch.mu.open.overlay = append(ch.mu.open.overlay, f.place)
	if f.reslot.valid() {
		ch.insertLocked(f.key, f.reslot)
		return nil
	}
	if f.admitted { // its slots were on a device that is lost now
		ch.behalfLocked(lossOfDevice)
		ch.withdrawnLocked(f.key)
		ch.behalfLocked(nil)
		f.reason = slab.Evicted
		c.losses.rows.Add(1)
	}
	ch.eraseLocked(f.key, f.reason)
	return nil
}

// reslotLocked writes a row's new version to the slabs that it was in, or else to where it belongs, as far as they have room.
// REQUIRES: c.changes.mu is locked.
func (c *Cache) reslotLocked(f *fresh, stored []byte) error {
	sp := c.spread.Load()
	homes := f.homes & sp.live
	if homes == 0 {
		homes = sp.targets(f.key, false, nowhere())
	}
	var all []slab.Location
	for i := range slabsOf(homes) {
		offset, ok := c.devices[i].alloc(slab.SlotBytes(f.bytes))
		if !ok {
			continue
		}
		l := locationOf(i, offset, f.bytes, f.compressed)
		if err := c.changes.putLocked(l, stored); err != nil {
			return err
		}
		all = append(all, l)
	}
	f.reslot = placesOf(all)
	return nil
}

// writeHostRow writes a row to the host tier, which no batch reads it from, and lets the devices know.
func (c *Cache) writeHostRow(key uint64, stored []byte, compressed bool) error {
	i, row := hashmap.SplitKey(key)
	t := c.tables[i]
	w, changed, err := t.tier.Write(row, stored, compressed)
	if errors.Is(err, transfer.ErrFull) {
		if err := c.repack(i); err != nil {
			return err
		}
		w, changed, err = t.tier.Write(row, stored, compressed)
	}
	if err != nil || !changed {
		return err
	}
	return c.changes.onSidesLocked(func(j int, s *side) error {
		rows := c.devices[j].table(i).tier
		target := rows.Index
		if t.tier.Mode() == InPlace {
			target = rows.Compressed
		}
		return s.store(target, []word{{w.Index, w.Value}})
	})
}

// repack gives a packed table new memory with room for rows that grow. REQUIRES: c.changes.mu is locked.
func (c *Cache) repack(i int) error {
	t := c.tables[i]
	old, err := t.tier.Repack()
	if err != nil {
		return err
	}
	open := c.changes.mu.open
	home := c.devices[0].device
	open.buffers = append(open.buffers, retiredBuffer{home, old.Mem}, retiredBuffer{home, old.Index})
	for _, d := range c.devices {
		if d.isLost() {
			continue
		}
		rows, err := t.tier.AttachRows(d.device)
		if err != nil && c.survives(d) {
			continue
		}
		if err != nil {
			return err
		}
		was := d.table(i)
		open.buffers = append(open.buffers, retiredBuffer{d.device, was.tier.Index})
		d.tables[i].Store(&tableOnDevice{
			tier: rows, codec: was.codec, rejected: was.rejected, oversize: was.oversize, share: was.share,
			hitShare: atomic.LoadUint32(&was.hitShare),
		})
	}
	return nil
}

// invalidate withdraws rows.
func (ch *changes) invalidate(table int, rows []int64, by *cause) error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.behalfLocked(by)
	defer ch.behalfLocked(nil)
	if ch.mu.err != nil {
		return ch.mu.err
	}
	for _, r := range rows {
		key := hashmap.Key(table, r)
		delete(ch.mu.admitting, key)
		if f := ch.mu.fresh[key]; f != nil {
			if f.admitted {
				ch.withdrawnLocked(key)
				f.admitted, f.reason = false, slab.Invalidated
				ch.dropSlotLocked(f)
				ch.counts.invalidated.Add(1)
			}
		} else if p := ch.placesOf(key); p.valid() {
			ch.evictLocked(key, p, slab.Invalidated)
			ch.counts.invalidated.Add(1)
		}
	}
	return ch.publishLocked()
}
