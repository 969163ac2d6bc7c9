package read

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/transfer"
)

// lane is what one batch at a time uses: streams, events and a few kilobytes of memory. Its life: open, then for each batch
// acquire, begin, enqueue and release; at last close.
type lane struct {
	owner *Device
	busy  atomic.Bool // a batch has the lane
	words epochWords
	// running says that the lane's batch has begun and not ended.
	running bool

	stream   device.Stream   // of batches whose caller has no stream
	second   device.Stream   // decodes hits beside the reading of misses
	sequence device.Sequence // collects what a batch enqueues; nil where the device has none
	// Events of a batch: reading of the misses has begun, the hits are decoded, the batch is done.
	fetchBegun, decoded, done device.Event

	counters, buckets device.Buffer
	result            device.Buffer // the last batch's counters, in memory that the host reads
	lists             device.Buffer // of hits and misses; of the device's scratch, none where a batch is one launch
	batch             uint64        // number of the last batch
	route             route
	view              *View

	// Arguments of launches. They are kept so that a batch allocates nothing.
	serve  kernels.Serve
	find   kernels.Find
	fetch  kernels.Fetch
	lookup kernels.Lookup
	decode kernels.Decode
	plan   transfer.Plan

	trace  *Trace // of the batch that runs, nil if it is not traced
	timers [NumPoints]device.Timer
}

// laneBytes is a lane's own device memory.
const laneBytes = kernels.CountersBytes + kernels.OrderBytes

// pollBatches is how often a caller that waits for a lane asks whether a batch that nobody waits for has finished.
const pollBatches = 50 * time.Microsecond

// openLane makes a busy lane, which the caller has counted in mu.opened.
func (d *Device) openLane() (*lane, error) {
	l := &lane{owner: d}
	l.busy.Store(true)
	if err := l.open(); err != nil {
		l.close()
		d.mu.Lock()
		d.mu.opened--
		d.mu.Unlock()
		d.progress.notify()
		return nil, err
	}
	for i := range d.lanes {
		if d.lanes[i].CompareAndSwap(nil, l) {
			break
		}
	}
	return l, nil
}

func (l *lane) open() (err error) {
	d := l.owner.Device
	for _, s := range []*device.Stream{&l.stream, &l.second} {
		if *s, err = d.NewStream(); err != nil {
			return err
		}
	}
	if q, ok := d.(device.Sequencer); ok {
		l.sequence = q.NewSequence()
	}
	for _, e := range []*device.Event{&l.fetchBegun, &l.decoded, &l.done} {
		if *e, err = d.NewEvent(); err != nil {
			return err
		}
	}
	if l.counters, err = d.Alloc(kernels.CountersBytes, "batch counters"); err != nil {
		return err
	}
	if l.buckets, err = d.Alloc(kernels.OrderBytes, "batch scratch"); err != nil {
		return err
	}
	l.result, err = d.AllocHost(kernels.CountersBytes, "batch counters")
	return err
}

// acquire returns a lane for a batch of at most n rows, and waits for one if it must. It settles the batches of GatherDevice that
// have finished, whose callers may never ask for them.
func (d *Device) acquire(ctx context.Context, r route, n int) (*lane, error) {
	if d.batches.Load() > 0 {
		d.SettleFinished()
	}
	want := r.lists(n)
	if want == 0 {
		if l := d.idleLane(); l != nil {
			l.route = r
			return l, nil
		}
	}
	for {
		changed := d.progress.wait() // before looking for a lane, so that no release is missed
		l := d.idleLane()
		d.mu.Lock()
		opening := l == nil && d.mu.opened < len(d.lanes)
		if opening {
			d.mu.opened++
		}
		if l != nil || opening {
			lists, size, drop, ok := d.mu.scratch.take(want)
			if ok || !r.table.long() {
				d.mu.Unlock()
				d.progress.done()
				return d.equip(l, r, lists, size, drop)
			}
			if opening {
				d.mu.opened--
			} else {
				l.busy.Store(false)
			}
		}
		poll := (<-chan time.Time)(nil)
		if len(d.mu.flight) > 0 {
			poll = time.After(pollBatches)
		}
		d.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-poll:
			d.settleFailed()
		case <-ctx.Done():
			err = ctx.Err()
		}
		d.progress.done()
		if err != nil {
			return nil, err
		}
		d.SettleFinished()
	}
}

// idleLane returns a lane that was idle, nil if there is none. The first ones are used most, so that their memory is in caches.
func (d *Device) idleLane() *lane {
	for i := range d.lanes {
		l := d.lanes[i].Load()
		if l == nil {
			return nil
		}
		if !l.busy.Load() && l.busy.CompareAndSwap(false, true) {
			return l
		}
	}
	return nil
}

// equip gives a lane its route and lists, and opens the lane if l is nil. The lists are those given, or new ones of the given size
// after drop has been freed. Where there is no memory for lists, short rows are served by one launch.
func (d *Device) equip(l *lane, r route, lists device.Buffer, size int64, drop []device.Buffer) (*lane, error) {
	for _, b := range drop {
		d.Device.Free(b)
	}
	var err error
	if size > 0 {
		if lists, err = d.Device.Alloc(size, "batch scratch"); err != nil {
			d.mu.Lock()
			d.mu.scratch.bytes -= size
			d.mu.Unlock()
			d.progress.notify()
		}
	}
	if l == nil {
		var failed error
		if l, failed = d.openLane(); failed != nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.mu.scratch.give(lists)
			return nil, failed
		}
	}
	if l.lists = lists; lists.Size() == 0 {
		r.launches = OneLaunch
	}
	l.route = r
	if err != nil && r.table.long() {
		d.release(l, nil)
		return nil, fmt.Errorf("cache: %w", err)
	}
	return l, nil
}

