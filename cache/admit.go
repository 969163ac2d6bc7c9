package cache

import (
	"context"
	"errors"
	"slices"

	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// admitted is a row on its way to slots.
type admitted struct {
	key      uint64
	from, to places // where it is cached so far, and where it is to be
	moves    bool   // within a slab, to make free space whole
}

// admitRows writes rows to free slots and publishes them an epoch later: then no kernel can have read the slot before, not
// even the bytes of it that share a sector with a neighbour's. Rows that moving has a location for move from there; others
// get the slots that they do not have yet. Slabs without a place for a row stay without it. It returns the bytes written.
func (c *Cache) admitRows(ctx context.Context, rows []wanted, moving map[uint64]slab.Location) (bytes int64, err error) {
	ch := &c.changes
	var all []admitted
	for len(rows) > 0 && err == nil {
		part := rows[:min(len(rows), changedRows)]
		rows = rows[len(part):]
		ch.mu.Lock()
		for _, w := range part {
			move, moves := moving[w.key]
			if !moves {
				move = slab.NoLocation(slab.Cold)
			}
			var a admitted
			var n int
			if a, n, err = c.writeRowLocked(w, move); err != nil {
				err = ch.failLocked(err)
				break
			}
			if n > 0 {
				all = append(all, a)
				bytes += int64(n)
			}
		}
		err = errors.Join(err, ch.publishLocked())
		ch.mu.Unlock()
	}
	if len(all) == 0 || err != nil {
		return bytes, err
	}
	ch.counts.bytes.Add(bytes)
	waited := c.waitEpoch(ctx)
	for len(all) > 0 {
		part := all[:min(len(all), changedRows)]
		all = all[len(part):]
		ch.mu.Lock()
		for _, a := range part {
			c.publishRowLocked(a, waited == nil)
		}
		err = errors.Join(err, ch.publishLocked())
		ch.mu.Unlock()
	}
	return bytes, errors.Join(waited, err)
}

// writeRowLocked writes a row to free slots, as far as there are, and returns their bytes. move, if it is a location, is one of
// the row's that is to be replaced by another one in the same slab. REQUIRES: c.changes.mu is locked.
func (c *Cache) writeRowLocked(w wanted, move slab.Location) (a admitted, bytes int, err error) {
	ch := &c.changes
	if ch.mu.err != nil {
		return a, 0, ch.mu.err
	}
	now := ch.placesOf(w.key)
	if ch.mu.fresh[w.key] != nil {
		return a, 0, nil
	}
	table, row := hashmap.SplitKey(w.key)
	stored, compressed, err := c.tables[table].tier.Stored(row)
	if err != nil {
		return a, 0, nil // a corrupt row is for Gather to report
	}
	n := slab.SlotBytes(len(stored))
	to := now.list()
	write := func(i int, offset int64) (slab.Location, error) {
		l := locationOf(i, offset, len(stored), compressed)
		bytes += n
		return l, ch.putLocked(l, stored)
	}
	if move.Valid() {
		at := slices.Index(to, move)
		if at < 0 {
			return a, 0, nil
		}
		d := c.devices[move.Slab()]
		offset, ok := d.slots.Alloc(n)
		if !ok || d.isLost() {
			return a, 0, nil
		}
		d.aside += int64(n)
		if to[at], err = write(d.index, offset); err != nil {
			return a, bytes, err
		}
	} else {
		for i := range slabsOf(w.slabs &^ now.slabs()) {
			offset, ok := c.devices[i].alloc(n)
			if !ok || c.devices[i].isLost() {
				continue
			}
			l, err := write(i, offset)
			if err != nil {
				return a, bytes, err
			}
			to = append(to, l)
		}
	}
	if bytes == 0 {
		return a, 0, nil
	}
	ch.mu.admitting[w.key] = struct{}{}
	return admitted{w.key, now, placesOf(to), move.Valid()}, bytes, nil
}

// publishRowLocked publishes a row that was written, unless it has changed since. REQUIRES: c.changes.mu is locked.
func (c *Cache) publishRowLocked(a admitted, publish bool) {
	ch := &c.changes
	_, unchanged := ch.mu.admitting[a.key]
	delete(ch.mu.admitting, a.key)
	live := c.spread.Load().live
	now := ch.placesOf(a.key)
	was, _ := a.from.within(live) // what a lost device had is withdrawn already
	to, _ := a.to.within(live)
	unchanged = unchanged && now.valid() == was.valid() && (!now.valid() || now.equal(was))
	published := publish && unchanged && to.valid() && ch.mu.err == nil
	if published && !ch.insertLocked(a.key, to) { // a full map is a rejection
		ch.counts.refused.Add(1)
		published = false
	}
	unused := without(a.to, a.from)
	if published {
		unused = without(a.from, a.to)
	}
	if unused.valid() {
		from := len(ch.mu.open.slots)
		ch.retireLocked(a.key, unused)
		for i := range ch.mu.open.slots[from:] {
			ch.mu.open.slots[from+i].aside = a.moves
		}
	}
	switch {
	case !published:
	case a.moves:
		ch.counts.moved.Add(1)
	case a.from.valid():
		ch.counts.copied.Add(1)
	default:
		ch.admittedLocked(a.key)
		ch.counts.admitted.Add(1)
	}
}

// without returns the places of p that q does not have.
func without(p, q places) places {
	var left []slab.Location
	other := q.list()
	for l := range p.all() {
		if !slices.Contains(other, l) {
			left = append(left, l)
		}
	}
	return placesOf(left)
}
