package learn

import (
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/kernels"
)

// Learner feeds the admission policy, one call at a time, and contains its panics. After a panic it leaves the policy alone, and the
// cache serves on with what it holds. Reading the rings waits for no policy: what is read meanwhile is pending. It is safe for concurrent use.
type Learner struct {
	Samples  atomic.Int64 // read from the rings, those that were dropped left out
	Lost     atomic.Int64 // overwritten in the rings before they were read, or dropped because too many were pending
	Observed atomic.Int64 // accesses that the policy was told of, those that samples stand for counted too

	o        Options
	problem  admission.Problem // of Start
	weighs   atomic.Bool       // the policy is an admission.Weigher
	estimate estimator
	panicked atomic.Pointer[error]
	sizer    atomic.Pointer[admission.Sizer] // the policy, if it is one

	// reading is locked while rings are read, and while callbacks hear of what was read. Do not lock reading while holding mu.
	reading struct {
		sync.Mutex
		keys [][]int64 // of each table: accesses to sampled keys, on their way to OnKeys
	}
	pending pending
	// mu is locked while the policy is called.
	mu struct {
		sync.Mutex
		closed bool
		next   []sampled // of each table: pending accesses that the policy is about to observe; empty, kept for its memory
	}
}

// Options are what a Learner works with.
type Options struct {
	Policy admission.Policy
	Set    *read.Set
	// SlotBytes returns what a row takes in a slab. It must be set before samples are drained.
	SlotBytes func(key uint64) int
	// HitWeight is how many times as often misses are sampled as hits. A hit's sample counts as many times. 1 or more. A policy that is
	// not an admission.Weigher observes the share of the misses that hits are sampled at.
	HitWeight float64
	// OnKeys, if not nil, hears of the accesses to sampled keys. rows are used until it returns.
	OnKeys func(table int, rows []int64)
	// Capture, if not nil, hears of every sample.
	Capture Capture
}

// Capture hears of samples, from one goroutine at a time.
type Capture interface {
	// Sample is one access, kept for a share of all accesses, of all keys, or both.
	Sample(key uint64, byAccess, byKey bool)
	// Drained follows the samples of one device. lost are those overwritten among them.
	Drained(lost int64)
}

// ErrPolicy is wrapped by errors of a policy that has panicked.
var ErrPolicy = errors.New("cache: admission policy failed")

// New returns a learner.
func New(o Options) *Learner {
	l := &Learner{o: o}
	l.setPolicy()
	return l
}

// setPolicy notes whether the policy is an admission.Weigher, and whether it is an admission.Sizer.
func (l *Learner) setPolicy() {
	_, ok := l.o.Policy.(admission.Weigher)
	l.weighs.Store(ok)
	l.sizer.Store(nil)
	if sizer, ok := l.o.Policy.(admission.Sizer); ok {
		l.sizer.Store(&sizer)
	}
}

// PolicyBytes returns the host memory that the policy takes, 0 if it does not say.
func (l *Learner) PolicyBytes() int64 {
	if sizer := l.sizer.Load(); sizer != nil {
		return (*sizer).MemoryBytes()
	}
	return 0
}

const (
	// DrainInterval is how often the rings are read, and the policy is told.
	DrainInterval = 20 * time.Millisecond
	// A device's sample ring has leastRecords, or twice as many if the tables have more rows than that, or a record for ringShare rows, up to
	// mostRecords. Large tables are looked up in large batches, and nearly every row is sampled while the cache has not learnt: a ring must
	// hold several such batches.
	leastRecords, mostRecords, ringShare = 1 << 16, 1 << 20, 32
	// ObserveRows is how many rows the policy observes at a time. If there are more than backlogRows, it observes about backlogParts at a time,
	// which policies may divide among processors.
	ObserveRows               = 4096
	backlogRows, backlogParts = 1 << 17, 1 << 16
)

// RingRecords returns the size of a device's sample ring.
func RingRecords(set *read.Set) int {
	rows := int64(0)
	for _, t := range set.Tables {
		rows += t.Tier.Capacity()
	}
	return ringRecords(rows)
}

// ringRecords is RingRecords for tables with this number of rows.
func ringRecords(rows int64) int {
	if rows <= leastRecords {
		return leastRecords
	}
	records := 2 * leastRecords
	for records < mostRecords && int64(records) < rows/ringShare {
		records *= 2
	}
	return records
}

// Call runs f on the policy.
func (l *Learner) Call(f func(admission.Policy)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.callLocked(f)
}

