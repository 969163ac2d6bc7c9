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
)

// Learner feeds the admission policy, one call at a time, and contains its panics. After a panic it leaves the policy alone, and the
// cache serves on with what it holds. It is safe for concurrent use.
type Learner struct {
	Samples  atomic.Int64 // read from the rings
	Lost     atomic.Int64 // overwritten in the rings before they were read
	Observed atomic.Int64 // accesses that the policy was told of, those that samples stand for counted too

	o        Options
	problem  admission.Problem // of Start
	estimate estimator
	panicked atomic.Pointer[error]

	mu struct {
		sync.Mutex
		closed bool
		rows   [][]int64 // sampled accesses of each table that count once, on their way to the policy
		hits   [][]int64 // those that count Options.HitWeight times
		keys   [][]int64 // accesses to sampled keys, on their way to OnKeys
	}
}

// Options are what a Learner works with.
type Options struct {
	Policy admission.Policy
	Set    *read.Set
	// SlotBytes returns what a row takes in a slab. It must be set before samples are drained.
	SlotBytes func(key uint64) int
	// HitWeight is how many times as often misses are sampled as hits: so many times as much a hit's sample counts. 1 or more. A policy that is
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
func New(o Options) *Learner { return &Learner{o: o} }

const (
	// A device's sample ring has mostRecords, or half as many if the tables have no more rows than that. This bounds what one Drain takes: with
	// DrainInterval some 6 M accesses a second, which the policies keep up with on part of a processor. Samples that come faster are
	// overwritten, and counted.
	mostRecords   = 1 << 17
	DrainInterval = 20 * time.Millisecond
	// ObserveRows is how many rows the policy observes at a time.
	ObserveRows = 4096
)

// RingRecords returns the size of a device's sample ring.
func RingRecords(set *read.Set) int {
	rows := int64(0)
	for _, t := range set.Tables {
		rows += t.Tier.Capacity()
	}
	if rows <= mostRecords/2 {
		return mostRecords / 2
	}
	return mostRecords
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

// SetPolicy replaces the policy by one that is new: it starts it for a capacity in bytes, has it observe each of the keys once, and closes the old
// one, whatever that did. If the new policy does not start, the old one stays.
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
	for table := range l.mu.rows { // what the old policy was to hear of
		l.mu.rows[table], l.mu.hits[table] = l.mu.rows[table][:0], l.mu.hits[table][:0]
	}
	l.callLocked(func(p admission.Policy) { p.Close() })
	l.o.Policy = p
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

// Drain hands new samples to the policy, to Options.OnKeys and to Options.Capture.
func (l *Learner) Drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drainLocked()
}

// DrainIfIdle is Drain, but does nothing while the policy or a callback runs. A callback may call it.
func (l *Learner) DrainIfIdle() {
	if l.mu.TryLock() {
		defer l.mu.Unlock()
		l.drainLocked()
	}
}

// drainLocked is Drain. REQUIRES: l.mu is locked.
func (l *Learner) drainLocked() {
	tables := l.o.Set.Tables
	if l.mu.rows == nil {
		l.mu.rows, l.mu.hits, l.mu.keys = make([][]int64, len(tables)), make([][]int64, len(tables)), make([][]int64, len(tables))
	}
	_, weighs := l.o.Policy.(admission.Weigher)
	lookups, read, overwritten := l.lookups(), int64(0), int64(0)
	for _, d := range l.o.Set.Devices {
		if d.Ring == nil {
			continue
		}
		samples := int64(0)
		lost := d.Ring.Drain(func(key uint64, kept uint32) {
			table, row := hashmap.SplitKey(key)
			if table >= len(tables) || row >= tables[table].Tier.Capacity() {
				return // a record of two halves, by a chance of 2^-30
			}
			samples++
			if l.o.Capture != nil && kept&(abi.SampledAccess|abi.SampledKey) != 0 { // misses beyond the share of all accesses are not for it
				l.o.Capture.Sample(key, kept&abi.SampledAccess != 0, kept&abi.SampledKey != 0)
			}
			switch {
			case l.o.HitWeight > 1 && !weighs && kept&abi.SampledAccess == 0: // one of the misses sampled beside the share of all accesses
			case l.o.HitWeight > 1 && weighs && kept&(abi.SampledAccess|abi.SampledMiss) == abi.SampledAccess:
				if l.mu.hits[table] = append(l.mu.hits[table], row); len(l.mu.hits[table]) >= ObserveRows {
					l.observeLocked(table)
				}
			case kept&(abi.SampledAccess|abi.SampledMiss) != 0:
				if l.mu.rows[table] = append(l.mu.rows[table], row); len(l.mu.rows[table]) >= ObserveRows {
					l.observeLocked(table)
				}
			}
			if kept&abi.SampledKey != 0 {
				l.estimate.access(key, l.o.SlotBytes(key))
				if l.o.OnKeys != nil {
					l.mu.keys[table] = append(l.mu.keys[table], row)
				}
			}
		})
		l.Samples.Add(samples)
		l.Lost.Add(int64(lost))
		read, overwritten = read+samples, overwritten+int64(lost)
		if l.o.Capture != nil && (samples > 0 || lost > 0) {
			l.o.Capture.Drained(int64(lost))
		}
	}
	l.estimate.drained(lookups, read, overwritten)
	for table := range tables {
		l.observeLocked(table)
		if len(l.mu.keys[table]) > 0 {
			l.o.OnKeys(table, l.mu.keys[table])
			l.mu.keys[table] = l.mu.keys[table][:0]
		}
	}
}

// observeLocked hands a table's rows to the policy. REQUIRES: l.mu is locked.
func (l *Learner) observeLocked(table int) {
	if rows := l.mu.rows[table]; len(rows) > 0 {
		l.callLocked(func(p admission.Policy) { p.Observe(table, rows) })
		l.Observed.Add(int64(len(rows)))
		l.mu.rows[table] = rows[:0]
	}
	if rows := l.mu.hits[table]; len(rows) > 0 {
		l.callLocked(func(p admission.Policy) { p.(admission.Weigher).ObserveWeighted(table, rows, l.o.HitWeight) })
		l.Observed.Add(int64(l.o.HitWeight * float64(len(rows))))
		l.mu.hits[table] = rows[:0]
	}
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

// Estimate returns the hit rate at other budgets, nil if no keys were sampled. budget is all devices' in bytes, of which slots are for
// slots, and fixed does not depend on the budget.
func (l *Learner) Estimate(budget, fixed, slots int64) *Estimate {
	return l.estimate.at(budget, fixed, slots)
}

// SetSlotBytes sets Options.SlotBytes. No other call may be under way.
func (l *Learner) SetSlotBytes(f func(key uint64) int) { l.o.SlotBytes = f }
