package change

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/learn"
	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/slab"
)

// Writer changes what a cache holds. It is safe for concurrent use.
type Writer struct {
	set     *read.Set
	store   *place.Store
	sources []source // of the tables, from Open on
	learner *learn.Learner
	watch   *observe.Telemetry
	o       Options // MaxChurn and MaxBytes are guarded by cycle

	// Withdrawn records the most recently withdrawn rows.
	Withdrawn observe.Withdrawn
	Counts    Counts

	life     context.Context // cancelled by stop, when the cache closes
	stop     context.CancelFunc
	endMoves context.CancelFunc
	moving   context.Context // ended by endMoves, when Close is called
	tasks    sync.WaitGroup  // background goroutines
	started  time.Time
	budget   atomic.Int64 // bytes per device, now
	cycle    cycleState
	losses   losses
	encoders []encoder    // one a device
	ages     *numa.Memory // of mu.admittedAt

	interval atomic.Int64  // nanoseconds between background cycles; 0: none run
	paced    chan struct{} // receives a token when interval has changed

	later func() (keys []uint64, free func()) // of AdmitLater

	snapshot sync.Mutex // held while a snapshot is written

	failed chan struct{} // closed when mu.err is set

	mu struct {
		sync.Mutex
		index  *index
		retire retirement
		// admittedAt is when the row at each map slot was admitted, in units of ageUnit since started. admittedAtSum is the sum over all
		// admitted rows.
		admittedAt    []uint32
		admittedAtSum int64

		updated   map[uint64]*updatedRow // rows that are served from the overlay
		residents residents              // rows of resident tables that are served from the overlay
		// admitting is how many rows are being written to slabs, and conflicts which rows were updated or invalidated meanwhile.
		admitting int
		conflicts map[uint64]struct{}

		err     error          // why the cache can no longer be changed, nil if it can
		cause   *observe.Cause // of withdrawals from now on, nil if not known
		causeAt time.Time      // when cause was set; zero without a cause
	}
}

// Options configure a Writer.
type Options struct {
	Budget   int64         // bytes per device at first
	Interval time.Duration // between background cycles; 0: none run
	MaxChurn float64       // share of a slab that one cycle may evict, 0 to 1
	MaxBytes int64         // bytes that one cycle may write to slabs
	// Inclusive keeps rows that a slab holds in Partial host tiers.
	Inclusive bool
	// Closed is the error of calls that wait while the cache closes.
	Closed error
}

// Counts are the counters of changes.
type Counts struct {
	Cycles, Admitted, Evicted, Moved, Refused, Copied atomic.Int64 // rows
	Bytes                                             atomic.Int64 // written to slabs by cycles
	Updated, Invalidated, Waits                       atomic.Int64
	HostBytes                                         atomic.Int64 // written to the host tier
	Lost                                              atomic.Int64 // rows cached only on devices that were lost
}

// Entry is a row and its locations.
type Entry struct {
	Key       uint64
	Locations place.Locations
}

// New returns a Writer without an index. Until Open, it can only handle the loss of devices.
func New(set *read.Set, learner *learn.Learner, watch *observe.Telemetry, o Options) *Writer {
	w := &Writer{set: set, learner: learner, watch: watch, o: o, started: time.Now(), paced: make(chan struct{}, 1)}
	w.interval.Store(int64(o.Interval))
	w.life, w.stop = context.WithCancel(context.Background())
	w.moving, w.endMoves = context.WithCancel(w.life)
	w.budget.Store(o.Budget)
	w.cycle.most = o.Budget
	w.losses.left, w.failed = make(chan struct{}), make(chan struct{})
	w.mu.updated, w.mu.conflicts, w.mu.residents.batches = map[uint64]*updatedRow{}, map[uint64]struct{}{}, map[uint32]*residentBatch{}
	w.mu.retire = retirement{open: newRetired(), progress: make(chan struct{})}
	return w
}

