package cache

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/kernels"
)

// learner feeds the admission policy, one call at a time, and contains its panics: after one it is left alone, and the cache
// serves on with what it holds.
type learner struct {
	cache  *Cache
	policy admission.Policy
	// slotBytes is what a row takes in a slab.
	slotBytes func(key uint64) int
	estimator estimator
	samples   atomic.Int64
	observed  atomic.Int64 // accesses that the policy was told of
	lost      atomic.Int64 // overwritten in the ring before they were read

	panicked atomic.Pointer[error]

	mu struct {
		sync.Mutex
		closed bool
		rows   [][]int64 // sampled accesses of each table, on their way to the policy
		keys   [][]int64 // accesses to sampled keys, on their way to the caller
		taken  []Sample  // samples of one device, on their way to Options.Capture
	}
}

const (
	// ringRecords bounds what one drain takes: with drainInterval, some 3 M accesses a second, which the policies keep up
	// with on part of a processor. What comes faster is overwritten, and counted.
	ringRecords   = 1 << 16
	drainInterval = 20 * time.Millisecond
	// learnBatch is how many rows the policy observes at a time.
	learnBatch = 4096
)

// call runs f on the policy.
func (l *learner) call(f func(admission.Policy)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.callLocked(f)
}

// callLocked is call. REQUIRES: l.mu is locked.
func (l *learner) callLocked(f func(admission.Policy)) (err error) {
	if err := l.failure(); err != nil || l.mu.closed {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			failure := fmt.Errorf("%w: %s: panic: %v", ErrPolicy, l.name(), p)
			l.panicked.Store(&failure)
			err = failure
		}
	}()
	f(l.policy)
	return nil
}

// name returns the policy's name, which a policy that panics may not even have.
func (l *learner) name() (name string) {
	defer func() {
		if recover() != nil {
			name = "policy"
		}
	}()
	return l.policy.Name()
}

// failure returns the policy's panic.
func (l *learner) failure() error {
	if p := l.panicked.Load(); p != nil {
		return *p
	}
	return nil
}

func (l *learner) close() {
	l.call(func(p admission.Policy) { p.Close() })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.closed = true
}

// openRings makes the rings that batches append their samples to.
func (c *Cache) openRings() (err error) {
	o := &c.opts.Refresh
	if o.Accesses == 0 && o.Keys == 0 {
		return nil
	}
	if err := c.learner.estimator.open(&c.opts); err != nil {
		return err
	}
	for _, d := range c.devices {
		if d.ring, err = kernels.NewSampleRing(d.device, ringRecords); err != nil {
			return err
		}
	}
	return nil
}

// sampling says which accesses of the next batch to keep.
func (d *deviceState) sampling() kernels.Sampling {
	if d.ring == nil {
		return kernels.Sampling{}
	}
	o := &d.cache.opts
	return d.ring.Sampling(o.Seed, d.sampled.Add(1)<<3|uint32(d.index), o.Refresh.Accesses, o.Refresh.Keys)
}

// drain hands the samples since the last time to the policy and the caller.
func (l *learner) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drainLocked()
}

// drainIfIdle is drain, unless the policy or the caller is being called, who may be the one that asks.
func (l *learner) drainIfIdle() {
	if l.mu.TryLock() {
		defer l.mu.Unlock()
		l.drainLocked()
	}
}

// drainLocked is drain. REQUIRES: l.mu is locked.
func (l *learner) drainLocked() {
	c := l.cache
	if l.mu.rows == nil {
		l.mu.rows, l.mu.keys = make([][]int64, len(c.tables)), make([][]int64, len(c.tables))
	}
	lookups, read, overwritten := c.lookups(), int64(0), int64(0)
	for _, d := range c.devices {
		if d.ring == nil {
			continue
		}
		samples := int64(0)
		lost := d.ring.Drain(func(key uint64, kept uint32) {
			table, row := hashmap.SplitKey(key)
			if table >= len(c.tables) || row >= c.tables[table].tier.Capacity() {
				return // a record of two halves, by a chance of 2^-30
			}
			samples++
			if c.opts.Capture != nil {
				l.mu.taken = append(l.mu.taken, Sample{
					Table: table, Row: row, Missed: !c.changes.mu.index.Find(key).Valid(), // may be read beside its writer
					ByAccess: kept&abi.SampledAccess != 0, ByKey: kept&abi.SampledKey != 0,
				})
			}
			if kept&abi.SampledAccess != 0 {
				if l.mu.rows[table] = append(l.mu.rows[table], row); len(l.mu.rows[table]) >= learnBatch {
					l.observeLocked(table)
				}
			}
			if kept&abi.SampledKey != 0 {
				l.estimator.access(key, l.slotBytes(key))
				if c.opts.Refresh.OnKeys != nil {
					l.mu.keys[table] = append(l.mu.keys[table], row)
				}
			}
		})
		l.samples.Add(samples)
		l.lost.Add(int64(lost))
		read, overwritten = read+samples, overwritten+int64(lost)
		if c.opts.Capture != nil && (len(l.mu.taken) > 0 || lost > 0) {
			c.opts.Capture(l.mu.taken, int64(lost))
			l.mu.taken = l.mu.taken[:0]
		}
	}
	l.estimator.drained(lookups, read, overwritten)
	for table := range c.tables {
		l.observeLocked(table)
		if len(l.mu.keys[table]) > 0 {
			c.opts.Refresh.OnKeys(table, l.mu.keys[table])
			l.mu.keys[table] = l.mu.keys[table][:0]
		}
	}
}

// observeLocked hands a table's rows to the policy. REQUIRES: l.mu is locked.
func (l *learner) observeLocked(table int) {
	if rows := l.mu.rows[table]; len(rows) > 0 {
		l.callLocked(func(p admission.Policy) { p.Observe(table, rows) })
		l.observed.Add(int64(len(rows)))
		l.mu.rows[table] = rows[:0]
	}
}
