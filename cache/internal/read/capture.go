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
	place    place          // of kernel.State
	onBoard  *board.Capture // of a client of a shared cache: where the owner sees the replays
	counters device.Buffer  // of a resident table, and of a table of pages
	absent   *rounds        // of a table of pages
	sink
	sums     *kernels.SumRows // not nil: adds up the rows that kernel writes to mem
	mem, out device.Buffer    // with part
	// Of a batch of several tables each has a capture. The leader's replays are those of all: it is what the others' fields of replays are read from, and the others go
	// with it.
	leader    *capture
	followers []*capture
	tables    *kernels.PooledTables // the leader's: the kernel of all

	// The device's captures.mu guards what follows.
	hold         device.Hold // nil where the driver does not say when a graph is destroyed
	released     bool        // the caller will not replay it again
	gone         bool        // its memory is given back
	begun, ended uint64      // numbers of the last replays when somebody looked last: ended ones read nothing any more that changes
	over         uint64      // number of the last replay whose rows are written; of tables of pages that is later
	counted      kernels.ReplayCounts
	hits         uint64 // counted, if the rows of a replay are not known
	settled      struct {
		replays uint64
		counts  kernels.ReplayCounts
		hits    uint64
	}
	err error // of replays, not yet returned by Wait
}

// capture makes a batch a part of the graph that stream s captures. Only the replays' own kernels read rows and write out. With stride, unless it is 0, rows that are
// copied as they are lie so many bytes apart.
func (d *Device) capture(s device.Stream, table int, rows RowNumbers, out device.Buffer, stride int64, pool *reduce.Batch, w Watcher) (*Batch, error) {
	n := int(rows.Len())
	if err := d.checkCapture(table, pool); err != nil {
		return nil, err
	}
	d.SettleReplays() // gives back what destroyed graphs had
	c := &capture{owner: d, table: table, rows: n, sink: d.capturedSink(table, n, pool, stride)}
	if err := d.captures.add(c, rows, out); err != nil {
		return nil, d.wrap(err, n, d.set.Tables[table])
	}
	hold := holdOf(s)
	partly, err := c.launch(s)
	d.captures.join(c, hold)
	if err != nil {
		if !partly { // else until the graph is destroyed
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

// checkCapture returns an error for a batch that cannot be a part of a graph. pool is nil for one that copies rows.
func (d *Device) checkCapture(table int, pool *reduce.Batch) error {
	t := d.Table(table)
	if t.long() && t.Resident == nil {
		return fmt.Errorf("%w: row length (%d) must be below %d for a batch of a cached table in a graph", ErrCapturing, t.Rows.RowBytes, longRow)
	}
	if size := int64(t.Rows.RowBytes); pool != nil && d.capturesWritten(table, pool) && int64(pool.Rows)*size > capturedPooledBytes {
		return fmt.Errorf("%w: rows (%d, %d bytes each) of table %s that a graph adds up must be at most %d bytes", ErrPooling, pool.Rows, size, d.set.Tables[table].Name, capturedPooledBytes)
	}
	return nil
}

// serveNow returns what batches that begin now read of a table.
func (d *Device) serveNow(table int) kernels.Serve {
	v, t := d.view.Load(), d.Table(table)
	return kernels.Serve{
		Lookup: kernels.Lookup{
			Map: v.Map, Layout: v.Layout, Table: table, Limit: d.set.Tables[table].Tier.Rows(), Rejected: t.Rejected, Oversize: t.Oversize,
			Peers: v.Peers, RowBytes: t.Rows.RowBytes,
		},
		Slabs: v.Slabs, Codec: t.Codec, Tier: t.Rows, Resident: t.Resident,
	}
}

// idle says whether no replay read what changes when somebody looked last. REQUIRES: captures.mu is locked.
func (c *capture) idle() bool { return c.begun == c.ended }

// quiet says whether no replay ran when somebody looked last. REQUIRES: captures.mu is locked.
func (c *capture) quiet() bool { return c.begun == c.over }

// settle adds to the statistics what replays have done by the last look. REQUIRES: captures.mu is locked.
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
		below := c.absent.outcomeOfReplays()
		o.addAbsent(&below, 0)
	}
	o.pooled = c.pool != nil
	if c.kernel.Serve.Resident != nil { // what was counted by reasons were hits
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

// outcomeOf returns what replays with so many rows and offsets together did that have ended between two counts, and the counts up to there: the later
// ones without what a replay that runs has added to them, as far as that is more than the ended ones can have counted. Bad offsets of pooled batches are
// counted as rows out of range are.
func outcomeOf(rows, offsets int64, now, before *kernels.ReplayCounts) (o Outcome, counts kernels.ReplayCounts) {
	counts = *now
	left := rows
	// take returns what was counted since, at most limit, and leaves the rest in counts for later.
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

// release gives up a batch that is not replayed again. It waits for replays that run.
func (c *capture) release() {
	s := &c.owner.captures
	s.mu.Lock()
	c.released = true
	s.mu.Unlock()
	if c.await() != nil && !s.failed(c.owner) {
		return // nobody knows what runs: SettleReplays tries again
	}
	s.remove(c.owner, []*capture{c})
}

// wait waits for the replays that have begun, and returns what was wrong with those since the last call.
func (c *capture) wait() error {
	err := c.await()
	s := &c.owner.captures
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.verdict(err)
}

// poll is wait if no replay runs. It looks once, so that a replay that begins meanwhile is not waited for.
func (c *capture) poll() (done bool, err error) {
	s := &c.owner.captures
	err = s.look(c.owner)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.gone && (err != nil || !c.quiet()) {
		return false, c.owner.orLost(err)
	}
	return true, c.verdict(nil)
}

// verdict returns what was wrong with the replays that have ended since the last call. err is that of waiting for them. REQUIRES: captures.mu
// is locked.
func (c *capture) verdict(err error) error {
	s := &c.owner.captures
	var first error // of the tables
	for _, of := range append([]*capture{c}, c.followers...) {
		if !c.gone {
			of.settle()
		}
		if first == nil {
			first = of.err
		}
		if of.err = nil; err == nil && !c.gone {
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
		return c.owner.orLost(err)
	}
	return nil
}

// await waits until the replays that had begun have ended. It returns an error if the device does not say so.
func (c *capture) await() error {
	s := &c.owner.captures
	for until := ^uint64(0); ; time.Sleep(pollBatches) {
		err := s.look(c.owner)
		s.mu.Lock()
		until = min(until, c.begun)
		over := c.gone || err == nil && c.over >= until
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
	if c.gone || err == nil {
		return c.gone || c.quiet(), nil
	}
	return false, c.owner.orLost(err)
}

// mayBeAbsent gives a captured batch of a table of pages what it has for absent rows. A replay lists them itself and waits for them, as no host code runs before it.
func (c *capture) mayBeAbsent(table, n int) (err error) {
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

// enqueueRest enqueues what follows the kernel that replays: the waiting for absent rows, and the use of rows.
func (c *capture) enqueueRest(s device.Stream) error {
	if c.absent == nil {
		return c.useRows(s)
	}
	if err := c.absent.enqueue(s, c.kernel.Serve.Lookup.Out, c.useRows); err != nil {
		return fmt.Errorf("rows below the host tier: %w", err)
	}
	return nil
}