// Open reads the index of a filled store. After Open the cache can be changed. differing lists the rows for which the devices' maps hold
// different locations.
func (w *Writer) Open(store *place.Store, differing []Entry) (err error) {
	w.store, w.started = store, time.Now()
	w.encoders = make([]encoder, len(w.set.Devices))
	w.mu.index, err = newIndex(store, &w.mu.retire, differing)
	if w.mu.index != nil && w.mu.index.m != nil {
		w.mu.admittedAt, w.ages = numa.Make[uint32](w.mu.index.m.Layout().Slots())
	}
	rows := int64(0)
	for i, t := range w.set.Tables {
		w.sources = append(w.sources, w.newSource(i, t))
		rows += t.Tier.Capacity()
	}
	w.Withdrawn.SetRows(rows)
	w.set.Lose = w.lose
	return err
}

// Start starts the background goroutines: cycles, reading samples, and learning from them, which has to wait while the policy ranks.
func (w *Writer) Start() {
	if w.set.Devices[0].Ring != nil {
		w.every("sample", learn.DrainInterval, w.learner.Read)
		w.every("learn", learn.DrainInterval, w.learner.Observe)
	}
	w.tasks.Go(w.refreshing)
	if w.later != nil {
		w.tasks.Go(w.admitLater)
	}
	for _, s := range w.sources {
		s.start()
	}
}

