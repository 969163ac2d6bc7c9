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
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/transfer"
)

// lane is what one batch at a time uses: streams, events and a few kilobytes of memory. Its life is open, then
// acquire, begin, enqueue and release for each batch, and at last close.
type lane struct {
	owner *Device
	busy  atomic.Bool // a batch has the lane
	words *board.Lane // epoch words, which number its batches: own, or in a client those on its board
	own   board.Lane
	index int // among the device's lanes
	// running is set while the lane's batch may read what changes withdraw.
	running atomic.Bool

	stream   device.Stream   // for batches whose caller has no stream
	second   device.Stream   // decodes hits while the first stream reads misses, of these batches and of those with absent rows
	beside   device.Stream   // what decodes hits of the last batch: second, or one of the device's side streams
	sequence device.Sequence // enqueues a whole batch by one call; nil where the device has none
	// Events of a batch: reading of the misses has begun, the hits are decoded, the batch is done.
	fetchBegun, decoded, done device.Event

	counters, buckets device.Buffer
	result            device.Buffer  // counters of the last batch, in memory that the host reads
	sums              device.Buffer  // of a batch in parts: counters added up so far
	partCounters      device.Buffer  // of a batch in parts: the result of one part (sink.go)
	scratch           *scratchBuffer // for hits, misses and partial sums; nil where the route needs none
	after             device.Event   // the batch waits for this before it uses scratch; nil: it need not wait
	batch             uint64         // number of the last batch; of a batch in parts, of its last part
	firstPart         uint64         // number of the batch's first part
	route             route
	view              *View

	limit int64 // length of the table, the same for all parts of a batch

	// Arguments of launches, kept so that a batch allocates nothing.
	serve    kernels.Serve
	find     kernels.Find
	lookup   kernels.Lookup
	decode   kernels.Decode
	plan     transfer.Plan
	add      kernels.SumRows
	unpooled reduce.Batch // of add, where rows are copied
	tables   laneTables   // for batches of several tables

	ctx            context.Context // of the batch, if it may have absent rows; else nil
	from           RowFetcher      // reads the absent rows
	absent         *kernels.Absent // on the host backend; nil until a batch may have absent rows
	rounds         *rounds         // on a GPU; nil until a batch may have absent rows
	countedWait    bool            // in Device.surplus.waits
	countedWaiting bool            // in Device.waiting

	trace  *Trace // of the running batch; nil if it is not traced
	timers [NumPoints]device.Timer
}

// laneBytes is the device memory of a lane.
const laneBytes = 3*kernels.CountersBytes + kernels.OrderBytes

// pollBatches is how often a caller that waits for a lane polls the batches that nobody waits for.
const pollBatches = 50 * time.Microsecond

