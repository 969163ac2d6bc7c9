package cache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// RefreshOptions say how a cache follows its workload. The zero value of a field is its default; of all, a cache whose rows
// change only by Refresh.
type RefreshOptions struct {
	// Interval is the time from the end of one cycle to the begin of the next. Default 0: none in the background.
	Interval time.Duration
	// MaxChurn is the share of a slab, 0 to 1, that one cycle takes from cached rows for others. Default 0.25.
	MaxChurn float64
	// MaxBytes is how many bytes one cycle writes to slabs, all devices together. Default 256 MiB.
	MaxBytes int64
	// Accesses is the share of all accesses, 0 to 1, that the policy observes. Default 1/16 where Interval is positive, else
	// 0.
	Accesses float64
	// Keys is the share of all keys, 0 to 1, whose every access is sampled: Stats.Estimate is made from them, and OnKeys hears of
	// them. 1/64 is plenty for millions of keys. Default 0.
	Keys float64
	// OnKeys is called by one goroutine at a time, not under any lock that Gather takes; rows are row numbers in about the
	// order of access, used until it returns. It must not call the cache's Refresh, SetBudget or Close. Default: none.
	OnKeys func(table int, rows []int64)
}

func (o *RefreshOptions) ensureDefaults() {
	if o.MaxChurn == 0 {
		// cachebench run --drift 200 --batches 800 reaches 0.896 of the best hit rate with 0.1, 0.918 with this, and 0.922
		// with 1.
		o.MaxChurn = 0.25
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 256 << 20
	}
	if o.Accesses == 0 && o.Interval > 0 {
		o.Accesses = 1. / 16
	}
}

func (o *RefreshOptions) validate(fault func(string, ...any)) {
	if o.Interval < 0 {
		fault("cache: Refresh.Interval (%v) must not be negative", o.Interval)
	}
	for _, share := range []struct {
		name  string
		value float64
	}{{"MaxChurn", o.MaxChurn}, {"Accesses", o.Accesses}, {"Keys", o.Keys}} {
		if !(share.value >= 0 && share.value <= 1) {
			fault("cache: Refresh.%s (%v) must be 0 to 1", share.name, share.value)
		}
	}
	if o.MaxBytes < 0 {
		fault("cache: Refresh.MaxBytes (%d B) must not be negative", o.MaxBytes)
	}
}

// refresher changes what is admitted, one cycle at a time.
type refresher struct {
	cycle sync.Mutex
	by    *cause   // the cycle under way; guarded by cycle
	last  struct { // of the last cycle
		sync.Mutex
		err error
	}
}

// changeCounts are the counters of what was changed.
type changeCounts struct {
	cycles, admitted, evicted, moved, refused, copied atomic.Int64 // rows
	bytes                                             atomic.Int64 // written to slabs by cycles
	updated, invalidated, waits                       atomic.Int64
	hostBytes                                         atomic.Int64 // written to the host tier
}

// startRefresh begins the background cycles.
func (c *Cache) startRefresh() {
	ch := &c.changes
	every := func(task string, interval time.Duration, f func()) {
		ch.tasks.Go(func() {
			pprof.SetGoroutineLabels(c.labels(ch.life, task))
			timer := time.NewTimer(interval)
			defer timer.Stop()
			for {
				select {
				case <-ch.life.Done():
					return
				case <-timer.C:
				}
				f()
				timer.Reset(interval)
			}
		})
	}
	if c.devices[0].ring != nil {
		every("learn", drainInterval, c.learner.drain)
	}
	if interval := c.opts.Refresh.Interval; interval > 0 {
		every("refresh", interval, func() { c.runCycle(ch.life, nil) })
	}
}

// Refresh runs one cycle: it hands the samples so far to the policy, asks it for its ranking, takes the slots of the rows
// worth least, and admits those worth more in their place, within MaxChurn and MaxBytes. It returns when they are being
// served. Gathers do not wait for it. Cycles run one at a time.
//
// Where slots of different sizes leave the free space in pieces, it moves rows: after a cycle that did not run out of
// MaxBytes, free pieces too short for the longest row take at most a sixteenth of each slab, and a window (Stats.HoleBytes).
//
// An error wraps ErrPolicy when the policy panicked, now or before: what is cached then stays as it is.
func (c *Cache) Refresh(ctx context.Context) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	return c.runCycle(ctx, nil)
}