// begin announces the lane's batch, once batches may begin, and loads the views that it reads.
func (l *lane) begin(ctx context.Context, table int) error {
	d := l.owner
	for {
		l.running = true
		l.words.begin()
		// Whoever pauses, or replaces a view, from now on waits for this batch.
		l.view, l.route.table = d.view.Load(), d.Table(table)
		if d.set.paused.Load() == nil && d.view.Load() == l.view {
			break
		}
		l.end()
		if err := d.set.whilePaused(ctx); err != nil {
			return err
		}
	}
	if d.IsLost() {
		l.end()
		return d.LostError()
	}
	return nil
}

// end notes that nothing of the lane's batch runs any more.
func (l *lane) end() {
	if l.running {
		l.running = false
		l.words.ended.Store(l.words.begun.Load())
		l.owner.progress.notify()
	}
}

// enqueue enqueues a batch on stream s. When done has passed, out is written and result holds the batch's counters. It allocates
// nothing. After an error the lane is fit for the next batch once abandon has returned.
func (l *lane) enqueue(s device.Stream, table int, rows RowNumbers, out device.Buffer) error {
	if l.sequence == nil {
		return l.enqueueOn(s, l.second, table, rows, out)
	}
	err := l.enqueueOn(l.sequence.On(s), l.sequence.On(l.second), table, rows, out)
	if err == nil {
		err = l.sequence.Enqueue()
	} else {
		l.sequence.Drop()
	}
	l.plan.Enqueued(err)
	return err
}

func (l *lane) enqueueOn(s, second device.Stream, table int, rows RowNumbers, out device.Buffer) error {
	d, t := l.owner, l.route.table
	l.batch++
	lookup := kernels.Lookup{
		Map: l.view.Map, Layout: l.view.Layout, Table: table, Limit: d.set.Tables[table].Tier.Rows(), Rows: rows.Buffer, Int32: rows.Int32,
		Rejected: t.Rejected, Oversize: t.Oversize, Peers: l.view.Peers, Out: out, RowBytes: t.Rows.RowBytes, Counters: l.counters,
		Samples: d.nextSampling(), Ring: d.Ring,
	}
	l.mark(s, PointBegun)
	if err := l.route.enqueue(l, s, second, lookup, rows.Len()); err != nil {
		return err
	}
	l.mark(s, PointDone)
	return s.Record(l.done)
}

// ending has the batch end with the last of so many kernels that may run at once.
func (l *lane) ending(n int) kernels.Ending {
	return kernels.Ending{Result: l.result, Batch: l.batch, Kernels: n}
}

// finish returns err after whatever was enqueued before it has ended: only then may the batch's memory be used again.
func (l *lane) finish(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(err, l.abandon(l.stream))
}

// abandon waits for what a batch had enqueued on stream s before an error, and clears the lane's counters.
func (l *lane) abandon(s device.Stream) error {
	return errors.Join(s.Synchronize(), l.second.Synchronize(), l.stream.Fill(l.counters, 0), l.stream.Fill(l.buckets, 0), l.stream.Synchronize())
}

// published says whether the lane's last batch is finished or about to be, without a call of the driver.
func (l *lane) published() bool { return l.ending(0).Published() }

// release makes a lane idle. If b is not nil, b leaves the batches under way at the same time.
func (d *Device) release(l *lane, b *Batch) {
	l.end()
	l.trace, l.route = nil, route{}
	if b != nil || l.lists.Size() > 0 {
		d.mu.Lock()
		d.forgetLocked(b)
		d.mu.scratch.give(l.lists)
		l.lists = device.Buffer{}
		d.mu.Unlock()
	}
	l.busy.Store(false)
	d.progress.notify()
}

func (l *lane) close() {
	for _, s := range []device.Stream{l.stream, l.second} {
		if s != nil {
			s.Close()
		}
	}
	for _, e := range []device.Event{l.fetchBegun, l.decoded, l.done} {
		if e != nil {
			e.Close()
		}
	}
	for _, t := range l.timers {
		if t != nil {
			t.Close()
		}
	}
	for _, b := range []device.Buffer{l.counters, l.buckets, l.result} {
		l.owner.Device.Free(b)
	}
}

// epochWords say which batches of a lane run. A batch begins before it loads anything that a writer may withdraw, and ends once
// nothing of it runs any more. Only the lane's user writes them.
type epochWords struct {
	begun, ended atomic.Uint64 // numbers of the lane's last batch that has begun, and that has ended
}

func (w *epochWords) begin() { w.begun.Add(1) }

// running returns the number of the batch that runs, 0 for none.
func (w *epochWords) running() uint64 {
	ended := w.ended.Load()
	if begun := w.begun.Load(); begun != ended {
		return begun
	}
	return 0
}

// passed says whether batch n of the lane has ended.
func (w *epochWords) passed(n uint64) bool { return w.ended.Load() >= n }

// progress wakes those who wait for batches to end. The common case, that nobody waits, is one atomic load.
type progress struct {
	waiting atomic.Int32
	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when something has happened while someone waits
}

// wait registers a waiter. The channel is closed at the next notify. done must be called.
func (p *progress) wait() <-chan struct{} {
	p.waiting.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

func (p *progress) done() { p.waiting.Add(-1) }

func (p *progress) notify() {
	if p.waiting.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}
