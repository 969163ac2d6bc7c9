package read

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/board"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/transfer"
)

// lane is what one batch at a time uses: streams, events and a few kilobytes of memory. Its life: open, then for each batch
// acquire, begin, enqueue and release; at last close.
type lane struct {
	owner *Device
	busy  atomic.Bool // a batch has the lane
	words *board.Lane // numbers of its batches: own, or on the board of a client
	own   board.Lane
	index int // among the device's lanes
	// running says that the lane's batch has begun and not ended.
	running atomic.Bool

	stream   device.Stream   // of batches whose caller has no stream
	second   device.Stream   // decodes hits beside the reading of misses
	sequence device.Sequence // collects what a batch enqueues; nil where the device has none
	// Events of a batch: reading of the misses has begun, the hits are decoded, the batch is done.
	fetchBegun, decoded, done device.Event

	counters, buckets device.Buffer
	result            device.Buffer // the last batch's counters, in memory that the host reads
	sums, part        device.Buffer // counters of a pooled batch in parts, and the result of a part: see sink.go
	lists             *lists        // of hits and misses, of the device's scratch; nil where a batch is one launch
	after             device.Event  // what the batch waits for before it uses the lists; nil: nothing
	batch             uint64        // number of the last batch, or of the last part of one
	firstPart         uint64        // number of the first part of the batch
	route             route
	view              *View

	limit int64 // the table's length, as the batch has it

	// Arguments of launches. They are kept so that a batch allocates nothing.
	serve  kernels.Serve
	find   kernels.Find
	lookup kernels.Lookup
	decode kernels.Decode
	plan   transfer.Plan
	add    kernels.SumRows
	tables laneTables // of batches of several tables

	ctx    context.Context // of the batch, if some of its rows may be absent
	from   RowFetcher      // who reads them
	absent *kernels.Absent // of the host backend; nil until a batch may have such rows
	rounds *rounds         // of a GPU; nil until a batch may have such rows
	waits  bool            // counted in Device.waiting

	trace  *Trace // of the batch that runs, nil if it is not traced
	timers [NumPoints]device.Timer
}

// laneBytes is a lane's own device memory.
const laneBytes = 3*kernels.CountersBytes + kernels.OrderBytes

// pollBatches is how often a caller that waits for a lane asks whether a batch that nobody waits for has finished.
const pollBatches = 50 * time.Microsecond