// SetBudget makes the bytes per device that slots, hashmap, row bits and tail slack may take less than Options.Budget, or
// more again, up to that. It returns once rows have given way; more room is filled by later cycles. The memory stays the
// cache's. An error wraps ErrBudget when the budget does not hold a single row, and nothing has changed then; one wraps
// ErrPolicy when the policy has panicked, and rows have given way all the same.
func (c *Cache) SetBudget(ctx context.Context, bytes int64) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	return c.runCycle(ctx, &bytes)
}

// runCycle runs a cycle, with another budget if it is given.
func (c *Cache) runCycle(ctx context.Context, budget *int64) (err error) {
	r := &c.refresher
	r.cycle.Lock()
	defer r.cycle.Unlock()
	ctx, watch := c.watchCycle(ctx, budget)
	defer func() { watch.end(err) }()
	defer func() {
		r.last.Lock()
		defer r.last.Unlock()
		r.last.err = err
	}()
	if err := ctx.Err(); err != nil {
		return err
	}
	if budget != nil {
		if err := c.limit(*budget); err != nil {
			return err
		}
	}
	c.learner.drain()
	p, err := c.rank()
	if budget != nil { // rows give way, whatever the policy does
		if shrink := c.shrink(ctx, p); shrink != nil || err != nil {
			return errors.Join(shrink, err)
		}
	}
	if err != nil {
		return err
	}
	if err := c.replace(ctx, p); err != nil {
		return err
	}
	c.changes.counts.cycles.Add(1)
	return nil
}

// limit sets how many bytes slots may take.
func (c *Cache) limit(budget int64) error {
	if budget > c.opts.Budget {
		return fmt.Errorf("cache: budget (%d B) must be at most Options.Budget (%d B)", budget, c.opts.Budget)
	}
	s := c.space
	payload := (max(0, budget) - s.fixed - s.layout.Bytes()) &^ (slab.Align - 1)
	if payload < s.smallest {
		return fmt.Errorf("%w: %d B must hold at least one slot (%d B) and metadata (%d B)", ErrBudget, budget, s.smallest, s.fixed+s.layout.Bytes())
	}
	c.changes.mu.Lock()
	for _, d := range c.devices {
		if !d.isLost() {
			d.limit = min(payload, d.slots.Capacity())
		}
	}
	total := c.capacityLocked()
	c.changes.mu.Unlock()
	c.budget.Store(budget)
	// A policy that panics is reported by the cycle that follows.
	c.learner.call(func(p admission.Policy) { p.Resize(total) })
	return nil
}

// used returns the bytes of the slots that rows take. REQUIRES: c.changes.mu is locked.
func (d *deviceState) used() int64 { return d.slots.Used() - d.aside }

// alloc returns a slot within the device's limit. REQUIRES: c.changes.mu is locked.
func (d *deviceState) alloc(bytes int) (offset int64, ok bool) {
	if d.used()+int64(bytes) > d.limit {
		return 0, false
	}
	return d.slots.Alloc(bytes)
}

// plan is what a cycle means to do.
type plan struct {
	// newcomers are the rows to admit, and the cached ones to copy, best first; fewer are cached rows that are to lie in fewer
	// slabs. surplus are the cached rows that the policy ranks too low to stay, best first. Cached rows that it does not rank at
	// all are worth less than those.
	newcomers, fewer []wanted
	surplus          []uint64
	ranked           []bitset
}

// wanted are the slabs, as bits, that a row is to lie in.
type wanted struct {
	key   uint64
	slabs uint8
}