// callLocked is Call. REQUIRES: l.mu is locked.
func (l *Learner) callLocked(f func(admission.Policy)) (err error) {
	if err := l.Failure(); err != nil || l.mu.closed {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			failure := fmt.Errorf("%w: %s: panic: %v", ErrPolicy, l.name(), p)
			l.panicked.Store(&failure)
			err = failure
		}
	}()
	f(l.o.Policy)
	return nil
}

// Start starts the policy. It is called once, before all other calls but Failure and Close.
func (l *Learner) Start(p admission.Problem) error {
	l.problem = p
	var err error
	return errors.Join(l.Call(func(policy admission.Policy) { err = policy.Start(p) }), err)
}

// SetPolicy replaces the policy by one that is new: it starts it for a capacity in bytes, tells it of one access to each of the keys, and closes the old
// one, even if that has panicked. If the new policy does not start, the old one stays.
func (l *Learner) SetPolicy(p admission.Policy, capacity int64, keys iter.Seq[uint64]) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return nil
	}
	fresh := &Learner{o: Options{Policy: p}}
	problem := l.problem
	problem.Capacity = capacity
	if err := fresh.Start(problem); err != nil {
		fresh.Close()
		return err
	}
	rows := make([][]int64, len(problem.Rows))
	observe := func(table int) {
		fresh.Call(func(p admission.Policy) { p.Observe(table, rows[table]) })
		rows[table] = rows[table][:0]
	}
	for key := range keys {
		table, row := hashmap.SplitKey(key)
		if rows[table] = append(rows[table], row); len(rows[table]) == ObserveRows {
			observe(table)
		}
	}
	for table := range rows {
		observe(table)
	}
	if err := fresh.Failure(); err != nil {
		fresh.Close()
		return err
	}
	l.mu.next = l.pending.swap(l.mu.next) // what the old policy was to hear of
	l.callLocked(func(p admission.Policy) { p.Close() })
	l.o.Policy = p
	l.setPolicy()
	l.panicked.Store(nil)
	return nil
}

// name returns the policy's name, which a policy that panics may not even have.
func (l *Learner) name() (name string) {
	defer func() {
		if recover() != nil {
			name = "policy"
		}
	}()
	return l.o.Policy.Name()
}

// Failure returns the policy's panic.
func (l *Learner) Failure() error {
	if p := l.panicked.Load(); p != nil {
		return *p
	}
	return nil
}

// Close closes the policy. Later calls do not reach it.
func (l *Learner) Close() {
	l.Call(func(p admission.Policy) { p.Close() })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.closed = true
}

// Drain hands new samples to Options.OnKeys and Options.Capture, and to the policy.
func (l *Learner) Drain() {
	l.Read()
	l.Observe()
}

// DrainIfIdle is Drain, but leaves the policy out while it is busy. Callbacks and the policy may call it: if there are callbacks, it reads nothing
// while another goroutine reads.
func (l *Learner) DrainIfIdle() {
	if !l.readIfIdle() {
		return
	}
	if l.mu.TryLock() {
		defer l.mu.Unlock()
		l.observeLocked()
	}
}

// readIfIdle is Read for DrainIfIdle. It returns false if it has read nothing.
func (l *Learner) readIfIdle() bool {
	if l.o.OnKeys == nil && l.o.Capture == nil {
		l.reading.Lock()
	} else if !l.reading.TryLock() {
		return false
	}
	defer l.reading.Unlock()
	l.readLocked()
	return true
}

// Read empties the rings. It hands samples to Options.OnKeys and Options.Capture, and keeps them for the policy.
func (l *Learner) Read() {
	l.reading.Lock()
	defer l.reading.Unlock()
	l.readLocked()
}

// readLocked is Read. REQUIRES: l.reading is locked.
func (l *Learner) readLocked() {
	if l.reading.keys == nil {
		l.reading.keys = make([][]int64, len(l.o.Set.Tables))
	}
	lookups, read, overwritten := l.lookups(), int64(0), int64(0)
	for _, d := range l.o.Set.Devices {
		if d.Ring == nil {
			continue
		}
		samples, dropped, lost := l.readRingLocked(d.Ring)
		l.Samples.Add(samples - dropped)
		l.Lost.Add(lost + dropped)
		read, overwritten = read+samples, overwritten+lost
		if l.o.Capture != nil && (samples > 0 || lost > 0) {
			l.o.Capture.Drained(lost)
		}
	}
	l.estimate.drained(lookups, read, overwritten)
	for table, keys := range l.reading.keys {
		if len(keys) > 0 {
			l.o.OnKeys(table, keys)
			l.reading.keys[table] = keys[:0]
		}
	}
}