// openLane opens a busy lane, which the caller has counted in mu.opened.
func (d *Device) openLane() (*lane, error) {
	l := &lane{owner: d}
	l.words = &l.own
	l.busy.Store(true)
	if err := l.open(); err != nil {
		l.close()
		d.mu.Lock()
		all := d.mu.opened >= d.mostLanes()
		d.mu.opened--
		d.mu.Unlock()
		if all { // who found none to open may open this one
			d.progress.notify()
		}
		return nil, err
	}
	for i := range d.lanes {
		l.index = i
		if d.board != nil {
			l.words = d.board.Lane(d.boardFirst + i)
		}
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
	if l.sums, err = d.Alloc(kernels.CountersBytes, "batch counters"); err != nil {
		return err
	}
	if l.part, err = d.Alloc(kernels.CountersBytes, "batch counters"); err != nil {
		return err
	}
	l.result, err = d.AllocHost(kernels.CountersBytes, "batch counters")
	return err
}

// mostLanes returns how many lanes there may be now: one more for each batch that waits for absent rows.
func (d *Device) mostLanes() int {
	return len(d.lanes) - d.spare + min(d.spare, int(d.waiting.Load()))
}

// acquire returns a lane for a batch of at most n rows, with the lists that its route needs, and waits for them if it must.
func (d *Device) acquire(ctx context.Context, r route, n int) (*lane, error) {
	// The callers of GatherDevice may never ask for their batches.
	if d.batches.Load() > 0 {
		d.SettleFinished()
	}
	l := d.idleLane()
	for l == nil {
		changed := d.progress.wait() // before looking for a lane, so that no release is missed
		d.mu.Lock()
		opening := d.mu.opened < d.mostLanes()
		if opening {
			d.mu.opened++
		}
		d.mu.Unlock()
		if opening {
			var err error
			l, err = d.openLane()
			d.progress.done()
			if err == nil {
				break
			}
			if !d.mayGrow(err) {
				return nil, err
			}
			changed = d.progress.wait() // for a lane of another batch
		}
		if l = d.idleLane(); l != nil {
			d.progress.done()
		} else if err := d.await(ctx, changed); err != nil {
			return nil, err
		}
	}
	l.route = r
	var err error
	if want := r.lists(n); want > 0 {
		err = l.acquireLists(ctx, want)
	}
	if err == nil && r.absent {
		if l.route.part > 0 {
			n = l.route.part
		}
		err = l.reserve(int64(n))
	}
	if err != nil {
		d.release(l, nil)
		return nil, err
	}
	return l, nil
}

// acquireLists gives a lane lists of at least so many bytes, and waits for them if it must. Where there is no memory for any, a batch of
// short rows is served by one launch instead, which needs none, or few if it adds them up.
func (l *lane) acquireLists(ctx context.Context, bytes int64) error {
	d := l.owner
	for {
		changed := d.progress.wait()
		d.mu.Lock()
		size, drop, ok := d.mu.scratch.take(l, bytes)
		d.mu.Unlock()
		if !ok {
			if err := d.await(ctx, changed); err != nil {
				return err
			}
			continue
		}
		d.progress.done()
		if size == 0 {
			return nil
		}
		for _, b := range drop {
			d.Device.Free(b)
		}
		b, err := d.Device.Alloc(size, "batch scratch")
		d.mu.Lock()
		others := true
		if err == nil {
			l.lists.Buffer = b
		} else {
			others = d.mu.scratch.refused(l, size)
		}
		d.mu.Unlock()
		switch {
		case err == nil:
			return nil
		case others:
			d.progress.notify()
		case l.route.tables != nil:
			return fmt.Errorf("cache: %w", err)
		case l.route.takeLess():
			if bytes = l.route.lists(0); bytes == 0 {
				return nil
			}
		case l.route.table.long(), l.route.pool != nil, l.route.absent, l.route.part > 0:
			return fmt.Errorf("cache: %w", err)
		default:
			l.route.launches = OneLaunch
			return nil
		}
	}
}

// mayGrow says whether a lane for which there was no memory may have some later: other lanes are open, which become idle.
func (d *Device) mayGrow(err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Is(err, device.ErrOutOfMemory) && d.mu.opened > 0
}

// await waits until changed is closed, or a batch of GatherDevice may have finished, and settles those that have.
func (d *Device) await(ctx context.Context, changed <-chan struct{}) error {
	defer d.progress.done()
	poll := (<-chan time.Time)(nil)
	if d.batches.Load() > 0 {
		poll = time.After(pollBatches)
	}
	select {
	case <-changed:
	case <-poll:
		d.settleFailed()
	case <-ctx.Done():
		return ctx.Err()
	}
	d.SettleFinished()
	return nil
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

// begin announces the lane's batch of a table, once batches may begin, and loads the views that it reads.
func (l *lane) begin(ctx context.Context, table int) error {
	if err := l.announce(ctx, table); err != nil {
		return err
	}
	if err := l.owner.set.residentOn(l.route.table); err != nil {
		l.end()
		return err
	}
	l.mayBeAbsent(ctx, table)
	l.firstPart = l.batch + 1
	return nil
}

// announce announces the lane's batch of a table, or of the tables of its route, and loads the views that it reads.
func (l *lane) announce(ctx context.Context, table int) error {
	d := l.owner
	for {
		l.running.Store(true)
		l.words.Begun.Add(1)
		// Whoever pauses, or replaces a view, from now on waits for this batch.
		l.view = d.view.Load()
		if l.route.tables != nil {
			l.tables.loadViews(d)
		} else {
			l.route.readBy(d.Table(table))
		}
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

// end notes that nothing of the lane's batch reads what changes any more.
func (l *lane) end() {
	if l.running.CompareAndSwap(true, false) {
		l.words.Ended.Store(l.words.Begun.Load())
		l.owner.progress.notify()
	}
}

// enqueue enqueues a batch on stream s. When done has passed, out is written and result holds the batch's counters. It allocates
// nothing. After an error the lane is fit for the next batch once abandon has returned.
func (l *lane) enqueue(s device.Stream, table int, rows RowNumbers, out device.Buffer) error {
	var err error
	if l.sequence == nil {
		err = l.enqueueOn(s, l.second, table, rows, out)
	} else {
		if err = l.enqueueOn(l.sequence.On(s), l.sequence.On(l.second), table, rows, out); err == nil {
			err = l.sequence.Enqueue()
		} else {
			l.sequence.Drop()
		}
		l.plan.Enqueued(err)
	}
	if err = l.owner.afterEnqueue(s, err); err == nil {
		l.after = nil                                                           // the batch ends after it
		if l.route.absent && l.batch+1 == l.firstPart+uint64(l.route.parts()) { // the last part
			l.rounds.enqueued.Store(true)
		}
	}
	return err
}

func (l *lane) enqueueOn(s, second device.Stream, table int, rows RowNumbers, out device.Buffer) error {
	d, t := l.owner, l.route.table
	if l.batch++; l.batch == l.firstPart {
		l.limit = d.set.Tables[table].Tier.Rows()
	}
	lookup := kernels.Lookup{
		Map: l.view.Map, Layout: l.view.Layout, Table: table, Limit: l.limit, Rows: rows.Buffer, Int32: rows.Int32,
		Rejected: t.Rejected, Oversize: t.Oversize, Peers: l.view.Peers, Out: out, RowBytes: t.Rows.RowBytes, Counters: l.counters,
		Samples: d.nextSampling(), Ring: d.Ring,
	}
	if t.Resident != nil { // nothing is admitted, so nobody asks for its samples
		lookup.Samples, lookup.Ring = kernels.Sampling{}, nil
	}
	if l.after != nil {
		if err := s.Wait(l.after); err != nil {
			return err
		}
	}
	l.mark(s, PointBegun)
	if err := l.route.enqueue(l, s, second, lookup, rows.Len()); err != nil {
		return err
	}
	l.mark(s, PointDone)
	return s.Record(l.done)
}

// ending has the batch, or a part of a pooled one, end with the last of so many kernels that may run at once.
func (l *lane) ending(n int) kernels.Ending {
	result := l.result
	if l.route.countsParts() {
		result = l.part
	}
	return kernels.Ending{Result: result, Batch: l.batch, Kernels: n}
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
	end := l.abandonRounds()
	err := s.Synchronize()
	end()
	return errors.Join(err, l.second.Synchronize(), l.stream.Fill(l.counters, 0), l.stream.Fill(l.sums, 0), l.stream.Fill(l.buckets, 0),
		l.stream.Fill(l.tables.counters, 0), l.stream.Synchronize())
}

// published says whether the lane's last batch is finished or about to be, without a call of the driver.
func (l *lane) published() bool {
	if l.route.tables != nil {
		return l.tables.kernel.Published()
	}
	return kernels.Ending{Result: l.result, Batch: l.batch}.Published()
}

// release makes a lane idle. If b is not nil, b leaves the batches under way at the same time.
func (d *Device) release(l *lane, b *Batch) {
	l.answered()
	if l.waits {
		d.waiting.Add(-1)
		l.waits = false
	}
	l.end()
	l.trace, l.route, l.ctx, l.from, l.tables.parts = nil, route{}, nil, nil, nil
	if l.after != nil { // nothing was enqueued, and an earlier batch may still use the lists; if the device has failed, nothing does
		l.after.Synchronize()
		l.after = nil
	}
	if b != nil || l.lists != nil {
		d.mu.Lock()
		d.forgetLocked(b)
		d.mu.scratch.give(l)
		d.mu.Unlock()
	}
	l.shrink()
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
	l.rounds.close(l.owner)
	l.tables.free(l.owner)
	for _, b := range []device.Buffer{l.counters, l.buckets, l.sums, l.part, l.result} {
		l.owner.Device.Free(b)
	}
}

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
