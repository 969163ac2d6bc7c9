package change

import (
	"context"
	"fmt"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/learn"
	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// Writer changes what a cache holds. It is safe for concurrent use.
type Writer struct {
	set     *read.Set
	store   *place.Store
	learner *learn.Learner
	watch   *observe.Telemetry
	o       Options

	// Withdrawn remembers the rows withdrawn last.
	Withdrawn observe.Withdrawn
	Counts    Counts

	life    context.Context // ends when the cache closes
	stop    context.CancelFunc
	tasks   sync.WaitGroup // everything that runs until then
	started time.Time
	budget  atomic.Int64 // bytes per device, as of now
	cycle   cycleState
	losses  losses

	snapshot sync.Mutex // one is written at a time

	mu struct {
		sync.Mutex
		index  *index
		retire retirement
		born   []uint32 // for each map slot, when its row was admitted
		// bornSum is the sum of born over the admitted rows.
		bornSum int64

		fresh     map[uint64]*fresh   // rows whose newest version is not in the host tier yet
		admitting map[uint64]struct{} // rows on their way to a slab; whoever changes one takes it out

		err error          // a change failed half way: nothing can be changed any more
		by  *observe.Cause // on whose behalf rows are withdrawn, nil if nobody knows
		at  time.Time      // when they are withdrawn; the zero time: now
	}
}

// Options are what a Writer goes by.
type Options struct {
	Budget   int64 // bytes per device, the most that SetBudget may ask for
	Interval time.Duration
	MaxChurn float64
	MaxBytes int64
	// Close is returned by calls that wait while the cache closes.
	Closed error
}

// Counts are the counters of what was changed.
type Counts struct {
	Cycles, Admitted, Evicted, Moved, Refused, Copied atomic.Int64 // rows
	Bytes                                             atomic.Int64 // written to slabs by cycles
	Updated, Invalidated, Waits                       atomic.Int64
	HostBytes                                         atomic.Int64 // written to the host tier
	Lost                                              atomic.Int64 // rows that only lost devices had
}

// Entry is a row and its places.
type Entry struct {
	Key    uint64
	Places place.Places
}

// New returns a writer of a cache whose index is not known yet. It can lose devices already.
func New(set *read.Set, learner *learn.Learner, watch *observe.Telemetry, o Options) *Writer {
	w := &Writer{set: set, learner: learner, watch: watch, o: o, started: time.Now()}
	w.life, w.stop = context.WithCancel(context.Background())
	w.budget.Store(o.Budget)
	w.mu.fresh, w.mu.admitting = map[uint64]*fresh{}, map[uint64]struct{}{}
	w.mu.retire = retirement{open: newRetired(), progress: make(chan struct{})}
	return w
}

// Open begins to change a store that is filled. differing are the rows whose places not every map names alike.
func (w *Writer) Open(store *place.Store, differing []Entry) (err error) {
	w.store, w.started = store, time.Now()
	w.mu.index, err = newIndex(store, &w.mu.retire, differing)
	if w.mu.index != nil && w.mu.index.m != nil {
		w.mu.born = make([]uint32, w.mu.index.m.Layout().Slots())
	}
	w.set.Lose = w.lose
	return err
}

// Start begins what runs in the background: cycles, and learning from samples.
func (w *Writer) Start() {
	if w.set.Devices[0].Ring != nil {
		w.every("learn", learn.DrainInterval, w.learner.Drain)
	}
	if w.o.Interval > 0 {
		w.every("refresh", w.o.Interval, func() { w.runCycle(w.life, nil) })
	}
}

// every calls f in the background until the cache closes, with an interval between the calls.
func (w *Writer) every(task string, interval time.Duration, f func()) {
	w.tasks.Go(func() {
		pprof.SetGoroutineLabels(w.watch.Labels(w.life, task))
		timer := time.NewTimer(interval)
		defer timer.Stop()
		for {
			select {
			case <-w.life.Done():
				return
			case <-timer.C:
			}
			f()
			timer.Reset(interval)
		}
	})
}

// End ends what runs in the background. No call may be under way.
func (w *Writer) End() {
	w.stop()
	w.tasks.Wait()
}

// Free frees the writer's memory. No batch may run, and End was called.
func (w *Writer) Free() {
	if w.mu.index != nil {
		w.mu.index.close()
	}
	for _, b := range w.mu.retire.open.buffers {
		b.device.Free(b.buffer)
	}
	w.mu.retire.open.buffers = nil
}

// Find returns where a row lies first, or why it lies nowhere. What it returns may have changed already.
func (w *Writer) Find(key uint64) slab.Location { return w.mu.index.find(key) }

// Err returns the error after which nothing can be changed.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.err
}

