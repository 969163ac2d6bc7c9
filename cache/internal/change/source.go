package change

import (
	"context"

	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// source is a table as the writer changes it. There are three kinds, by where rows are that no slab holds: cached (a host tier has them all), paged (it has
// some, pages below it the others) and resident (there are none: each row has a slot for good).
type source interface {
	// update replaces rows, each of which is given once, and returns how many it replaced: always the first ones.
	update(ctx context.Context, rows []int64, data []byte, by *observe.Cause) (done int, err error)
	// updatedLocked is told of a row whose newest version the overlay has from now on.
	updatedLocked(row int64)
	// invalidateLocked withdraws rows from slabs.
	invalidateLocked(rows []int64)
	// has says whether a batch that begins now hits a row.
	has(row int64) bool
	// whereLocked says where a row is. It is given a Where that is zero except for Device, which is -1. measure then fills in the stored lengths that only reading the
	// rows tells, without the lock.
	whereLocked(row int64, to *Where)
	measure(rows []int64, all []Where) error
	// storedLocked returns the stored form of a row that is not updated and is cached at now, from host memory or what fetch has read.
	storedLocked(row int64, now place.Locations) (stored []byte, compressed, ok bool)
	// evicting is told of a row that is about to leave its slabs. REQUIRES: the cycle's lock and Writer.mu are held.
	evicting(row int64, from place.Locations)
	// fetch reads those of rows that are not in host memory, as far as they can be read, for storedLocked. REQUIRES: the cycle's lock is held.
	fetch(ctx context.Context, rows []int64)
	// prefetch begins to read those of rows that neither slabs nor host memory have, and returns.
	prefetch(rows []int64)
	// refresh moves rows between the tiers of host memory and below, as the ranking of a cycle has it. ranked are its rows of the table. REQUIRES: the
	// cycle's lock is held.
	refresh(ctx context.Context, r *ranking, ranked read.Bitset) error
	// start starts the background goroutines of the table.
	start()
}

// newSource returns the source of a table.
func (w *Writer) newSource(table int, t *read.Table) source {
	c := cached{w: w, t: t, table: table}
	switch {
	case t.WantResident != nil:
		return &resident{c}
	case t.Cold != nil:
		return &paged{c}
	}
	return &c
}

// cached is a table all of whose rows are in its host tier, and some in slabs.
type cached struct {
	w     *Writer
	t     *read.Table
	table int
}

func (c *cached) update(ctx context.Context, rows []int64, data []byte, by *observe.Cause) (done int, err error) {
	return c.updateInParts(ctx, rows, data, func(rows []int64, all []encodedRow) (int, error) {
		return c.publish(rows, all, by, func(progress <-chan struct{}) error { return c.w.await(ctx, progress) })
	})
}

func (c *cached) updatedLocked(int64) {}

func (c *cached) invalidateLocked(rows []int64) {
	w := c.w
	for _, r := range rows {
		key := hashmap.Key(c.table, r)
		w.conflictLocked(key)
		if f := w.mu.updated[key]; f != nil {
			if f.admitted {
				w.withdrawnLocked(key)
				f.admitted, f.reason = false, slab.Invalidated
				w.dropSlotLocked(f)
				w.Counts.Invalidated.Add(1)
			}
		} else if p := w.mu.index.locations(key); p.Valid() {
			w.evictLocked(key, p, slab.Invalidated)
			w.Counts.Invalidated.Add(1)
		}
	}
}

func (c *cached) has(row int64) bool { return c.w.Find(hashmap.Key(c.table, row)).Valid() }

func (c *cached) storedLocked(row int64, _ place.Locations) (stored []byte, compressed, ok bool) {
	stored, compressed, err := c.t.Tier.Stored(row)
	return stored, compressed, err == nil // a corrupt row is for Gather to report
}

func (c *cached) measure([]int64, []Where) error                       { return nil }
func (c *cached) evicting(int64, place.Locations)                      {}
func (c *cached) fetch(context.Context, []int64)                       {}
func (c *cached) prefetch([]int64)                                     {}
func (c *cached) refresh(context.Context, *ranking, read.Bitset) error { return nil }
func (c *cached) start()                                               {}

// paged is a table whose host tier is Partial: tier.go and prefetched.go.
type paged struct{ cached }

// resident is a table each of whose rows has a slot for good, and no other place to be read from: resident.go and retarget.go.
type resident struct{ cached }

func (r *resident) invalidateLocked([]int64) {}

func (r *resident) has(int64) bool { return true }

func (r *resident) start() {
	if r.t.WantResident.Retarget {
		r.w.retargeting(r.table)
	}
}
