package change

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/bits"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// cycleState is the state of cycles. Its lock makes them run one at a time.
type cycleState struct {
	sync.Mutex
	most int64          // bytes per device that slabs and maps have been allocated for
	by   *observe.Cause // the cycle under way
	last struct {       // of the last cycle
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
	w.o.MaxChurn, w.o.MaxBytes = maxChurn, maxBytes
	w.cycle.Unlock()
	w.interval.Store(int64(interval))
	select {
	case w.paced <- struct{}{}:
	default: // there is a token already
	}
}

// SetPolicy replaces the policy: later cycles follow the new one, which has observed each cached row once. It waits for a cycle under way.
func (w *Writer) SetPolicy(p admission.Policy) error {
	w.cycle.Lock()
	defer w.cycle.Unlock()
	w.mu.Lock()
	capacity := w.store.Capacity(w.store.Limits())
	w.mu.Unlock()
	return w.learner.SetPolicy(p, capacity, func(yield func(uint64) bool) {
		for key := range w.mu.index.m.All() {
			if w.mu.index.cached(key).Valid() && !yield(key) {
				return
			}
		}
	})
}

// runCycle runs a cycle, with another budget if it is given.
func (w *Writer) runCycle(ctx context.Context, budget *int64) (err error) {
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
	if err := ctx.Err(); err != nil {
		return err
	}
	if budget != nil {
		if err := w.limit(*budget); err != nil {
			return err
		}
	}
	w.learner.Drain()
	p, err := w.rank()
	if budget != nil { // rows give way, whatever the policy does
		shrink := w.shrink(ctx, p)
		w.budget.Store(*budget) // only now: what is cached is never more than the budget
		if shrink != nil || err != nil {
			return errors.Join(shrink, err)
		}
	}
	if err != nil {
		return err
	}
	if err := w.replace(ctx, p); err != nil {
		return err
	}
	w.Counts.Cycles.Add(1)
	return nil
}

// cycleWatch is the span and the log of one cycle of Refresh.
type cycleWatch struct {
	observe.Operation
	writer *Writer
	begun  time.Time
	before changed
}

// changed is what cycles have done so far.
type changed struct{ admitted, evicted, moved, refused, bytes int64 }

func (n *Counts) changed() changed {
	return changed{n.Admitted.Load(), n.Evicted.Load(), n.Moved.Load(), n.Refused.Load(), n.Bytes.Load()}
}

// watchCycle begins a cycle, and has what it withdraws remembered as its own. The cycle's lock is held until end.
func (w *Writer) watchCycle(ctx context.Context, budget *int64) (context.Context, *cycleWatch) {
	c := &cycleWatch{writer: w, begun: time.Now(), before: w.Counts.changed()}
	ctx, c.Operation = w.watch.Start(ctx, "refresh", "")
	if budget != nil {
		c.Set(observe.KeyBudget.Int64(*budget))
	}
	w.cycle.by = c.Cause()
	return ctx, c
}

func (c *cycleWatch) end(err error) {
	w := c.writer
	w.cycle.by = nil
	now, before := w.Counts.changed(), c.before
	admitted, evicted, bytes := now.admitted-before.admitted, now.evicted-before.evicted, now.bytes-before.bytes
	c.Set(
		observe.KeyAdmitted.Int64(admitted), observe.KeyEvicted.Int64(evicted), observe.KeyMoved.Int64(now.moved-before.moved),
		observe.KeyRefused.Int64(now.refused-before.refused), observe.KeyWritten.Int64(bytes),
	)
	c.End(err)
	if err != nil {
		w.watch.Log.Warn("refresh failed", slog.Any("error", err))
		return
	}
	w.watch.Log.Debug("refreshed", slog.Duration("took", time.Since(c.begun)), slog.Int64("admitted", admitted), slog.Int64("evicted", evicted),
		slog.Int64("bytes", bytes))
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
	payload := (max(0, budget) - s.Fixed - s.Layout.Bytes()) &^ (slab.Align - 1)
	if payload < s.Smallest {
		return fmt.Errorf("%w: %d B must hold at least one slot (%d B) and metadata (%d B)", place.ErrBudget, budget, s.Smallest, s.Fixed+s.Layout.Bytes())
	}
	w.mu.Lock()
	for i, d := range w.set.Devices {
		if s := w.store.Slabs[i]; !d.IsLost() {
			s.Limit = min(payload, s.Slots.Capacity())
		}
	}
	total := w.store.Capacity(w.store.Limits())
	w.mu.Unlock()
	w.budget.Store(max(budget, w.budget.Load()))
	// A policy that panics is reported by the cycle that follows.
	w.learner.Call(func(p admission.Policy) { p.Resize(total) })
	return nil
}

// plan is what a cycle is to do.
type plan struct {
	// newcomers are the rows to admit and the cached rows to copy, best first. fewer are the cached rows to remove from some of their
	// slabs. surplus are the cached rows that the policy ranks too low to stay, best first. Cached rows that are not in ranked are
	// worth less than those in surplus.
	newcomers, fewer []wanted
	surplus          []uint64
	ranked           []read.Bitset
}

// wanted is a row and the bits of the slabs that it is to be in.
type wanted struct {
	key   uint64
	slabs uint8
}

// rank makes a plan from the policy's ranking.
func (w *Writer) rank() (*plan, error) {
	p := &plan{}
	topology := w.store.Topology.Load()
	used := make([]int64, len(w.set.Devices))
	w.mu.Lock()
	limit := w.store.Limits()
	w.mu.Unlock()
	for _, t := range w.set.Tables {
		p.ranked = append(p.ranked, read.NewBitset(t.Tier.Capacity()))
	}
	var rejected []uint64
	bytes, ranked := int64(0), int64(0) // to be written, and of all rows so far
	err := w.learner.Call(func(policy admission.Policy) {
		if len(w.set.Devices) > 1 && place.DecideAt(w.Counts.Cycles.Load()+1) {
			w.store.Hot.Decide(w.store, policy, limit)
		}
		hot := w.store.Hot.Bytes.Load()
		for key := range policy.Rank() {
			table, row := hashmap.SplitKey(key)
			if table >= len(w.set.Tables) || row >= w.set.Tables[table].Tier.Rows() || p.ranked[table].Has(row) {
				continue
			}
			t := w.set.Tables[table]
			p.ranked[table].Add(row)
			now := w.mu.index.cached(key)
			cached := now.Valid()
			targets := topology.Targets(key, ranked < hot, now)
			fits := func(n int) (slabs uint8) {
				for i := range place.SlabsOf(targets) {
					if used[i]+int64(n) <= limit[i] {
						slabs |= 1 << i
					}
				}
				return slabs
			}
			n := int(w.store.Space.Load().Smallest)
			if cached {
				n = w.store.SlotBytes(key, now.First)
			} else if fits(n) != 0 { // else its length does not matter, and is in memory gone cold
				var err error
				if n, err = t.Tier.SlotBytes(row); err != nil {
					continue // a corrupt row is for Gather to report
				}
			}
			if ranked += int64(n); ranked > hot { // it may be the last one to be copied, or not
				targets = topology.Targets(key, false, now)
			}
			into := fits(n)
			for i := range place.SlabsOf(into) {
				used[i] += int64(n)
			}
			have := now.Slabs()
			if into != 0 && into&^have != 0 {
				if bytes += int64(n * bits.OnesCount8(into&^have)); bytes <= w.o.MaxBytes {
					p.newcomers = append(p.newcomers, wanted{key, into})
				}
			}
			switch {
			case into != 0 && have&^into != 0:
				p.fewer = append(p.fewer, wanted{key, into})
			case into == 0 && cached:
				p.surplus = append(p.surplus, key)
			case into == 0 && !t.Rejected.HasShared(row):
				rejected = append(rejected, key)
			}
		}
	})
	failed := inParts(w, nil, rejected, func(key uint64) { w.mu.index.reject(key) })
	return p, errors.Join(err, failed)
}

// hasSlot reports whether a row has a slot in a device's slab.
func (w *Writer) hasSlot(key uint64, device int) bool {
	return w.mu.index.cached(key).Slabs()>>device&1 != 0
}

// victims yields the cached rows of one device that may be evicted, those worth least first.
func (w *Writer) victims(p *plan, device int) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for key := range w.mu.index.m.All() {
			table, row := hashmap.SplitKey(key)
			if !p.ranked[table].Has(row) && w.hasSlot(key, device) && !yield(key) {
				return
			}
		}
		for i := len(p.surplus) - 1; i >= 0; i-- {
			if w.hasSlot(p.surplus[i], device) && !yield(p.surplus[i]) {
				return
			}
		}
	}
}