// rank walks the policy's ranking.
func (c *Cache) rank() (*plan, error) {
	p := &plan{}
	sp := c.spread.Load()
	limit, used := make([]int64, len(c.devices)), make([]int64, len(c.devices))
	ch := &c.changes
	ch.mu.Lock()
	for i, d := range c.devices {
		limit[i] = d.limit
	}
	ch.mu.Unlock()
	for _, t := range c.tables {
		p.ranked = append(p.ranked, newBitset(t.tier.Capacity()))
	}
	var rejected []uint64
	bytes, ranked := int64(0), int64(0) // to be written, and of all rows so far
	err := c.learner.call(func(policy admission.Policy) {
		if len(c.devices) > 1 && decideAt(ch.counts.cycles.Load()+1) {
			c.decide(policy, limit)
		}
		hot := c.placing.hot.Load()
		for key := range policy.Rank() {
			table, row := hashmap.SplitKey(key)
			if table >= len(c.tables) || row >= c.tables[table].tier.Rows() || p.ranked[table].has(row) {
				continue
			}
			t := c.tables[table]
			p.ranked[table].add(row)
			now := ch.placesOf(key) // may be read beside its writer
			cached := now.valid() && !c.overlay.has(now.first)
			if !cached {
				now = nowhere()
			}
			targets := sp.targets(key, ranked < hot, now)
			fits := func(n int) (slabs uint8) {
				for i := range slabsOf(targets) {
					if used[i]+int64(n) <= limit[i] {
						slabs |= 1 << i
					}
				}
				return slabs
			}
			n := int(c.space.smallest)
			if cached {
				n = c.slotBytes(key, now.first)
			} else if fits(n) != 0 { // else its length does not matter, and is in memory gone cold
				var err error
				if n, err = t.tier.SlotBytes(row); err != nil {
					continue // a corrupt row is for Gather to report
				}
			}
			if ranked += int64(n); ranked > hot { // it may be the last one to be copied, or not
				targets = sp.targets(key, false, now)
			}
			into := fits(n)
			for i := range slabsOf(into) {
				used[i] += int64(n)
			}
			have := now.slabs()
			if into != 0 && into&^have != 0 {
				if bytes += int64(n * bits.OnesCount8(into&^have)); bytes <= c.opts.Refresh.MaxBytes {
					p.newcomers = append(p.newcomers, wanted{key, into})
				}
			}
			switch {
			case into != 0 && have&^into != 0:
				p.fewer = append(p.fewer, wanted{key, into})
			case into == 0 && cached:
				p.surplus = append(p.surplus, key)
			case into == 0 && !t.rejected.hasShared(row):
				rejected = append(rejected, key)
			}
		}
	})
	for {
		part := rejected[:min(len(rejected), changedRows)]
		rejected = rejected[len(part):]
		ch.mu.Lock()
		for _, key := range part {
			ch.rejectLocked(key)
		}
		failed := ch.publishLocked()
		ch.mu.Unlock()
		if failed != nil || len(rejected) == 0 {
			return p, errors.Join(err, failed)
		}
	}
}

// lies says whether a row has a slot in a device's slab.
func (c *Cache) lies(key uint64, device int) bool {
	p := c.changes.placesOf(key)
	return p.valid() && !c.overlay.has(p.first) && p.slabs()>>device&1 != 0
}

// losers yields cached rows of one device, those worth least first.
func (c *Cache) losers(p *plan, device int) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for key := range c.changes.mu.index.All() {
			table, row := hashmap.SplitKey(key)
			if !p.ranked[table].has(row) && c.lies(key, device) && !yield(key) {
				return
			}
		}
		for i := len(p.surplus) - 1; i >= 0; i-- {
			if c.lies(p.surplus[i], device) && !yield(p.surplus[i]) {
				return
			}
		}
	}
}

