package cache

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/sharing"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// owner is who changes a cache, and knows where its rows are: this process (local), or the process to which an attached cache is attached (*remote). Cache has checked
// arguments, except what only the owner knows: the budget, a target of Retarget, and whether appended rows leave a gap.
type owner interface {
	// update returns how many rows it has replaced: always the first ones. begun says whether it may have replaced some, and not only refused them.
	update(ctx context.Context, table int, rows []int64, data []byte, by *observe.Cause) (done int, begun bool, err error)
	invalidate(table int, rows []int64, by *observe.Cause) error
	refresh(ctx context.Context) error
	setBudget(ctx context.Context, bytes int64) error
	prefetch(table int, rows []int64) error
	merge(ctx context.Context, table int) error
	retarget(ctx context.Context, table, target int) error
	cached(table int, rows []int64, dst []bool) ([]bool, error)
	explain(table int, rows []int64) ([]Explanation, error)
	// snapshot returns the bytes that it has written, as far as this process knows.
	snapshot(path string) (bytes int, err error)
	stats() (Stats, error)
	// ownStats is stats without asking another process.
	ownStats() (Stats, error)
	// pin returns the devices that batches use, until the gate, unless it is nil, is left.
	pin() (*read.Set, *gate)
	// checkOld returns what was wrong with replays of batches that were captured for owners in whose place there is another one.
	checkOld() error
	// own returns an error unless this process is the owner. call is a method that needs that.
	own(call string) error
	// rows returns the length of a table, also while the cache closes.
	rows(table int) int64
	// share lets other processes attach to the cache.
	share(o sharing.Options) (sharing.Owner, error)
	// release frees everything, if New has failed what it has made so far.
	release(failed bool) error
}

// pin returns the devices that batches use, until unpin is called with the gate.
func (c *Cache) pin() (*read.Set, *gate) { return c.owner.pin() }

func unpin(g *gate) {
	if g != nil {
		g.leave()
	}
}

// local is a cache that owns what it reads.
type local struct{ *Cache }

func (l local) update(ctx context.Context, table int, rows []int64, data []byte, by *observe.Cause) (done int, begun bool, err error) {
	t := l.set.Tables[table]
	if n := len(rows); n > 0 && rows[n-1] >= t.Tier.Rows() { // rows ascend, as some are to be appended
		if err := checkDense(t, rows); err != nil {
			return 0, false, err
		}
	}
	done, err = l.writer.Update(ctx, table, rows, data, by)
	return done, true, err
}

func (l local) invalidate(table int, rows []int64, by *observe.Cause) error {
	return l.writer.Invalidate(table, rows, by)
}

func (l local) refresh(ctx context.Context) error { return l.writer.Refresh(ctx) }

func (l local) setBudget(ctx context.Context, bytes int64) error {
	if bytes > maxBudget {
		return badOption("cache: GPUMemory (%d B) must be at most 2^59 B", bytes)
	}
	return l.writer.SetBudget(ctx, bytes)
}

func (l local) own(string) error { return nil }

func (l local) rows(table int) int64 { return l.set.Tables[table].Tier.Rows() }

func (l local) prefetch(table int, rows []int64) error {
	l.writer.Prefetch(table, rows)
	return nil
}

func (l local) merge(ctx context.Context, table int) error {
	return l.kinds[table].merge(ctx, l.set.Tables[table])
}

func (l local) retarget(ctx context.Context, table, target int) (err error) {
	t := l.set.Tables[table]
	if err := l.kinds[table].checkTarget(t, target); err != nil {
		return err
	}
	ctx, watch := l.startChange(ctx, "retarget", table, nil, 0)
	defer func() { watch.End(err) }()
	return l.writer.Retarget(ctx, table, min(target, buddy.MaxTarget(t.Tier.RowBytes())))
}

func (l local) cached(table int, rows []int64, dst []bool) ([]bool, error) {
	limit := l.set.Tables[table].Tier.Rows()
	for _, row := range rows {
		dst = append(dst, row >= 0 && row < limit && l.writer.Has(table, row))
	}
	return dst, nil
}

func (l local) explain(table int, rows []int64) ([]Explanation, error) {
	all := make([]Explanation, len(rows))
	places, err := l.writer.Where(table, rows)
	if err != nil {
		return nil, err
	}
	for i, w := range places {
		e := &all[i]
		*e = Explanation{
			Table: table, Row: rows[i], Cached: w.Cached, Overlay: w.Overlay, Device: w.Device, Offset: w.Offset, Age: w.Age, Reason: w.Reason,
			Compressed: w.Compressed, StoredBytes: w.Stored,
		}
		if w.Stored > 0 {
			e.SlotBytes = slab.SlotBytes(w.Stored)
		}
		e.Tier, e.Since = w.Tier, w.Since
		if out := w.Withdrawn; !out.At.IsZero() {
			e.Eviction = &Eviction{At: out.At, Age: out.Age}
			if out.By != nil {
				e.Eviction.By, e.Eviction.Span = out.By.What, out.By.Span
			}
		}
	}
	// If the policy panics, there are no estimates, and Refresh returns the error.
	l.learner.Call(func(p admission.Policy) {
		if e, ok := p.(admission.Explainer); ok {
			for i, row := range rows {
				if places[i].Ranked {
					estimate := e.Explain(hashmap.Key(table, row))
					all[i].Policy = &estimate
				}
			}
		}
	})
	return all, nil
}

func (l local) snapshot(path string) (bytes int, err error) {
	if bytes, err = l.writer.WriteSnapshot(path); err != nil {
		return bytes, fmt.Errorf("cache: snapshot: %w", err)
	}
	l.watch.Log.Info("snapshot written", slog.String("path", path), slog.Int("bytes", bytes))
	return bytes, nil
}

func (l local) ownStats() (Stats, error) { return l.stats() }

func (l local) pin() (*read.Set, *gate) { return l.set, nil }

func (l local) checkOld() error { return nil }
