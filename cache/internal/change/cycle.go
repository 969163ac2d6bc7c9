package change

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/place"
)

// cycleState is the state of cycles. Its lock makes them run one at a time.
type cycleState struct {
	sync.Mutex
	most int64          // bytes per device that slabs and maps have been allocated for
	by   *observe.Cause // the cycle under way
	ranking
	admitted []admitted // memory of admitRows
	// fetched has the stored rows that Partial host tiers do not hold; kept is how many bytes of them come from slabs
	// that their rows have left. demoted are rows whose slots in host tiers are to be freed.
	fetched map[uint64]fetched
	kept    int64
	demoted []demotedRow
	waited  time.Duration // for batches, in the cycle under way
	last    struct {      // of the last cycle
		sync.Mutex
		err error
	}
}

// Refresh runs a cycle.
func (w *Writer) Refresh(ctx context.Context) error { return w.runCycle(ctx, nil) }

// SetBudget runs a cycle with another budget of bytes per device.
func (w *Writer) SetBudget(ctx context.Context, bytes int64) error { return w.runCycle(ctx, &bytes) }

// SetRefresh changes how later cycles run, and how often. It waits for a cycle under way.
func (w *Writer) SetRefresh(interval time.Duration, maxChurn float64, maxBytes int64) {
	w.cycle.Lock()
	defer w.cycle.Unlock()
	w.o.MaxChurn, w.o.MaxBytes = maxChurn, maxBytes
	w.interval.Store(int64(interval))
	select {
	case w.paced <- struct{}{}:
	default: // there is a token already
	}
}

// limits returns the bytes that slots may take on each device.
func (w *Writer) limits() []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.store.Limits()
}

// SetPolicy replaces the policy: later cycles follow the new one, which has observed each cached row once. It waits for a cycle under way.
func (w *Writer) SetPolicy(p admission.Policy) error {
	w.cycle.Lock()
	defer w.cycle.Unlock()
	return w.learner.SetPolicy(p, w.store.Capacity(w.limits()), func(yield func(uint64) bool) {
		for key := range w.mu.index.m.All() {
			if w.mu.index.cached(key).Valid() && !yield(key) {
				return
			}
		}
	})
}

// runCycle runs a cycle, with another budget if it is given.
func (w *Writer) runCycle(ctx context.Context, budget *int64) (err error) {
	if err := w.earlierLeft(ctx); err != nil {
		return err
	}
	r := &w.cycle
	r.Lock()
	defer r.Unlock()
	ctx, watch := w.watchCycle(ctx, budget)
	defer func() {
		watch.end(err)
		r.last.Lock()
		defer r.last.Unlock()
		r.last.err = err
	}()
	if err := errors.Join(ctx.Err(), w.Err()); err != nil {
		return err
	}
	w.learner.Drain()
	defer w.guard(&err) // not before: callbacks of Drain may panic while nothing has changed
	if budget != nil {
		if err := w.limit(*budget); err != nil {
			return err
		}
	}
	w.cycle.fetched, w.cycle.kept = map[uint64]fetched{}, 0
	defer func() { w.cycle.fetched = nil }()
	ranked, err := w.rank()
	watch.ranked = time.Now()
	p, failed := w.plan(ranked)
	defer ranked.release()
	err = errors.Join(err, failed)
	watch.planned = time.Now()
	if budget != nil { // rows give way even if the policy has failed
		if shrink := w.shrink(ctx, p); shrink != nil {
			return errors.Join(shrink, err)
		}
		w.budget.Store(*budget) // only now: what is cached is never more than the budget
	}
	if err != nil {
		return err
	}
	if err := w.replace(ctx, p); err != nil {
		return err
	}
	for table, s := range w.sources {
		if err := s.refresh(ctx, ranked, p.ranked[table]); err != nil {
			return err
		}
	}
	w.checkShared()
	w.Counts.Cycles.Add(1)
	return nil
}

// cycleWatch is the span and the log of one cycle of Refresh.
type cycleWatch struct {
	observe.Operation
	writer *Writer
	begun  time.Time
	before [5]int64 // Counts.changed
	// When the policy had ranked, and when the plan was made.
	ranked, planned time.Time
}

// changed returns what cycles have done so far: rows admitted, evicted, moved and refused, and bytes written.
func (n *Counts) changed() [5]int64 {
	return [...]int64{n.Admitted.Load(), n.Evicted.Load(), n.Moved.Load(), n.Refused.Load(), n.Bytes.Load()}
}

// watchCycle begins a cycle: what is withdrawn until end is recorded as its doing. The cycle's lock is held until end.
func (w *Writer) watchCycle(ctx context.Context, budget *int64) (context.Context, *cycleWatch) {
	c := &cycleWatch{writer: w, begun: time.Now(), before: w.Counts.changed()}
	ctx, c.Operation = w.watch.Start(ctx, "refresh", "")
	if budget != nil {
		c.Set(observe.KeyBudget.Int64(*budget))
	}
	w.cycle.by, w.cycle.waited = c.Cause(), 0
	return ctx, c
}

func (c *cycleWatch) end(err error) {
	w := c.writer
	w.cycle.by = nil
	done := w.Counts.changed()
	for i, n := range c.before {
		done[i] -= n
	}
	c.Set(observe.KeyAdmitted.Int64(done[0]), observe.KeyEvicted.Int64(done[1]), observe.KeyMoved.Int64(done[2]), observe.KeyRefused.Int64(done[3]), observe.KeyWritten.Int64(done[4]))
	if err != nil && w.life.Err() != nil { // the cache closes, which ends cycles: nothing has failed
		c.End(nil)
		return
	}
	c.End(err)
	if err != nil {
		w.watch.Log.Warn("refresh failed", slog.Any("error", err))
		return
	}
	w.watch.Log.Debug("refreshed", slog.Duration("took", time.Since(c.begun)), slog.Duration("ranking", c.ranked.Sub(c.begun)),
		slog.Duration("planning", c.planned.Sub(c.ranked)), slog.Duration("waiting", w.cycle.waited), slog.Int64("admitted", done[0]), slog.Int64("evicted", done[1]),
		slog.Int64("bytes", done[4]))
}

// limit sets how many bytes slots may take.
func (w *Writer) limit(budget int64) error {
	if budget > w.cycle.most {
		if err := w.grow(budget); err != nil {
			return fmt.Errorf("cache: budget (%d B): %w", budget, err)
		}
		w.cycle.most = budget
	}
	s := w.store.Space.Load()
	for i, d := range w.set.Devices {
		if !d.IsLost() && s.PayloadOf(i, max(0, budget)) < s.Smallest {
			return fmt.Errorf("%w: %d B must hold at least one slot (%d B) and metadata (%d B)", place.ErrBudget, budget, s.Smallest, s.Fixed+s.Buddy[i]+s.Layout.Bytes())
		}
	}
	total := int64(0)
	err := w.change(func() error {
		for i, d := range w.set.Devices {
			if of := w.store.Slabs[i]; !d.IsLost() {
				of.Limit = min(s.PayloadOf(i, budget), of.Slots.Capacity())
			}
		}
		total = w.store.Capacity(w.store.Limits())
		return nil
	})
	if err != nil {
		return err
	}
	w.budget.Store(max(budget, w.budget.Load()))
	// A policy that panics is reported by the cycle that follows.
	w.learner.Call(func(p admission.Policy) { p.Resize(total) })
	return nil
}
