package change

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/learn"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/hashmap"
)

// TakeOver puts the newest versions of rows in the overlay, which has room for them, as an earlier owner had them there. Their rows in host tiers, which may be half written, are replaced
// when no process reads them as the earlier owner left them. begin is called once the overlay has the rows, and before anything is written elsewhere: it makes this owner's memory what the
// next one finds. REQUIRES: no batch has begun yet.
func (w *Writer) TakeOver(rows []place.NotedRow, begin func() error) error {
	return w.change(func() error {
		for _, r := range rows {
			wait, err := w.updateRowLocked(r.Key, r.Stored, r.Compressed)
			if err == nil && wait != nil {
				err = errors.New("overlay and hashmap must have room for the rows of the overlay that is taken over")
			}
			if err != nil {
				return w.failLocked(err)
			}
		}
		w.Counts.Updated.Add(int64(-len(rows)))
		if err := begin(); err != nil {
			return err
		}
		return w.publishLocked()
	})
}

// AdmitLater has the rows that keys returns admitted, in the background once Start is called, as far as the slabs have room, when no process reads the slabs as an earlier owner
// left them. free is called in the end.
func (w *Writer) AdmitLater(keys func() (all []uint64, free func())) { w.later = keys }

// admitLater admits these rows.
func (w *Writer) admitLater() {
	begun := time.Now()
	if w.set.Kept.Wait(w.life) != nil {
		return
	}
	before := w.Counts.Admitted.Load()
	keys, free := w.later()
	defer free()
	for part := range slices.Chunk(keys, partAdmitted) {
		if on, err := w.admitPart(part); err != nil {
			if w.life.Err() == nil {
				w.watch.Log.Warn("rows cached before are not all cached again", slog.Any("error", err))
			}
			return
		} else if !on {
			break
		}
	}
	w.watch.Log.Info("rows cached before are cached again", slog.Int64("rows", w.Counts.Admitted.Load()-before), slog.Int("of", len(keys)), slog.Duration("after", time.Since(begun)))
}

// partAdmitted is how many rows admitLater admits with the cycle's lock held.
const partAdmitted = 1 << 17

// admitPart admits rows, which the policy observes once. It returns false, and has admitted none, if the slabs have no room for all.
func (w *Writer) admitPart(keys []uint64) (on bool, err error) {
	r := &w.cycle
	r.Lock()
	defer r.Unlock()
	if err := errors.Join(w.life.Err(), w.Err()); err != nil {
		return false, err
	}
	defer w.guard(&err)
	r.fetched, r.kept = map[uint64]fetched{}, 0
	defer func() { r.fetched = nil }()
	ranked := &ranking{}
	rows := make([][]int64, len(w.set.Tables))
	for _, key := range keys {
		ranked.add(key)
		table, row := hashmap.SplitKey(key)
		rows[table] = append(rows[table], row)
	}
	for table, all := range rows {
		for part := range slices.Chunk(all, learn.ObserveRows) {
			if err := w.learner.Call(func(p admission.Policy) { p.Observe(table, part) }); err != nil {
				return false, err
			}
		}
	}
	p, err := w.planOf(ranked, math.MaxInt64)
	if err != nil {
		return false, err
	}
	need := make([]int64, len(w.set.Devices))
	needed(p.newcomers, need)
	for i, of := range w.store.Slabs {
		if free, _ := w.room(of); need[i] > free {
			return false, nil
		}
	}
	return true, w.replace(w.life, p)
}

// earlierLeft waits until no process reads memory as an earlier owner left it, or one has done so for too long.
func (w *Writer) earlierLeft(ctx context.Context) error {
	for w.set.Kept.Waits() {
		some, cancel := context.WithTimeout(ctx, heldInterval)
		err := w.set.Kept.Wait(some)
		cancel()
		if err == nil {
			return nil
		}
		if err := errors.Join(ctx.Err(), w.set.Kept.Held()); err != nil {
			return err
		}
		if w.life.Err() != nil {
			return w.o.Closed
		}
	}
	return nil
}