// changedRows is how many rows are changed under the lock at a time, so that others wait for less than a millisecond.
const changedRows = 4096

// inParts calls f under the lock for parts of rows, and publishes after each part. What f withdraws is withdrawn by the given cause.
func inParts[T any](w *Writer, by *observe.Cause, rows []T, f func(T)) error {
	for len(rows) > 0 {
		part := rows[:min(len(rows), changedRows)]
		rows = rows[len(part):]
		w.mu.Lock()
		w.behalfLocked(by)
		for _, r := range part {
			f(r)
		}
		w.behalfLocked(nil)
		err := w.publishLocked()
		w.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// publishLocked lets every device see the index: batches that begin after it returns do. An error is final.
func (w *Writer) publishLocked() error {
	if w.mu.err != nil {
		return w.mu.err
	}
	err := w.mu.index.publish()
	if !w.mu.retire.open.empty() {
		w.workLocked()
	}
	return w.failLocked(err)
}

// failLocked notes an error after which the devices may hold anything.
func (w *Writer) failLocked(err error) error {
	if err != nil && w.mu.err == nil {
		w.mu.err = fmt.Errorf("cache: changing what is cached: %w", err)
	}
	return w.mu.err
}

// age is the unit of born: 13 years' worth fit.
const age = 100 * time.Millisecond

func (w *Writer) now() uint32 { return uint32(time.Since(w.started) / age) }

// Age returns how long the row at a map slot has been admitted. REQUIRES: the lock.
func (w *Writer) ageLocked(slot int64) time.Duration {
	return time.Duration(w.now()-w.mu.born[slot]) * age
}

// admittedLocked counts a row whose location has been published.
func (w *Writer) admittedLocked(key uint64) {
	table, _ := hashmap.SplitKey(key)
	w.set.Tables[table].Counts.Cached.Add(1)
	if s, ok := w.mu.index.m.Slot(key); ok {
		w.mu.born[s] = w.now()
		w.mu.bornSum += int64(w.mu.born[s])
	}
}

// withdrawnLocked counts and remembers a row that is admitted no longer. Its key is still in the index.
func (w *Writer) withdrawnLocked(key uint64) {
	table, _ := hashmap.SplitKey(key)
	w.set.Tables[table].Counts.Cached.Add(-1)
	if s, ok := w.mu.index.m.Slot(key); ok {
		w.mu.bornSum -= int64(w.mu.born[s])
		at := w.mu.at
		if at.IsZero() {
			at = time.Now()
		}
		w.Withdrawn.Add(observe.Withdrawal{Key: key, At: at, Age: w.ageLocked(s), By: w.mu.by})
	}
}

// behalfLocked has what is withdrawn from now on remembered as withdrawn by someone at this moment, until it is called with nil or the
// lock is given up.
func (w *Writer) behalfLocked(by *observe.Cause) {
	if w.mu.by, w.mu.at = by, (time.Time{}); by != nil {
		w.mu.at = time.Now()
	}
}

// evictLocked withdraws an admitted row that is not fresh.
func (w *Writer) evictLocked(key uint64, p place.Places, why slab.Reason) {
	w.withdrawnLocked(key)
	w.mu.index.erase(key, why)
	w.retireLocked(key, p)
}
