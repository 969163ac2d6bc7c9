package change

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// sliceBytes and sliceRows bound what a cycle writes between two of its waits for batches. The best newcomers are served while others are being written, and
// those that give way to the others are served until then.
const (
	sliceBytes = 32 << 20
	sliceRows  = 1 << 16
)

// replace evicts what must give way to newcomers and admits them, slice by slice, and compacts what is left free.
func (w *Writer) replace(ctx context.Context, p *plan) error {
	dropped := make([]int64, len(w.set.Devices))
	if err := w.dropSlots(p.fewer, dropped); err != nil {
		return err
	}
	if err := w.evict(w.crowd(p)); err != nil {
		return err
	}
	victims := w.choose(p, dropped)
	written := int64(0)
	for from := 0; from < len(p.newcomers); {
		to, bytes := from, int64(0)
		for ; to < len(p.newcomers) && to-from < sliceRows && bytes < sliceBytes; to++ {
			bytes += int64(p.newcomers[to].bytes)
		}
		n, err := w.replaceSlice(ctx, p.newcomers[from:to], victims, dropped)
		if written += n; err != nil {
			return err
		}
		clear(dropped) // they are free now
		from = to
	}
	if len(p.newcomers) == 0 {
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	return w.compact(ctx, w.o.MaxBytes-written)
}

// needed adds the bytes that newcomers need in each slab to need.
func needed(newcomers []wanted, need []int64) {
	for _, want := range newcomers {
		for i := range place.SlabsOf(want.missing) {
			need[i] += int64(want.bytes)
		}
	}
}

// room returns how many bytes of slots are free in a slab, and how many there may be. free is negative if the slab is to shrink.
func (w *Writer) room(of *place.Slab) (free, limit int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return of.Limit - of.Used(), of.Limit
}

// choose returns for each device rows to evict, those worth least first: as many as all newcomers need, up to MaxChurn of the slab. retired is
// the bytes that are retired in each slab and not free yet.
func (w *Writer) choose(p *plan, retired []int64) [][]uint64 {
	need, retired := make([]int64, len(w.set.Devices)), slices.Clone(retired)
	needed(p.newcomers, need)
	victims := make([][]uint64, len(w.set.Devices))
	for i, of := range w.store.Slabs {
		free, limit := w.room(of)
		free += retired[i]
		churn := int64(w.o.MaxChurn * float64(limit))
		victims[i], _ = w.least(w.victims(p, i, false), i, min(need[i]-free, churn), retired)
	}
	return victims
}

// replaceSlice evicts what must give way to some newcomers, the first of each device's victims, and admits them. It takes what it evicts off victims, and
// returns the bytes written. retired is the bytes that are retired in each slab and not free yet.
func (w *Writer) replaceSlice(ctx context.Context, newcomers []wanted, victims [][]uint64, retired []int64) (written int64, err error) {
	need := make([]int64, len(w.set.Devices))
	needed(newcomers, need)
	for i, of := range w.store.Slabs {
		free, _ := w.room(of)
		keys, seen := w.least(slices.Values(victims[i]), i, need[i]-free-retired[i], retired)
		if err := w.evict(keys); err != nil {
			return 0, err
		}
		victims[i] = victims[i][seen:]
	}
	begun := time.Now()
	if err := w.flush(ctx); err != nil {
		return 0, err
	}
	w.cycle.waited += time.Since(begun)
	keys := make([]uint64, len(newcomers))
	for i, want := range newcomers {
		keys[i] = want.key
	}
	if err := w.fetch(ctx, keys); err != nil {
		return 0, err
	}
	return w.admitRows(ctx, newcomers, nil)
}

// least returns the first victims that together have this number of bytes in a device's slab, and how many victims it has looked at. It adds the bytes
// that they have in each slab to retired. A slot that equal rows share counts when all of these are victims. least does not need the lock: it takes long
// where most rows stay.
func (w *Writer) least(victims iter.Seq[uint64], device int, bytes int64, retired []int64) (keys []uint64, seen int) {
	if bytes <= 0 {
		return nil, 0
	}
	left := map[slab.Location]int64{} // words of shared slots, without those of victims
	for key := range victims {
		seen++
		p := w.mu.index.cached(key)
		if p.Slabs()>>device&1 == 0 {
			continue
		}
		keys = append(keys, key)
		for l := range p.All() {
			if _, words, shared := w.store.SharedSlots.Of(l); shared {
				if _, known := left[l]; !known {
					left[l] = words
				}
				if left[l]--; left[l] > 0 {
					continue
				}
			}
			n := int64(w.store.SlotBytes(key, l))
			retired[l.Slab()] += n
			if l.Slab() == device {
				bytes -= n
			}
		}
		if bytes <= 0 {
			break
		}
	}
	return keys, seen
}

// evict withdraws rows.
func (w *Writer) evict(keys []uint64) error {
	return inParts(w, w.cycle.by, keys, func(key uint64) {
		if p := w.mu.index.locations(key); p.Valid() && w.mu.updated[key] == nil {
			table, row := hashmap.SplitKey(key)
			w.sources[table].evicting(row, p)
			w.evictLocked(key, p, slab.Evicted)
			w.Counts.Evicted.Add(1)
		}
	})
}

// dropSlots retires the slots of rows in slabs that they are to leave. It adds the bytes retired in each slab to retired.
func (w *Writer) dropSlots(rows []wanted, retired []int64) error {
	return inParts(w, nil, rows, func(want wanted) {
		p := w.mu.index.locations(want.key)
		if !p.Valid() || w.mu.updated[want.key] != nil {
			return
		}
		left, gone := p.Within(want.slabs)
		if !left.Valid() || !gone.Valid() { // the row must get its new slot first, or it has changed
			return
		}
		w.mu.index.insert(want.key, left)
		from := len(w.mu.retire.open.slots)
		w.retireLocked(want.key, gone, false)
		for _, s := range w.mu.retire.open.slots[from:] {
			retired[s.device] += int64(s.bytes)
		}
	})
}

// shrink evicts rows until the slots of every device are within its limit.
func (w *Writer) shrink(ctx context.Context, p *plan) error {
	for i, d := range w.set.Devices {
		of := w.store.Slabs[i]
		for {
			free, _ := w.room(of)
			if free >= 0 || d.IsLost() {
				break
			}
			if err := errors.Join(w.Err(), ctx.Err()); err != nil { // else it might wait for what never comes
				return err
			}
			before := free
			keys, _ := w.least(w.victimsThenOthers(p, i), i, -free, make([]int64, len(w.set.Devices)))
			if err := w.evict(keys); err != nil {
				return err
			}
			if err := w.flush(ctx); err != nil {
				return err
			}
			if free, _ = w.room(of); free == before { // what is left is on its way to or from the overlay
				if err := w.waitEpoch(ctx); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// victimsThenOthers yields the victims of a device, then all other cached rows.
func (w *Writer) victimsThenOthers(p *plan, device int) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for key := range w.victims(p, device, true) {
			if !yield(key) {
				return
			}
		}
		for key := range w.mu.index.m.All() {
			table, row := hashmap.SplitKey(key)
			if p.ranked[table].Has(row) && !yield(key) {
				return
			}
		}
	}
}
