package cache

import (
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// lane is what one batch at a time uses: streams, events and a few kilobytes of memory.
//
// A batch runs on the caller's stream, or on the lane's own. It is either one launch, or one a stage; then its hits are
// decoded on the lane's side stream beside the reading of the misses, and events join the two.
type lane struct {
	owner        *deviceState
	running      bool   // a batch has begun and not ended
	epoch        uint64 // that batch, of the device's epochs
	stream, side device.Stream
	sequence     device.Sequence // of what a batch enqueues; nil where the device has none
	spread       *spread         // what slabs and peers are of
	slabs        []device.Buffer
	peers        uint8 // bits of the slabs that are other devices'
	// Points of a batch: the reading of misses has begun, hits are decoded, all is done.
	begun, decoded, done device.Event

	counters, buckets device.Buffer
	result            device.Buffer // the last batch's counters, where the host can read them
	batch             uint64        // the last batch's number
	lists             device.Buffer // of hits and misses, if the batch has a launch a stage: the device's scratch

	serve  kernels.Serve
	find   kernels.Find
	fetch  kernels.Fetch
	lookup kernels.Lookup
	decode kernels.Decode
	plan   transfer.Plan

	traced *tracedBatch // the batch that runs, if it is sampled
	timers [numPoints]device.Timer
}

// laneBytes is a lane's own device memory.
const laneBytes = kernels.CountersBytes + kernels.OrderBytes

func (l *lane) open() (err error) {
	d := l.owner.device
	if l.stream, err = d.NewStream(); err != nil {
		return err
	}
	if l.side, err = d.NewStream(); err != nil {
		return err
	}
	if q, ok := d.(device.Sequencer); ok {
		l.sequence = q.NewSequence()
	}
	for _, e := range []*device.Event{&l.begun, &l.decoded, &l.done} {
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
	if l.result, err = d.AllocHost(kernels.CountersBytes, "batch counters"); err != nil {
		return err
	}
	return nil
}

func (l *lane) close() {
	d := l.owner.device
	for _, s := range []device.Stream{l.stream, l.side} {
		if s != nil {
			s.Close()
		}
	}
	for _, e := range []device.Event{l.begun, l.decoded, l.done} {
		if e != nil {
			e.Close()
		}
	}
	l.closeTimers()
	for _, b := range []device.Buffer{l.counters, l.buckets, l.result} {
		d.Free(b)
	}
}

// enqueue enqueues a batch on stream s. When done has passed, out is written and result holds the batch's counters. It
// allocates nothing. After an error the lane is fit for the next batch once abandon has returned.
func (l *lane) enqueue(s device.Stream, table int, rows, out device.Buffer) error {
	if l.sequence == nil {
		return l.enqueueOn(s, l.side, table, rows, out)
	}
	err := l.enqueueOn(l.sequence.On(s), l.sequence.On(l.side), table, rows, out)
	if err == nil {
		err = l.sequence.Enqueue()
	} else {
		l.sequence.Drop()
	}
	l.plan.Enqueued(err)
	return err
}

func (l *lane) enqueueOn(s, side device.Stream, table int, rows, out device.Buffer) error {
	d := l.owner
	t := d.table(table)
	l.batch++
	lookup := kernels.Lookup{
		Map: d.hashes, Layout: d.layout, Table: table, Limit: d.cache.tables[table].tier.Rows(), Rows: rows,
		Rejected: t.rejected, Oversize: t.oversize, Peers: l.peers, Out: out, RowBytes: t.tier.RowBytes, Counters: l.counters,
		Samples: d.sampling(), Ring: d.ring,
	}
	var err error
	how := l.strategy(t, rows.Size()/8)
	l.mark(s, pointBegun)
	switch {
	case l.lists.Size() == 0:
		l.serve = kernels.Serve{
			Lookup: lookup, Slabs: l.slabs, Codec: t.codec, Tier: t.tier, Result: l.result, Batch: l.batch,
		}
		err = s.Launch(&l.serve)
	case how == hitsFirst:
		err = l.enqueueHitsFirst(s, t, lookup)
	default:
		err = l.enqueueStages(s, side, t, lookup)
	}
	if err != nil {
		return err
	}
	l.mark(s, pointDone)
	return s.Record(l.done)
}

// enqueueHitsFirst enqueues hits, then misses in any order.
func (l *lane) enqueueHitsFirst(s device.Stream, t *tableOnDevice, lookup kernels.Lookup) error {
	lookup.Found = l.lists.Slice(0, lookup.Rows.Size()/8*kernels.FoundBytes)
	l.find = kernels.Find{Lookup: lookup, Slabs: l.slabs, Codec: t.codec}
	l.fetch = kernels.Fetch{
		Misses: lookup.Found, AtBack: true, Counters: l.counters, Tier: t.tier, Codec: t.codec, Out: lookup.Out, End: l.ending(1),
	}
	if err := s.Launch(&l.find); err != nil {
		return err
	}
	return s.Launch(&l.fetch)
}

// ending is how the batch that is being enqueued ends, by so many kernels that may run at once.
func (l *lane) ending(n int) kernels.Ending {
	return kernels.Ending{Result: l.result, Batch: l.batch, Kernels: n}
}

// enqueueStages enqueues lookup, then misses, and hits beside them.
func (l *lane) enqueueStages(s, side device.Stream, t *tableOnDevice, lookup kernels.Lookup) error {
	n := lookup.Rows.Size() / 8 * kernels.FoundBytes
	batch := transfer.Batch{
		Found: l.lists.Slice(0, n), Ordered: l.lists.Slice(n, 2*n), Counters: l.counters, Buckets: l.buckets, Out: lookup.Out,
		Share: t.share, End: l.ending(2), Counted: true,
	}
	l.lookup = lookup
	l.lookup.Found, l.lookup.Pages = batch.Found, batch.Pages(t.tier)
	l.decode = kernels.Decode{
		Found: batch.Found, Counters: l.counters, Slabs: l.slabs, Codec: t.codec, Out: lookup.Out, RowBytes: t.tier.RowBytes,
		Peers: l.peers, Leave: 1, // for fetch
		End: batch.End,
	}
	if err := s.Launch(&l.lookup); err != nil {
		return err
	}
	l.mark(s, pointLookedUp)
	if err := l.plan.Enqueue(s, t.tier, t.codec, batch, l.begun); err != nil {
		return err
	}
	l.mark(s, pointFetched)
	// The reading of misses takes longest: the decoding waits until it has begun, on every multiprocessor. Where the two
	// began together, the reading was left with those multiprocessors that the decoder freed first: 327 instead of 277 us for
	// 40,000 misses of 256 bytes on an H200.
	if err := side.Wait(l.begun); err != nil {
		return err
	}
	l.mark(side, pointDecoding)
	if err := side.Launch(&l.decode); err != nil {
		return err
	}
	l.mark(side, pointDecoded)
	if err := side.Record(l.decoded); err != nil {
		return err
	}
	return s.Wait(l.decoded)
}

// abandon waits for what was enqueued of a batch on stream s before an error.
func (l *lane) abandon(s device.Stream) error {
	return errors.Join(s.Synchronize(), l.side.Synchronize(), l.stream.Fill(l.counters, 0), l.stream.Fill(l.buckets, 0), l.stream.Synchronize())
}

// published says whether the lane's last batch is finished or about to be, without a call of the driver.
func (l *lane) published() bool { return l.ending(0).Published() }

// outcome is what a batch did, summed over its parts.
type outcome struct {
	hits, misses, hostBytes int64
	peers                   int64 // hits in slabs of other devices
	reasons                 [slab.NumReasons]int64
	corrupt, outOfRange     int64
	// One of the corrupt rows' positions, and the first one out of range.
	corruptAt, outOfRangeAt int
}

// add adds the counters of a finished part, whose rows begin at position from.
func (o *outcome) add(c *kernels.Counters, from int) {
	o.hits += int64(c.Hits)
	o.misses += int64(c.Misses)
	o.hostBytes += int64(c.HostBytes)
	o.peers += int64(c.Peers)
	for r, n := range c.Reasons {
		o.reasons[r] += int64(n)
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

// report counts a finished batch of n rows and says what was wrong with it.
func (o *outcome) report(d *deviceState, table, n int) error {
	t := d.cache.tables[table]
	t.counts.add(o)
	d.counts.add(o)
	d.table(table).learn(o)
	switch {
	case o.corrupt != 0:
		return fmt.Errorf("%w: %d of %d rows of table %s do not decode, the one at position %d among them", ErrCorrupt, o.corrupt, n, t.name, o.corruptAt)
	case o.outOfRange != 0:
		return fmt.Errorf("%w: %d of %d are not 0 to %d of table %s, the first at position %d; their rows are zeroed",
			ErrRows, o.outOfRange, n, t.tier.Rows()-1, t.name, o.outOfRangeAt)
	}
	return nil
}