// evict withdraws rows of a device until so many bytes of its slots are retired. It adds what is retired of each slab to retired.
func (c *Cache) evict(losers iter.Seq[uint64], device int, bytes int64, retired []int64) error {
	if bytes <= 0 {
		return nil
	}
	ch := &c.changes
	// Choosing does not need the lock, and takes long where most rows stay.
	var keys []uint64
	evicted := int64(0)
	for key := range losers {
		p := ch.placesOf(key)
		if !p.valid() || c.overlay.has(p.first) || p.slabs()>>device&1 == 0 {
			continue
		}
		keys = append(keys, key)
		for l := range p.all() {
			retired[l.Slab()] += int64(c.slotBytes(key, l))
		}
		if evicted += int64(c.slotBytes(key, p.first)); evicted >= bytes {
			break
		}
	}
	for len(keys) > 0 {
		part := keys[:min(len(keys), changedRows)]
		keys = keys[len(part):]
		ch.mu.Lock()
		ch.behalfLocked(c.refresher.by)
		for _, key := range part {
			if p := ch.placesOf(key); p.valid() && ch.mu.fresh[key] == nil {
				ch.evictLocked(key, p, slab.Evicted)
				ch.counts.evicted.Add(1)
			}
		}
		ch.behalfLocked(nil)
		err := ch.publishLocked()
		ch.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// thin withdraws the slots of rows that are to lie in fewer slabs, and adds what is retired of each slab to retired.
func (c *Cache) thin(rows []wanted, retired []int64) error {
	ch := &c.changes
	for len(rows) > 0 {
		part := rows[:min(len(rows), changedRows)]
		rows = rows[len(part):]
		ch.mu.Lock()
		for _, w := range part {
			p := ch.placesOf(w.key)
			if !p.valid() || ch.mu.fresh[w.key] != nil {
				continue
			}
			left, gone := p.within(w.slabs)
			if !left.valid() || !gone.valid() { // it is to be elsewhere first, or has changed
				continue
			}
			ch.insertLocked(w.key, left)
			ch.retireLocked(w.key, gone)
			for l := range gone.all() {
				retired[l.Slab()] += int64(c.slotBytes(w.key, l))
			}
		}
		err := ch.publishLocked()
		ch.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// changedRows is how many rows are changed under the writers' lock at a time, so that Update waits for less than a
// millisecond.
const changedRows = 4096

// shrink evicts rows until the slots of every device are within its limit.
func (c *Cache) shrink(ctx context.Context, p *plan) error {
	ch := &c.changes
	for i, d := range c.devices {
		for {
			ch.mu.Lock()
			over, err := d.used()-d.limit, ch.mu.err
			ch.mu.Unlock()
			if over <= 0 || d.isLost() {
				break
			}
			if err := errors.Join(err, ctx.Err()); err != nil { // else it might wait for what never comes
				return err
			}
			before := over
			if err := c.evict(c.losersAndAll(p, i), i, over, make([]int64, len(c.devices))); err != nil {
				return err
			}
			if err := ch.flush(ctx); err != nil {
				return err
			}
			ch.mu.Lock()
			over = d.used() - d.limit
			ch.mu.Unlock()
			if over == before { // what is left is on its way to or from the overlay
				if err := c.waitEpoch(ctx); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// losersAndAll yields the losers, then whatever there is.
func (c *Cache) losersAndAll(p *plan, device int) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for key := range c.losers(p, device) {
			if !yield(key) {
				return
			}
		}
		for key := range c.changes.mu.index.All() {
			table, row := hashmap.SplitKey(key)
			if p.ranked[table].has(row) && !yield(key) {
				return
			}
		}
	}
}

// replace evicts what must give way to newcomers, admits them, and compacts what is left free.
func (c *Cache) replace(ctx context.Context, p *plan) error {
	ch := &c.changes
	need, retired := make([]int64, len(c.devices)), make([]int64, len(c.devices))
	for _, w := range p.newcomers {
		table, row := hashmap.SplitKey(w.key)
		n, err := c.tables[table].tier.SlotBytes(row)
		if err == nil {
			for i := range slabsOf(w.slabs &^ ch.placesOf(w.key).slabs()) {
				need[i] += int64(n)
			}
		}
	}
	if err := c.thin(p.fewer, retired); err != nil {
		return err
	}
	for i, d := range c.devices {
		ch.mu.Lock()
		free, limit := d.limit-d.used()+retired[i], d.limit
		ch.mu.Unlock()
		churn := int64(c.opts.Refresh.MaxChurn * float64(limit))
		if err := c.evict(c.losers(p, i), i, min(need[i]-free, churn), retired); err != nil {
			return err
		}
	}
	if err := ch.flush(ctx); err != nil {
		return err
	}
	written, err := c.admitRows(ctx, p.newcomers, nil)
	if err != nil {
		return err
	}
	return c.compact(ctx, c.opts.Refresh.MaxBytes-written)
}