// openLane opens a lane, which is busy at first. REQUIRES: the caller has counted it in mu.opened.
func (d *Device) openLane() (*lane, error) {
	l := &lane{owner: d}
	l.words = &l.own
	l.busy.Store(true)
	if err := l.open(); err != nil {
		l.close()
		d.mu.Lock()
		all := d.mu.opened >= d.laneLimit()
		d.mu.opened--
		d.mu.Unlock()
		if all { // callers that were refused a lane may open one now
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
	if l.partCounters, err = d.Alloc(kernels.CountersBytes, "batch counters"); err != nil {
		return err
	}
	l.result, err = d.AllocHost(kernels.CountersBytes, "batch counters")
	return err
}

// laneLimit returns how many lanes there may be now. Each batch that waits for absent rows allows one more, up to
// d.spare.
func (d *Device) laneLimit() int {
	return len(d.lanes) - d.spare + min(d.spare, int(d.waiting.Load()))
}

// acquire returns a lane for a batch of at most n rows, with the scratch memory that its route needs. It waits for both if
// necessary.
func (d *Device) acquire(ctx context.Context, r route, n int) (*lane, error) {
	// Callers of Enqueue may never wait for their batches, which keep their lanes until they are settled.
	if d.batches.Load() > 0 {
		d.SettleFinished()
	}
	l := d.idleLane()
	for l == nil {
		changed := d.progress.wait() // before looking for a lane, so that no release is missed
		d.mu.Lock()
		opening := d.mu.opened < d.laneLimit()
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
			changed = d.progress.wait() // for the lane of another batch
		}
		if l = d.idleLane(); l != nil {
			d.progress.done()
		} else if err := d.await(ctx, changed); err != nil {
			return nil, err
		}
	}
	l.route = r
	var err error
	if want := r.scratchBytes(n); want > 0 {
		err = l.acquireScratch(ctx, want)
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

// acquireScratch gives a lane scratch memory of at least the given bytes, and waits for it if necessary. If the device
// has none left and there is no other to wait for, the route changes to one that needs less. That is one launch, or
// shorter parts. If there is no such route, acquireScratch returns an error.
func (l *lane) acquireScratch(ctx context.Context, bytes int64) error {
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
			l.scratch.Buffer = b
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
		case l.route.shrinkScratch():
			if bytes = l.route.scratchBytes(0); bytes == 0 {
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

// mayGrow says whether a lane that lacked memory may get it later: some lanes are open, and will become idle.
func (d *Device) mayGrow(err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Is(err, device.ErrOutOfMemory) && d.mu.opened > 0
}

// await waits until changed is closed, or until a batch of Enqueue may have finished. It settles those that
// have.
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

// idleLane takes an idle lane, or returns nil if there is none. It prefers the first lanes, whose memory is most
// likely in caches.
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

// begin announces the lane's batch of a table and loads the views that it reads. It waits while batches are paused.
func (l *lane) begin(ctx context.Context, table int) error {
	if err := l.announce(ctx, table); err != nil {
		return err
	}
	if err := l.owner.set.residentOn(l.route.table); err != nil {
		l.end()
		return err
	}
	l.prepareAbsent(ctx, table)
	l.firstPart = l.batch + 1
	return nil
}

// announce announces the lane's batch, of a table or of the tables of its route, and loads the views that it reads.
func (l *lane) announce(ctx context.Context, table int) error {
	d := l.owner
	for {
		l.running.Store(true)
		l.words.Begun.Add(1)
		// From now on, whoever pauses batches or replaces a view waits for this batch.
		l.view = d.view.Load()
		if l.route.tables != nil {
			l.tables.loadViews(d)
		} else {
			l.route.setTable(d.Table(table))
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

// end records that the lane's batch no longer reads anything that a change may withdraw.
func (l *lane) end() {
	if l.running.CompareAndSwap(true, false) {
		l.words.Ended.Store(l.words.Begun.Load())
		l.owner.progress.notify()
	}
}

// enqueue enqueues a batch on stream s. When the event done has passed, out is written and result holds the batch's
// counters. enqueue allocates nothing. After an error the caller must call abandon before the lane serves another
// batch.
func (l *lane) enqueue(s device.Stream, table int, rows RowNumbers, out device.Buffer) error {
	var err error
	if l.beside = l.second; l.route.launches == SideBySide {
		l.beside = l.side(s)
	}
	if l.sequence == nil {
		err = l.enqueueOn(s, l.beside, table, rows, out)
	} else {
		if err = l.enqueueOn(l.sequence.On(s), l.sequence.On(l.beside), table, rows, out); err == nil {
			err = l.sequence.Enqueue()
		} else {
			l.sequence.Drop()
		}
		l.plan.Enqueued(err)
	}
	if err = l.owner.afterEnqueue(s, err); err == nil {
		l.after = nil                                                           // the enqueued batch waits for it
		if l.route.absent && l.batch+1 == l.firstPart+uint64(l.route.parts()) { // this was the last part
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
	lookup := l.view.lookup(t, table, l.limit)
	lookup.Rows, lookup.Int32, lookup.Out, lookup.Counters = rows.Buffer, rows.Int32, out, l.counters
	if t.Resident == nil { // else nothing is admitted, so samples have no reader
		lookup.Samples, lookup.Ring = d.nextSampling(), d.Ring
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

// ending says how a batch, or a part of one, publishes its counters: by the last of n kernels that may run at once.
func (l *lane) ending(n int) kernels.Ending {
	result := l.result
	if l.route.countsParts() {
		result = l.partCounters
	}
	return kernels.Ending{Result: result, Batch: l.batch, Kernels: n}
}

// finish returns err. If it is not nil, finish first waits for whatever was enqueued: only then may the batch's
// memory be reused.
func (l *lane) finish(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(err, l.abandon(l.stream))
}

// abandon waits for what a batch enqueued on stream s before an error, and clears the lane's counters.
func (l *lane) abandon(s device.Stream) error {
	end := l.abandonRounds()
	err := s.Synchronize()
	end()
	if l.beside != nil {
		err = errors.Join(err, l.beside.Synchronize())
	}
	return errors.Join(err, l.stream.Fill(l.counters, 0), l.stream.Fill(l.sums, 0), l.stream.Fill(l.buckets, 0),
		l.stream.Fill(l.tables.counters, 0), l.stream.Synchronize())
}

// published says whether the lane's last batch has published its counters. It makes no driver call.
func (l *lane) published() bool {
	if l.route.tables != nil {
		return l.tables.kernel.Published()
	}
	return kernels.Ending{Result: l.result, Batch: l.batch}.Published()
}

// release makes a lane idle. If b is not nil, it also removes b from the batches in flight.
func (d *Device) release(l *lane, b *Batch) {
	l.answered()
	if l.countedWaiting {
		d.waiting.Add(-1)
		l.countedWaiting = false
	}
	l.end()
	l.trace, l.route, l.ctx, l.from, l.tables.parts, l.beside = nil, route{}, nil, nil, nil, nil
	// The batch was not enqueued, so an earlier batch may still use the lists. If the device has failed, none does.
	if l.after != nil {
		l.after.Synchronize()
		l.after = nil
	}
	if b != nil || l.scratch != nil {
		d.mu.Lock()
		d.forgetLocked(b)
		d.mu.scratch.give(l)
		d.mu.Unlock()
	}
	l.endWait()
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
	for _, b := range []device.Buffer{l.counters, l.buckets, l.sums, l.partCounters, l.result} {
		l.owner.Device.Free(b)
	}
}

// progress wakes callers that wait for batches to end. If nobody waits, the usual case, notify costs one atomic load.
type progress struct {
	waiting atomic.Int32
	mu      sync.Mutex
	changed chan struct{} // made by wait; closed and cleared by the next notify
}

// wait registers a waiter and returns a channel that the next notify closes. The caller must call done afterwards.
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
