package cache

import (
	"fmt"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// lane is what one batch at a time uses: streams, events and scratch memory.
//
// A batch runs on the caller's stream, or on the lane's own, but for its misses, which the lane's miss stream reads beside
// the decoding of the hits; events join the two.
type lane struct {
	owner        *deviceState
	stream, miss device.Stream
	slabs        []device.Buffer
	// Points of a batch: hits and misses are split, misses are in order, misses are read, all is done.
	split, ordered, fetched, done device.Event

	counters, buckets device.Buffer
	result            device.Buffer // the counters, where the host can read them
	capacity          int           // rows that found and sorted have room for
	found, sorted     device.Buffer
	outgrown          []device.Buffer // freed with the lane: freeing waits for the device

	// What Go memory is staged in, on devices that cannot address it.
	rows     device.Buffer // page-locked
	out      device.Buffer // the device's
	received device.Buffer // page-locked
	arrived  []device.Event

	lookup kernels.Lookup
	decode kernels.Decode
	plan   transfer.Plan
}

func (l *lane) open() (err error) {
	d := l.owner.device
	for _, s := range []*device.Stream{&l.stream, &l.miss} {
		if *s, err = d.NewStream(); err != nil {
			return err
		}
	}
	for _, e := range []*device.Event{&l.split, &l.ordered, &l.fetched, &l.done} {
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
	for _, d := range l.owner.cache.devices {
		l.slabs = append(l.slabs, d.slab)
	}
	return nil
}

// reserve makes room for a batch of n rows.
func (l *lane) reserve(n int) error {
	if n <= l.capacity {
		return nil
	}
	n = max(n, 2*l.capacity, 1024)
	l.capacity = 0
	for _, b := range []*device.Buffer{&l.found, &l.sorted} {
		l.outgrown = append(l.outgrown, *b)
		*b = device.Buffer{}
		if err := l.grow(b, int64(n)*kernels.FoundBytes, "batch scratch", l.owner.device.Alloc); err != nil {
			return err
		}
	}
	l.capacity = n
	return nil
}

// grow replaces a buffer that is too small.
func (l *lane) grow(b *device.Buffer, bytes int64, what string, alloc func(int64, string) (device.Buffer, error)) error {
	if bytes <= b.Size() {
		return nil
	}
	l.owner.device.Free(*b)
	*b = device.Buffer{}
	larger, err := alloc(bytes, what)
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	*b = larger
	return nil
}

func (l *lane) close() {
	d := l.owner.device
	for _, s := range []device.Stream{l.stream, l.miss} {
		if s != nil {
			s.Close()
		}
	}
	for _, e := range append(l.arrived, l.split, l.ordered, l.fetched, l.done) {
		if e != nil {
			e.Close()
		}
	}
	for _, b := range append(l.outgrown, l.counters, l.buckets, l.result, l.found, l.sorted, l.rows, l.out, l.received) {
		d.Free(b)
	}
}

// enqueue enqueues the stages of a batch on stream s: lookup, then hits and misses beside each other. rows and out are
// addressable by the device. When done has passed, out is written and result holds the batch's counters.
func (l *lane) enqueue(s device.Stream, table int, rows, out device.Buffer) error {
	d := l.owner
	t := &d.tables[table]
	rowBytes := t.tier.RowBytes
	n := rows.Size() / 8 * kernels.FoundBytes
	batch := transfer.Batch{
		Found: l.found.Slice(0, n), Ordered: l.sorted.Slice(0, n), Counters: l.counters, Buckets: l.buckets, Out: out, Share: t.share,
	}
	l.lookup = kernels.Lookup{
		Map: d.hashes, Layout: d.layout, Table: table, Limit: d.cache.tables[table].tier.Rows(), Rows: rows,
		Rejected: t.rejected, Oversize: t.oversize, Out: out, RowBytes: rowBytes, Found: batch.Found, Counters: l.counters,
	}
	l.decode = kernels.Decode{
		Found: batch.Found, Counters: l.counters, Slabs: l.slabs, Codec: t.codec, Out: out, RowBytes: rowBytes,
	}
	for _, step := range []func() error{
		func() error { return s.Fill(l.counters, 0) },
		func() error { return s.Launch(&l.lookup) },
		func() error { return s.Record(l.split) },
		func() error { return l.miss.Wait(l.split) },
		func() error { return l.plan.Enqueue(l.miss, t.tier, t.codec, batch, l.ordered) },
		func() error { return l.miss.Record(l.fetched) },
		// The reading of misses takes longest and needs few multiprocessors: it must not queue behind the hits.
		func() error { return s.Wait(l.ordered) },
		func() error { return s.Launch(&l.decode) },
		func() error { return s.Wait(l.fetched) },
		func() error { return s.Copy(l.result, l.counters) },
		func() error { return s.Record(l.done) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// outcome is what a batch did, summed over its parts.
type outcome struct {
	hits, misses, hostBytes int64
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
func (o *outcome) report(t *table, n int) error {
	t.counts.add(o)
	switch {
	case o.corrupt != 0:
		return fmt.Errorf("%w: %d of %d rows of table %s do not decode, the one at position %d among them", ErrCorrupt, o.corrupt, n, t.name, o.corruptAt)
	case o.outOfRange != 0:
		return fmt.Errorf("%w: %d of %d are not 0 to %d of table %s, the first at position %d; their rows are zeroed",
			ErrRows, o.outOfRange, n, t.tier.Rows()-1, t.name, o.outOfRangeAt)
	}
	return nil
}
