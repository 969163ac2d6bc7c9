package read

import (
	"fmt"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/board"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
)

// capture is a batch in a captured graph.
type capture struct {
	owner    *Device
	table    int
	rows     int
	kernel   kernels.Replay // not changed after its launch
	place    place          // where kernel.State lies
	onBoard  *board.Capture // in a client of a shared cache: the place on its board that shows the owner the replays
	counters device.Buffer  // for resident tables and tables of pages
	absent   *rounds        // for tables of pages
	sink
	sums     *kernels.SumRows // not nil: adds up the rows that kernel writes to mem
	mem, out device.Buffer    // used if part is not 0: scratch memory for rows, and the batch's output
	// A batch of several tables has one capture per table. One kernel serves all, so the replays of the first capture,
	// the leader, are those of all. The others, its followers, copy its replay numbers and are released with it.
	leader    *capture
	followers []*capture
	tables    *kernels.PooledTables // in the leader: the kernel that serves all tables

	// The device's captures.mu guards the fields below.
	hold     device.Hold // nil where the driver does not report when a graph is destroyed
	released bool        // the caller will not replay it again
	freed    bool        // its memory is given back
	// Numbers of replays, as of the last look: of the latest that has begun, and of the latest that no longer reads
	// anything a change may withdraw.
	begun, ended uint64
	// Number of the latest replay whose rows are all written. It differs from ended only for tables of pages.
	over    uint64
	counted kernels.ReplayCounts
	hits    uint64 // counted by the kernel; used where the number of rows of a replay is not known
	settled struct {
		replays uint64
		counts  kernels.ReplayCounts
		hits    uint64
	}
	err error // of replays; not yet returned by Wait
}

// capture makes a batch a part of the graph that stream s captures. Nothing is read or written now: only replays do
// that. If stride is not 0, copied rows lie that many bytes apart.
func (d *Device) capture(s device.Stream, table int, rows RowNumbers, out device.Buffer, stride int64, pool *reduce.Batch, w Watcher) (*Batch, error) {
	n := int(rows.Len())
	if err := d.checkCapture(table, pool); err != nil {
		return nil, err
	}
	d.SettleReplays() // frees the memory of destroyed graphs
	c := &capture{owner: d, table: table, rows: n, sink: d.capturedSink(table, n, pool, stride)}
	if err := d.captures.add(c, rows, out); err != nil {
		return nil, d.wrap(err, n, d.set.Tables[table])
	}
	hold := holdOf(s)
	partly, err := c.launch(s)
	d.captures.join(c, hold)
	if err != nil {
		if !partly { // else the graph's replays use the memory until the graph is destroyed
			c.release()
		}
		return nil, d.wrap(err, n, d.set.Tables[table])
	}
	if w != nil {
		w.Captured()
	}
	b := &Batch{table: table, rows: n, captured: c}
	b.mu.settled = true
	return b, nil
}

// checkCapture returns an error for a batch that cannot be captured. pool is nil for a batch that copies rows.
func (d *Device) checkCapture(table int, pool *reduce.Batch) error {
	t := d.Table(table)
	if t.long() && t.Resident == nil {
		return fmt.Errorf("%w: row length (%d) must be below %d for a batch of a cached table in a graph", ErrCapturing, t.Rows.RowBytes, longRow)
	}
	if size := int64(t.Rows.RowBytes); pool != nil && d.capturePoolsInScratch(table, pool) && int64(pool.Rows)*size > maxCapturedPoolBytes {
		return fmt.Errorf("%w: rows (%d, %d bytes each) of table %s that a graph adds up must be at most %d bytes", ErrPooling, pool.Rows, size, d.set.Tables[table].Name, maxCapturedPoolBytes)
	}
	return nil
}

// serveNow returns the memory of a table that a batch beginning now reads.
func (d *Device) serveNow(table int) kernels.Serve {
	v, t := d.view.Load(), d.Table(table)
	return kernels.Serve{
		Lookup: v.lookup(t, table, d.set.Tables[table].Tier.Rows()), Slabs: v.Slabs, Codec: t.Codec, Tier: t.Rows, Resident: t.Resident,
	}
}

// idle says whether, as of the last look, no replay read anything that a change may withdraw. REQUIRES: captures.mu
// is locked.
func (c *capture) idle() bool { return c.begun == c.ended }

// quiet says whether no replay ran as of the last look. REQUIRES: captures.mu is locked.
func (c *capture) quiet() bool { return c.begun == c.over }

// settle adds to the statistics what replays have done up to the last look. REQUIRES: captures.mu is locked.
func (c *capture) settle() {
	replays := int64(c.over - c.settled.replays)
	if replays == 0 {
		return
	}
	offsets := 0
	if c.pool != nil && c.pool.Size == 0 {
		offsets = c.pool.NumOffsets()
	}
	o, counts := outcomeOf(replays*int64(c.rows), replays*int64(offsets), &c.counted, &c.settled.counts)
	c.settled.replays, c.settled.counts = c.over, counts
	if c.pool != nil && c.pool.Whole.Size() > 0 {
		o.Hits, c.settled.hits = int64(c.hits-c.settled.hits), c.hits
	}
	if c.absent != nil {
		absent := c.absent.outcomeOfReplays()
		o.addAbsent(&absent, 0)
	}
	o.pooled = c.pool != nil
	if c.kernel.Serve.Resident != nil { // rows of resident tables are counted by reason, but are hits
		o.Hits, o.Misses = o.Hits+o.Misses, 0
	}
	err := o.reportReplays(c.owner, c.table, c.rows, replays)
	if old := c.owner.set.retired.Load(); old != nil && err == nil {
		err = *old
	}
	if err != nil {
		c.err = err
		c.owner.set.faults.add(err)
	}
}