// refreshing runs a cycle each interval until the cache closes.
func (w *Writer) refreshing() {
	pprof.SetGoroutineLabels(w.watch.Labels(w.life, "refresh"))
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		var due <-chan time.Time // of nil nothing is received
		if d := time.Duration(w.interval.Load()); d > 0 {
			timer.Reset(d)
			due = timer.C
		}
		select {
		case <-w.life.Done():
			return
		case <-w.paced:
		case <-w.failed:
			return // cycles would return the writer's error
		case <-due:
			w.runCycle(w.life, nil)
		}
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

// End stops the background goroutines and waits for them. No call may be running.
func (w *Writer) End() {
	w.stop()
	w.tasks.Wait()
}

// WriteBack writes the rows of a table that are still in the overlay to the host tier, without telling the devices. No batch may be running.
// REQUIRES: End has returned.
func (w *Writer) WriteBack(table int) error {
	var errs []error
	for key, f := range w.mu.updated {
		if of, row := hashmap.SplitKey(key); of == table && !f.written {
			_, _, err := w.set.Tables[table].Tier.Write(row, w.store.Overlay.Stored(f.slot, f.bytes), f.compressed)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Free frees the writer's memory. No batch may be running. REQUIRES: End has returned.
func (w *Writer) Free() {
	if w.mu.index != nil {
		w.mu.index.close()
	}
	for i := range w.encoders {
		w.encoders[i].close(w.set.Devices[i].Device)
	}
	w.ages.Free()
	for _, g := range []*retired{w.mu.retire.open, w.mu.retire.processing} {
		if g == nil {
			continue
		}
		for _, b := range g.buffers {
			b.device.Free(b.buffer)
		}
		g.buffers = nil
	}
}

// Find returns the first location of a row, or the reason why the row is not cached. It does not wait for changes: the result may be out
// of date.
func (w *Writer) Find(key uint64) slab.Location {
	w.mu.index.swap.RLock()
	defer w.mu.index.swap.RUnlock()
	return w.mu.index.find(key)
}

// Err returns the error that ended all changes, nil if there was none.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.err
}

// change calls f with the lock held, unless nothing can be changed any more, and returns its error.
func (w *Writer) change(f func() error) error {
	w.mu.Lock()
	defer w.unlock()
	if w.mu.err != nil {
		return w.mu.err
	}
	return f()
}

// unlock ends a change. It must be deferred. If the change panics, the panic goes on, because callers may recover from it. What the change was doing is
// half done then, so the writer fails before anybody else has the lock.
func (w *Writer) unlock() {
	p := recover()
	if p != nil {
		w.failLocked(panicked(p))
	}
	w.mu.Unlock()
	if p != nil {
		panic(p)
	}
}

// guard is deferred by changes of several steps. If one panics between its steps, without the lock, the writer fails as in unlock. guard sets err to its error.
func (w *Writer) guard(err *error) {
	if p := recover(); p != nil {
		*err = w.fail(panicked(p))
		panic(p)
	}
}

func panicked(p any) error { return fmt.Errorf("panic: %v", p) }

// changedRows is the most rows changed per lock acquisition. Other callers then wait less than a millisecond for the lock.
const changedRows = 4096

// inParts calls f for each row under the lock. It publishes and releases the lock after every changedRows rows. Rows that f withdraws are
// recorded with the cause by.
func inParts[T any](w *Writer, by *observe.Cause, rows []T, f func(T)) error {
	for part := range slices.Chunk(rows, changedRows) {
		err := w.change(func() error {
			w.setCauseLocked(by)
			defer w.setCauseLocked(nil)
			for _, r := range part {
				f(r)
			}
			return w.publishLocked()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// publishLocked copies changes of the index to every device. Batches that begin after it returns see the changes. After an error nothing
// can be changed any more.
func (w *Writer) publishLocked() error {
	if w.mu.err != nil {
		return w.mu.err
	}
	err := w.mu.index.publish()
	if !w.mu.retire.open.empty() {
		w.startProcessingLocked()
	}
	return w.failLocked(err)
}

// failLocked stores an error that may have left the devices inconsistent. No change is possible afterwards. Reads go on: what they may find is not
// changed, and memory that was retired stays unused.
func (w *Writer) failLocked(err error) error {
	if err != nil && w.mu.err == nil {
		w.mu.err = fmt.Errorf("cache: changing what is cached: %w", err)
		close(w.failed)
		failure := w.mu.err
		w.tasks.Go(func() { w.watch.Log.Error("cache cannot be changed any more", slog.Any("error", failure)) }) // without the lock
	}
	return w.mu.err
}

func (w *Writer) fail(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failLocked(err)
}

// ageUnit is the unit of admittedAt. 32 bits hold 13 years.
const ageUnit = 100 * time.Millisecond

func (w *Writer) now() uint32 { return uint32(time.Since(w.started) / ageUnit) }

// ageLocked returns how long the row at a map slot has been admitted.
func (w *Writer) ageLocked(slot int64) time.Duration {
	return time.Duration(w.now()-w.mu.admittedAt[slot]) * ageUnit
}

// admittedLocked counts a row that has been put in the index.
func (w *Writer) admittedLocked(key uint64) {
	table, _ := hashmap.SplitKey(key)
	w.set.Tables[table].Counts.Cached.Add(1)
	if s, ok := w.mu.index.m.Slot(key); ok {
		w.mu.admittedAt[s] = w.now()
		w.mu.admittedAtSum += int64(w.mu.admittedAt[s])
	}
}

// withdrawnLocked counts and records a row that is no longer admitted. REQUIRES: its key is still in the index.
func (w *Writer) withdrawnLocked(key uint64) {
	table, _ := hashmap.SplitKey(key)
	w.set.Tables[table].Counts.Cached.Add(-1)
	if s, ok := w.mu.index.m.Slot(key); ok {
		w.mu.admittedAtSum -= int64(w.mu.admittedAt[s])
		at := w.mu.causeAt
		if at.IsZero() {
			at = time.Now()
		}
		w.Withdrawn.Add(observe.Withdrawal{Key: key, At: at, Age: w.ageLocked(s), By: w.mu.cause})
	}
}

// setCauseLocked sets the cause and the time that withdrawals are recorded with. The caller resets the cause to nil before it unlocks.
func (w *Writer) setCauseLocked(by *observe.Cause) {
	if w.mu.cause, w.mu.causeAt = by, (time.Time{}); by != nil {
		w.mu.causeAt = time.Now()
	}
}

// evictLocked withdraws an admitted row and retires its slots. REQUIRES: the row is not in the overlay.
func (w *Writer) evictLocked(key uint64, p place.Locations, why slab.Reason) {
	w.withdrawnLocked(key)
	w.mu.index.withdraw(key, why)
	w.retireLocked(key, p, false)
}
