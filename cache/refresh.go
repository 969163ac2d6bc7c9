package cache

import (
	"context"
	"errors"
	"fmt"
	"iter"
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
	cycles, admitted, evicted, moved, refused atomic.Int64 // rows
	bytes                                     atomic.Int64 // written to slabs by cycles
	updated, invalidated, waits               atomic.Int64
	hostBytes                                 atomic.Int64 // written to the host tier
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
	total := int64(0)
	c.changes.mu.Lock()
	for _, d := range c.devices {
		d.limit = min(payload, d.slots.Capacity())
		total += d.limit
	}
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
	// newcomers are the rows to admit, best first, and surplus the cached rows that the policy ranks too low to stay, best
	// first. Cached rows that it does not rank at all are worth less than those.
	newcomers, surplus []uint64
	ranked             []bitset
}

// rank walks the policy's ranking.
func (c *Cache) rank() (*plan, error) {
	p := &plan{}
	devices := len(c.devices)
	limit, used := make([]int64, devices), make([]int64, devices)
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
	bytes := int64(0)
	err := c.learner.call(func(policy admission.Policy) {
		for key := range policy.Rank() {
			table, row := hashmap.SplitKey(key)
			if table >= len(c.tables) || row >= c.tables[table].tier.Rows() || p.ranked[table].has(row) {
				continue
			}
			t := c.tables[table]
			p.ranked[table].add(row)
			l := ch.mu.index.Find(key) // may be read beside its writer
			cached := l.Valid() && !c.overlay.has(l)
			owner := hashmap.Owner(key, devices)
			n := int(c.space.smallest)
			if cached {
				n = slab.SlotBytes(l.Stored(t.tier.RowBytes()))
			} else if used[owner]+int64(n) <= limit[owner] { // else its length does not matter, and is in memory gone cold
				var err error
				if n, err = t.tier.SlotBytes(row); err != nil {
					continue // a corrupt row is for Gather to report
				}
			}
			switch fits := used[owner]+int64(n) <= limit[owner]; {
			case fits && cached:
				used[owner] += int64(n)
			case fits:
				used[owner] += int64(n)
				if bytes += int64(n); bytes <= c.opts.Refresh.MaxBytes {
					p.newcomers = append(p.newcomers, key)
				}
			case cached:
				p.surplus = append(p.surplus, key)
			case !t.rejected.hasShared(row):
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

// losers yields cached rows of one device, those worth least first.
func (c *Cache) losers(p *plan, device int) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for key, l := range c.changes.mu.index.All() {
			table, row := hashmap.SplitKey(key)
			if !c.overlay.has(l) && l.Slab() == device && !p.ranked[table].has(row) && !yield(key) {
				return
			}
		}
		for i := len(p.surplus) - 1; i >= 0; i-- {
			if hashmap.Owner(p.surplus[i], len(c.devices)) == device && !yield(p.surplus[i]) {
				return
			}
		}
	}
}

// evict withdraws rows of a device until so many bytes of slots are retired, and returns how many are.
func (c *Cache) evict(losers iter.Seq[uint64], device int, bytes int64) (evicted int64, err error) {
	if bytes <= 0 {
		return 0, nil
	}
	ch := &c.changes
	// Choosing does not need the lock, and takes long where most rows stay.
	var keys []uint64
	for key := range losers {
		l := ch.mu.index.Find(key)
		if !l.Valid() || c.overlay.has(l) || l.Slab() != device {
			continue
		}
		table, _ := hashmap.SplitKey(key)
		keys = append(keys, key)
		if evicted += int64(slab.SlotBytes(l.Stored(c.tables[table].tier.RowBytes()))); evicted >= bytes {
			break
		}
	}
	for len(keys) > 0 {
		part := keys[:min(len(keys), changedRows)]
		keys = keys[len(part):]
		ch.mu.Lock()
		ch.mu.by = c.refresher.by
		for _, key := range part {
			if l := ch.mu.index.Find(key); l.Valid() && ch.mu.fresh[key] == nil {
				ch.evictLocked(key, l, slab.Evicted)
				ch.counts.evicted.Add(1)
			}
		}
		ch.mu.by = nil
		err := ch.publishLocked()
		ch.mu.Unlock()
		if err != nil {
			return evicted, err
		}
	}
	return evicted, nil
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
			if over <= 0 {
				break
			}
			if err := errors.Join(err, ctx.Err()); err != nil { // else it might wait for what never comes
				return err
			}
			before := over
			if _, err := c.evict(c.losersAndAll(p, i), i, over); err != nil {
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
	need := make([]int64, len(c.devices))
	for _, key := range p.newcomers {
		table, row := hashmap.SplitKey(key)
		n, err := c.tables[table].tier.SlotBytes(row)
		if err == nil {
			need[hashmap.Owner(key, len(c.devices))] += int64(n)
		}
	}
	for i, d := range c.devices {
		ch.mu.Lock()
		free := d.limit - d.used()
		ch.mu.Unlock()
		churn := int64(c.opts.Refresh.MaxChurn * float64(d.limit))
		if _, err := c.evict(c.losers(p, i), i, min(need[i]-free, churn)); err != nil {
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

// admitted is a row on its way to a slot.
type admitted struct {
	key      uint64
	location slab.Location
	from     slab.Location // where it is cached so far, if it moves, else no location
}

// admitRows writes rows to free slots and publishes them an epoch later: then no kernel can have read the slot before, not
// even the bytes of it that share a sector with a neighbour's. Rows that moving has a location for move from there; others
// must not be cached yet. Rows without a place stay as they are. It returns the bytes written.
func (c *Cache) admitRows(ctx context.Context, keys []uint64, moving map[uint64]slab.Location) (bytes int64, err error) {
	ch := &c.changes
	var all []admitted
	for len(keys) > 0 && err == nil {
		part := keys[:min(len(keys), changedRows)]
		keys = keys[len(part):]
		ch.mu.Lock()
		for _, key := range part {
			from, moves := moving[key]
			if !moves {
				from = slab.NoLocation(slab.Cold)
			}
			var a admitted
			var ok bool
			if a, ok, err = c.writeRowLocked(key, from); err != nil {
				err = ch.failLocked(err)
				break
			}
			if ok {
				all = append(all, a)
				table, _ := hashmap.SplitKey(key)
				bytes += int64(slab.SlotBytes(a.location.Stored(c.tables[table].tier.RowBytes())))
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

// writeRowLocked writes a row to a free slot, if there is one. REQUIRES: c.changes.mu is locked.
func (c *Cache) writeRowLocked(key uint64, from slab.Location) (a admitted, ok bool, err error) {
	ch := &c.changes
	if ch.mu.err != nil {
		return a, false, ch.mu.err
	}
	l := ch.mu.index.Find(key)
	if ch.mu.fresh[key] != nil || l.Valid() != from.Valid() || l.Valid() && l != from {
		return a, false, nil
	}
	table, row := hashmap.SplitKey(key)
	stored, compressed, err := c.tables[table].tier.Stored(row)
	if err != nil {
		return a, false, nil // a corrupt row is for Gather to report
	}
	owner := hashmap.Owner(key, len(c.devices))
	d, bytes := c.devices[owner], slab.SlotBytes(len(stored))
	var offset int64
	if from.Valid() {
		if offset, ok = d.slots.Alloc(bytes); ok {
			d.aside += int64(bytes)
		}
	} else {
		offset, ok = d.alloc(bytes)
	}
	if !ok {
		return a, false, nil
	}
	a = admitted{key, slab.Raw(owner, offset), from}
	if compressed {
		a.location = slab.Compressed(owner, offset, len(stored))
	}
	ch.mu.admitting[key] = struct{}{}
	return a, true, ch.mu.sides[owner].put(offset, stored)
}

// publishRowLocked publishes a row that was written, unless it has changed since. REQUIRES: c.changes.mu is locked.
func (c *Cache) publishRowLocked(a admitted, publish bool) {
	ch := &c.changes
	_, unchanged := ch.mu.admitting[a.key]
	delete(ch.mu.admitting, a.key)
	moves := a.from.Valid()
	if moves {
		unchanged = unchanged && ch.mu.index.Find(a.key) == a.from
	}
	published := publish && unchanged && ch.mu.err == nil
	if published && !ch.insertLocked(a.key, a.location) { // a full map is a rejection
		ch.counts.refused.Add(1)
		published = false
	}
	unused := a.location
	if published {
		unused = a.from
	}
	if unused.Valid() {
		ch.retireLocked(a.key, unused)
		slots := ch.mu.open.slots
		slots[len(slots)-1].aside = moves
	}
	if !published {
		return
	}
	if moves {
		ch.counts.moved.Add(1)
		return
	}
	ch.admittedLocked(a.key)
	ch.counts.admitted.Add(1)
}