// evict withdraws victims until the given bytes of the device's slots are retired. It adds the bytes retired in each slab to retired.
func (w *Writer) evict(victims iter.Seq[uint64], device int, bytes int64, retired []int64) error {
	if bytes <= 0 {
		return nil
	}
	// Choosing does not need the lock, and takes long where most rows stay.
	var keys []uint64
	evicted := int64(0)
	for key := range victims {
		p := w.mu.index.cached(key)
		if p.Slabs()>>device&1 == 0 {
			continue
		}
		keys = append(keys, key)
		for l := range p.All() {
			retired[l.Slab()] += int64(w.store.SlotBytes(key, l))
		}
		if evicted += int64(w.store.SlotBytes(key, p.First)); evicted >= bytes {
			break
		}
	}
	return inParts(w, w.cycle.by, keys, func(key uint64) {
		if p := w.mu.index.places(key); p.Valid() && w.mu.updated[key] == nil {
			w.evictLocked(key, p, slab.Evicted)
			w.Counts.Evicted.Add(1)
		}
	})
}

// dropSlots retires the slots of rows in slabs that they are to leave. It adds the bytes retired in each slab to retired.
func (w *Writer) dropSlots(rows []wanted, retired []int64) error {
	return inParts(w, nil, rows, func(want wanted) {
		p := w.mu.index.places(want.key)
		if !p.Valid() || w.mu.updated[want.key] != nil {
			return
		}
		left, gone := p.Within(want.slabs)
		if !left.Valid() || !gone.Valid() { // the row must get its new slot first, or it has changed
			return
		}
		w.mu.index.insert(want.key, left)
		w.retireLocked(want.key, gone)
		for l := range gone.All() {
			retired[l.Slab()] += int64(w.store.SlotBytes(want.key, l))
		}
	})
}