// readRingLocked empties a ring. It returns how many samples it has read, how many of these it has dropped, and how many the ring has lost.
func (l *Learner) readRingLocked(ring *kernels.SampleRing) (samples, dropped, lost int64) {
	tables, weighs := l.o.Set.Tables, l.o.HitWeight > 1 && l.weighs.Load()
	into := l.pending.begin(len(tables), RingRecords(l.o.Set))
	defer l.pending.end() // also if Capture panics
	overwritten := ring.Drain(func(key uint64, kept uint32) {
		table, row := hashmap.SplitKey(key)
		if table >= len(tables) || row >= tables[table].Tier.Capacity() {
			return // a record of two halves, by a chance of 2^-30
		}
		samples++
		if l.o.Capture != nil && kept&(abi.SampledAccess|abi.SampledKey) != 0 { // misses beyond the share of all accesses are not for it
			l.o.Capture.Sample(key, kept&abi.SampledAccess != 0, kept&abi.SampledKey != 0)
		}
		counts := kept&(abi.SampledAccess|abi.SampledMiss) != 0
		if l.o.HitWeight > 1 && !weighs { // misses that were sampled beside the share of all accesses are not for the policy
			counts = kept&abi.SampledAccess != 0
		}
		if counts && !into.add(table, row, weighs && kept&abi.SampledMiss == 0) {
			dropped++
		}
		if kept&abi.SampledKey != 0 {
			l.estimate.access(key, l.o.SlotBytes(key))
			if l.o.OnKeys != nil {
				l.reading.keys[table] = append(l.reading.keys[table], row)
			}
		}
	})
	return samples, dropped, int64(overwritten)
}

// Observe hands pending samples to the policy.
func (l *Learner) Observe() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.observeLocked()
}

// observeLocked is Observe. REQUIRES: l.mu is locked.
func (l *Learner) observeLocked() {
	l.mu.next = l.pending.swap(l.mu.next)
	for table := range l.mu.next {
		of := &l.mu.next[table]
		n := len(of.rows) + len(of.hits)
		parts := (n + ObserveRows - 1) / ObserveRows
		if n > backlogRows {
			parts = n / backlogParts
		}
		for i := range parts { // hits and the others in turns, about as they came
			if rows := partOf(of.rows, i, parts); len(rows) > 0 {
				l.callLocked(func(p admission.Policy) { p.Observe(table, rows) })
				l.Observed.Add(int64(len(rows)))
			}
			if hits := partOf(of.hits, i, parts); len(hits) > 0 {
				weight := l.o.HitWeight
				l.callLocked(func(p admission.Policy) {
					if w, ok := p.(admission.Weigher); ok {
						w.ObserveWeighted(table, hits, weight)
					} else { // SetPolicy has replaced the one that they were read for
						weight = 1
						p.Observe(table, hits)
					}
				})
				l.Observed.Add(int64(weight * float64(len(hits))))
			}
		}
	}
}

// partOf returns part i of rows, which are divided into about equal parts.
func partOf(rows []int64, i, parts int) []int64 {
	return rows[i*len(rows)/parts : (i+1)*len(rows)/parts]
}

// TryExplain asks the policy about rows of a table, unless it is busy: batches do not wait for it. It returns whether the policy
// has said something.
func (l *Learner) TryExplain(table int, rows []int64, estimates []admission.Estimate) (known bool) {
	if !l.mu.TryLock() {
		return false
	}
	defer l.mu.Unlock()
	err := l.callLocked(func(p admission.Policy) {
		e, ok := p.(admission.Explainer)
		if !ok {
			return
		}
		for i, row := range rows {
			estimates[i] = e.Explain(hashmap.Key(table, row))
		}
		known = true
	})
	return known && err == nil
}

// lookups returns how many rows were looked up in all tables.
func (l *Learner) lookups() (n int64) {
	for _, t := range l.o.Set.Tables {
		c := t.Counts.Totals()
		n += c.Hits + c.Misses
	}
	return n
}

// EstimateFrom begins to make Estimates from a share of all keys, 0 to 1.
func (l *Learner) EstimateFrom(keys float64, seed uint64) error { return l.estimate.open(keys, seed) }

// Estimate returns the hit rate at other budgets, nil if no keys were sampled. budget is all devices' in bytes, slots the part for
// slots, and fixed the part that does not depend on the budget.
func (l *Learner) Estimate(budget, fixed, slots int64) *Estimate {
	return l.estimate.at(budget, fixed, slots)
}

// SetSlotBytes sets Options.SlotBytes. No other call may be under way.
func (l *Learner) SetSlotBytes(f func(key uint64) int) { l.o.SlotBytes = f }
