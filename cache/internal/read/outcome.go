package read

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/board"
	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// Outcome is what a batch did, summed over its parts.
type Outcome struct {
	Hits, Misses int64
	PeerHits     int64 // hits in slabs of other devices
	HostBytes    int64 // stored bytes of the missed rows; for resident tables, bytes read from overflow places
	PeerBytes    int64 // the part of HostBytes read from overflow places in devices' memory
	Overflow     int64 // hits of a resident table that were also read from overflow places
	Reasons      [slab.NumReasons]int64
	// Absent is how many of the misses the host tier did not hold, and Failed how many of these could not be read.
	Absent, Failed int64
	// Cold is the time for which the batch waited for absent rows.
	Cold time.Duration

	absent              *kernels.Absent // rows still to be read; nil: none
	failedAt            int             // position of the first row that could not be read
	failure             error           // why it could not be read
	corrupt, outOfRange int64
	pooled              bool
	// The positions of one of the corrupt rows, and of the first row number out of range.
	corruptAt, outOfRangeAt int
}

// add adds the counters of a finished part that begins at position from.
func (o *Outcome) add(c *kernels.Counters, from int) {
	o.Hits += int64(c.Hits)
	o.Misses += int64(c.Misses)
	o.HostBytes += int64(c.HostBytes)
	o.PeerHits += int64(c.Peers)
	for r, n := range c.Reasons {
		o.Reasons[r] += int64(n)
	}
	if c.Corrupt != 0 {
		o.corrupt += int64(c.Corrupt)
		o.corruptAt = from + int(c.CorruptPosition)
	}
	if c.OutOfRange != 0 {
		if o.outOfRange == 0 {
			o.outOfRangeAt = from + c.FirstOutOfRange()
		}
		o.outOfRange += int64(c.OutOfRange)
	}
}

// addAbsent adds the outcome of reading the absent rows of a part that begins at position from.
func (o *Outcome) addAbsent(absent *cold.Outcome, from int) {
	if absent.Rows == 0 {
		return
	}
	o.Absent += absent.Rows
	o.Cold += absent.Took
	if absent.Failed > 0 && o.Failed == 0 {
		o.failedAt, o.failure = from+absent.At, absent.Err
	}
	o.Failed += absent.Failed
}

// report counts a finished batch of n rows on a lane and returns its error.
func (o *Outcome) report(l *lane, table, n int) error {
	o.note(l, table)
	return o.reportReplays(l.owner, table, n, 1)
}

// note does what report needs the lane for: it updates the table's expected share of hits, and the board of a client.
func (o *Outcome) note(l *lane, table int) {
	d := l.owner
	d.Table(table).learn(o)
	o.pooled = l.route.pool != nil || l.route.tables != nil
	if d.board != nil {
		d.board.Record(d.boardFirst+l.index, table).Add(&board.Totals{
			Gathers: 1, Hits: o.Hits, PeerHits: o.PeerHits, HostBytes: o.HostBytes, Reasons: o.Reasons,
		})
	}
}

// reportReplays counts finished batches of n rows each and returns their error. Unlike report, it does not update the
// expected share of hits.
func (o *Outcome) reportReplays(d *Device, table, n int, batches int64) error {
	t := d.set.Tables[table]
	if t.WantResident != nil {
		o.Overflow, o.Reasons = o.Reasons[slab.Oversize], [slab.NumReasons]int64{}
		if v := d.Table(table); v != nil && v.Resident != nil && v.Resident.OnPeers() {
			o.PeerBytes = o.HostBytes
		}
	}
	t.Counts.add(o, batches)
	d.Counts.add(o, batches)
	return o.verdict(t, int64(n)*batches)
}

// verdict returns the error of batches with n rows in all.
func (o *Outcome) verdict(t *Table, n int64) error {
	switch {
	case o.corrupt != 0:
		return fmt.Errorf("%w: %d of %d rows of table %s do not decode, including the one at position %d", ErrCorrupt, o.corrupt, n, t.Name, o.corruptAt)
	case o.Failed != 0 && errors.Is(o.failure, ErrClosed): // nothing is wrong with the rows
		return ErrClosed
	case o.Failed != 0:
		return fmt.Errorf("%w: %d of %d rows of table %s are zeroed, the first at position %d: %w", ErrCold, o.Failed, n, t.Name, o.failedAt, o.failure)
	case o.outOfRange != 0 && o.pooled:
		return fmt.Errorf("%w: %d row numbers are not 0 to %d of table %s, or offsets are bad, the first at position %d; they are left out",
			ErrRows, o.outOfRange, t.Tier.Rows()-1, t.Name, o.outOfRangeAt)
	case o.outOfRange != 0:
		return fmt.Errorf("%w: %d of %d are not 0 to %d of table %s, the first at position %d; their rows are zeroed",
			ErrRows, o.outOfRange, n, t.Tier.Rows()-1, t.Name, o.outOfRangeAt)
	}
	return nil
}