// shrink evicts rows until the slots of every device are within its limit.
func (w *Writer) shrink(ctx context.Context, p *plan) error {
	for i, d := range w.set.Devices {
		of := w.store.Slabs[i]
		for {
			w.mu.Lock()
			over, err := of.Used()-of.Limit, w.mu.err
			w.mu.Unlock()
			if over <= 0 || d.IsLost() {
				break
			}
			if err := errors.Join(err, ctx.Err()); err != nil { // else it might wait for what never comes
				return err
			}
			before := over
			if err := w.evict(w.victimsThenOthers(p, i), i, over, make([]int64, len(w.set.Devices))); err != nil {
				return err
			}
			if err := w.flush(ctx); err != nil {
				return err
			}
			w.mu.Lock()
			over = of.Used() - of.Limit
			w.mu.Unlock()
			if over == before { // what is left is on its way to or from the overlay
				if err := w.set.WaitEpoch(ctx); err != nil {
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
		for key := range w.victims(p, device) {
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

// replace evicts what must give way to newcomers, admits them, and compacts what is left free.
func (w *Writer) replace(ctx context.Context, p *plan) error {
	need, retired := make([]int64, len(w.set.Devices)), make([]int64, len(w.set.Devices))
	for _, want := range p.newcomers {
		table, row := hashmap.SplitKey(want.key)
		n, err := w.set.Tables[table].Tier.SlotBytes(row)
		if err == nil {
			for i := range place.SlabsOf(want.slabs &^ w.mu.index.places(want.key).Slabs()) {
				need[i] += int64(n)
			}
		}
	}
	if err := w.dropSlots(p.fewer, retired); err != nil {
		return err
	}
	for i, of := range w.store.Slabs {
		w.mu.Lock()
		free, limit := of.Limit-of.Used()+retired[i], of.Limit
		w.mu.Unlock()
		churn := int64(w.o.MaxChurn * float64(limit))
		if err := w.evict(w.victims(p, i), i, min(need[i]-free, churn), retired); err != nil {
			return err
		}
	}
	if err := w.flush(ctx); err != nil {
		return err
	}
	written, err := w.admitRows(ctx, p.newcomers, nil)
	if err != nil {
		return err
	}
	return w.compact(ctx, w.o.MaxBytes-written)
}