// outcomeOf returns what ended replays did between the counts before and now. rows and offsets are totals over these
// replays. now may include counts of a replay that still runs. What exceeds the ended replays' possible share is left
// for later. The returned counts are now without that rest; the next call takes them as before. Bad offsets of pooled
// batches count as row numbers out of range.
func outcomeOf(rows, offsets int64, now, before *kernels.ReplayCounts) (o Outcome, counts kernels.ReplayCounts) {
	counts = *now
	left := rows
	// take returns what was counted since before, at most limit. What exceeds the limit stays uncounted for a later
	// call.
	take := func(now *uint64, before uint64, limit int64) int64 {
		n := min(int64(*now-before), limit)
		*now = before + uint64(n)
		return n
	}
	for r := range counts.Reasons {
		o.Reasons[r] = take(&counts.Reasons[r], before.Reasons[r], left)
		o.Misses += o.Reasons[r]
		left -= o.Reasons[r]
	}
	o.outOfRange, o.outOfRangeAt = take(&counts.OutOfRange, before.OutOfRange, left+offsets), now.FirstOutOfRange()
	o.Hits = max(0, left-o.outOfRange)
	o.PeerHits = take(&counts.Peers, before.Peers, o.Hits)
	o.HostBytes = int64(now.HostBytes - before.HostBytes)
	o.corrupt, o.corruptAt = int64(now.Corrupt-before.Corrupt), int(now.CorruptPosition)
	return o, counts
}

// release gives up a batch that will not be replayed again. It waits for replays that run.
func (c *capture) release() {
	s := &c.owner.captures
	s.mu.Lock()
	c.released = true
	s.mu.Unlock()
	if c.await() != nil && !s.failed(c.owner) {
		return // it is not known what runs; SettleReplays tries again
	}
	s.remove(c.owner, []*capture{c})
}

// wait waits for the replays that have begun, and returns the error of those that ended since the last call.
func (c *capture) wait() error {
	err := c.await()
	s := &c.owner.captures
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.verdict(err)
}

// poll is wait if no replay runs. It looks once, so it does not wait for a replay that begins meanwhile.
func (c *capture) poll() (done bool, err error) {
	s := &c.owner.captures
	err = s.look(c.owner)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.freed && (err != nil || !c.quiet()) {
		return false, c.owner.OrLost(err)
	}
	return true, c.verdict(nil)
}

// verdict returns the error of the replays that ended since the last call. err is the error of waiting for them.
// REQUIRES: captures.mu is locked.
func (c *capture) verdict(err error) error {
	s := &c.owner.captures
	var first error // over all tables
	for _, of := range append([]*capture{c}, c.followers...) {
		if !c.freed {
			of.settle()
		}
		if first == nil {
			first = of.err
		}
		if of.err = nil; err == nil && !c.freed {
			err = s.published[of.table].err
		}
	}
	if first != nil {
		return first
	}
	if old := c.owner.set.retired.Load(); old != nil && err == nil {
		err = *old
	}
	if err != nil || c.owner.Device.Err() != nil {
		return c.owner.OrLost(err)
	}
	return nil
}

// await waits until the replays that had begun by then have ended. It returns an error if their states cannot be
// read.
func (c *capture) await() error {
	s := &c.owner.captures
	for until := ^uint64(0); ; time.Sleep(pollBatches) {
		err := s.look(c.owner)
		s.mu.Lock()
		until = min(until, c.begun)
		over := c.freed || err == nil && c.over >= until
		s.mu.Unlock()
		if over {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// done says whether no replay runs.
func (c *capture) done() (bool, error) {
	s := &c.owner.captures
	err := s.look(c.owner)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.freed || err == nil {
		return c.freed || c.quiet(), nil
	}
	return false, c.owner.OrLost(err)
}

// prepareAbsent gives a captured batch of a table of pages what it needs for absent rows. No host code runs before a
// replay, so the replay itself lists its absent rows and waits for them.
func (c *capture) prepareAbsent(table, n int) (err error) {
	d := c.owner
	if n == 0 || !d.readsAbsent(table) {
		return nil
	}
	c.absent = &rounds{table: d.Table(table), from: d.set.Tables[table].Absent}
	r, b := c.absent, &c.absent.batch
	r.lists.ahead = r.table.Rows.ReadAhead
	if err := r.reserve(d, r.table.Rows.RowBytes, int64(n), d.set.Tuning.CapturedRoundBytes); err != nil {
		return err
	}
	if b.Ahead, err = d.allocNear(int64(n)*8, "a captured batch"); err != nil {
		return err
	}
	d.staged.Add(b.Ahead.Size())
	if c.counters, err = d.Device.Alloc(kernels.CountersBytes, "a captured batch"); err != nil {
		return err
	}
	d.captures.bytes.Add(c.counters.Size())
	b.Counters, b.Tier, b.State, b.Replay, b.Timeout = c.counters, r.table.Rows, r.state, c.kernel.State, r.from.Longest()
	b.Ending.Batch = 1
	c.kernel.Absent = b
	return nil
}

// enqueueRest enqueues the kernels behind the replay's: those that wait for absent rows, and those that use the rows.
func (c *capture) enqueueRest(s device.Stream) error {
	if c.absent == nil {
		return c.useRows(s)
	}
	if err := c.absent.enqueue(s, c.kernel.Serve.Lookup.Out, c.useRows); err != nil {
		return fmt.Errorf("rows below the host tier: %w", err)
	}
	return nil
}