// TableCounts are a table's counters. Batches add to them. They are safe for concurrent use.
type TableCounts struct {
	Cached atomic.Int64 // rows admitted now; set by the writer

	gathers, hits, peerHits, hostBytes, peerBytes, overflow atomic.Int64
	// Rows that the host tier did not hold: read from below it, and not readable.
	absentRead, absentFailed atomic.Int64
	reasons                  [slab.NumReasons]atomic.Int64
	remote                   func() board.Totals // what other processes have counted; nil: nothing
}

// TableTotals are the values of TableCounts at one moment. Misses is the sum of Reasons.
type TableTotals struct {
	Gathers, Hits, PeerHits, Misses, HostBytes int64
	PeerBytes                                  int64 // the part of HostBytes read from overflow places in devices' memory
	// How many of Misses the host tier did not hold, and how many of these could not be read.
	Absent, Failed int64
	Overflow       int64 // how many of Hits, in a resident table, were also read from overflow places
	Reasons        [slab.NumReasons]int64
}

func (c *TableCounts) add(o *Outcome, batches int64) {
	c.gathers.Add(batches)
	c.hits.Add(o.Hits)
	if o.PeerHits != 0 {
		c.peerHits.Add(o.PeerHits)
	}
	c.hostBytes.Add(o.HostBytes)
	if o.PeerBytes != 0 {
		c.peerBytes.Add(o.PeerBytes)
	}
	if o.Overflow != 0 {
		c.overflow.Add(o.Overflow)
	}
	if o.Absent != 0 {
		c.AddAbsent(o.Absent, o.Failed)
	}
	for r, n := range o.Reasons {
		if n != 0 {
			c.reasons[r].Add(n)
		}
	}
}

// AddAbsent counts rows that the host tier did not hold, and those of them that could not be read. The owner also
// calls it for batches of clients, whose misses the clients count.
func (c *TableCounts) AddAbsent(rows, failed int64) {
	c.absentRead.Add(rows - failed)
	c.absentFailed.Add(failed)
}

// Totals returns the counters, with those of other processes.
func (c *TableCounts) Totals() TableTotals {
	more := totalsOf(c.remote)
	t := TableTotals{
		Gathers: c.gathers.Load() + more.Gathers, Hits: c.hits.Load() + more.Hits, HostBytes: c.hostBytes.Load() + more.HostBytes,
		PeerBytes: c.peerBytes.Load() + more.PeerBytes,
		Failed:    c.absentFailed.Load(), Overflow: c.overflow.Load() + more.Overflow,
	}
	t.Absent = c.absentRead.Load() + t.Failed
	for r := range c.reasons {
		t.Reasons[r] = c.reasons[r].Load() + more.Reasons[r]
		t.Misses += t.Reasons[r]
	}
	t.PeerHits = min(c.peerHits.Load()+more.PeerHits, t.Hits)
	return t
}

func totalsOf(remote func() board.Totals) (t board.Totals) {
	if remote != nil {
		t = remote()
	}
	return t
}

// DeviceCounts are the counters of the batches that ran on a device.
type DeviceCounts struct {
	gathers, localHits, peerHits, misses atomic.Int64
	remote                               func() board.Totals
}

func (c *DeviceCounts) add(o *Outcome, batches int64) {
	c.gathers.Add(batches)
	c.localHits.Add(o.Hits - o.PeerHits)
	if o.PeerHits != 0 {
		c.peerHits.Add(o.PeerHits)
	}
	c.misses.Add(o.Misses)
}

// Totals returns the counters, with those of other processes.
func (c *DeviceCounts) Totals() (gathers, localHits, peerHits, misses int64) {
	more := totalsOf(c.remote)
	return c.gathers.Load() + more.Gathers, c.localHits.Load() + more.Hits - more.PeerHits, c.peerHits.Load() + more.PeerHits, c.misses.Load() + more.Misses()
}
