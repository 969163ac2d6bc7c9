package read

import (
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/transfer"
)

// Launches says which kernels serve a batch.
type Launches uint8

const (
	// OneLaunch is kernels.Serve: lookup, hits and misses together. It needs no lists.
	OneLaunch Launches = iota + 1
	// HitsFirst is kernels.Find: lookup and hits, then the misses, in any order.
	HitsFirst
	// SideBySide is kernels.Lookup, then the misses on the batch's stream and, at the same time, the hits on the
	// lane's second stream.
	SideBySide
)

// String returns the name that spans and statistics use.
func (l Launches) String() string {
	switch l {
	case OneLaunch:
		return "one_launch"
	case HitsFirst:
		return "hits_first"
	}
	return "side_by_side"
}

// Thresholds of routes, measured on an H200.
const (
	// oneLaunchRows is the most rows of a batch that one launch serves. One launch saves about 25 µs. But it decodes
	// hits more slowly, and reads misses unordered from too many multiprocessors at once. Measured with 200,000 rows
	// of 256 bytes of a 2 GiB table: 4,000 misses took 92 µs (side by side 115 µs). 20,000 misses took 308 µs (side by
	// side 195 µs).
	oneLaunchRows = 8192
	// hitsFirstMisses is the most expected misses that are read after the hits instead of beside them.
	hitsFirstMisses = 4096
	// Misses are read in the order of their host addresses in batches of at least orderedRows rows of tables of at
	// least orderedTier bytes. The device's address translation covers smaller tables. In smaller batches the launch
	// costs more than address translation does.
	orderedTier = 512 << 20
	orderedRows = 4096
)

// partialBytes is a row's share of the lists of a GPU batch that may have absent rows. In addition to listBytes, it
// has an entry for the misses that the tier holds, and their index words.
const partialBytes = 3*kernels.FoundBytes + 8

// listBytes is a row's share of the lists of hits and misses: the entry that Lookup makes, and one of the ordered
// misses.
const listBytes = 2 * kernels.FoundBytes

// route says how one batch is served. It is decided before the batch takes a lane. It changes only if the device
// lacks scratch memory (acquireScratch).
type route struct {
	table    *TableView
	launches Launches
	misses   transfer.Reading // side by side only
	absent   bool             // on a GPU, and rows may be absent from the host tier
	// With absent: the GPU does not wait for absent rows. The host reads them after the batch, on its own.
	deferred bool
	tables   []Part // not nil: a batch of several tables, and table is not used
	sink
}

// decide returns the route of a batch of n rows. A traced batch is served side by side, so that its stages can be
// timed. planned is what an untraced batch would take. only, if not 0, replaces the choice by size and misses.
func decide(t *TableView, n int64, traced bool, only Launches) (r route, planned Launches) {
	planned = only
	switch {
	case t.Resident != nil:
		return route{table: t, launches: OneLaunch}, OneLaunch
	case planned != 0:
	case !t.long() && n <= oneLaunchRows:
		planned = OneLaunch
	case float64(n)*t.missShare() <= hitsFirstMisses:
		planned = HitsFirst
	default:
		planned = SideBySide
	}
	r = route{table: t, launches: planned}
	if traced {
		r.launches = SideBySide
	}
	r.misses = ReadingOf(t.Rows, n, t.Share)
	return r, planned
}

// ReadingOf returns how the misses of a batch of n rows of a table are read if they are read beside the hits. share
// may be nil.
func ReadingOf(rows kernels.HostRows, n int64, share *transfer.ShareTable) transfer.Reading {
	return transfer.Reading{
		Ordered: share.Always() || rows.Mem.Size() >= orderedTier && n >= orderedRows,
		Units:   transfer.BeyondTranslation(rows),
		Share:   share,
	}
}

// decide returns the route of a batch of n rows of a table.
func (d *Device) decide(table int, n int64, traced bool) (r route, planned Launches) {
	r, planned = decide(d.Table(table), n, traced, d.set.Tuning.Launches)
	if d.readsAbsent(table) { // kernels of other routes must not read the index of such a tier
		r.launches, planned, r.absent = SideBySide, SideBySide, true
	}
	return r, planned
}

// setTable sets the view by which the batch reads its table. It may be newer than the view that the route was decided
// by. Host threads that share the misses must read the same memory.
func (r *route) setTable(t *TableView) { r.table, r.misses.Share = t, t.Share }

// scratchBytes returns the scratch memory of a batch of n rows, 0 for none.
func (r *route) scratchBytes(n int) int64 {
	switch {
	case r.tables != nil && !r.partials:
		return 0
	case r.tables != nil:
		return kernels.PooledPartialBytes(len(r.tables), func(i int) *reduce.Batch { return &r.tables[i].Pool })
	case r.part > 0:
		return r.scratchLayout().bytes
	case r.pool != nil && r.partials:
		return r.pool.PartialBytes()
	}
	switch {
	case r.launches == OneLaunch:
		return 0
	case r.absent:
		return int64(n) * partialBytes
	}
	return int64(n) * listBytes
}

// long says whether the table's rows are too long for one launch.
func (t *TableView) long() bool { return t.Rows.RowBytes >= longRow }

const longRow = abi.LongRow

// enqueue enqueues a batch of the given rows on stream s. If hits are served beside the misses, they are served on
// stream second.
func (r *route) enqueue(l *lane, s, second device.Stream, lookup kernels.Lookup, rows int64) error {
	switch {
	case r.absent:
		return r.enqueueRounds(l, s, second, lookup, rows)
	case r.launches == OneLaunch:
		l.serve = kernels.Serve{
			Lookup: lookup, Slabs: l.view.Slabs, Codec: r.table.Codec, Tier: r.table.Rows, Result: l.ending(1).Result, Batch: l.batch,
			Pool: r.pool, Absent: l.listed(), Resident: r.table.Resident,
		}
		if r.pool == nil || r.part > 0 {
			return s.Launch(&l.serve)
		}
		if l.scratch != nil {
			l.serve.Partials = l.scratch.Slice(0, r.pool.PartialBytes())
		}
		return s.Launch(l.serve.Pooled())
	case r.launches == HitsFirst:
		lookup.Found = l.scratch.Slice(0, rows*kernels.FoundBytes)
		l.find = kernels.Find{Lookup: lookup, Slabs: l.view.Slabs, Codec: r.table.Codec, Tier: r.table.Rows, End: l.ending(1), Absent: l.listed()}
		return s.Launch(&l.find)
	}
	return r.enqueueSideBySide(l, s, second, lookup, rows)
}

func (r *route) enqueueSideBySide(l *lane, s, second device.Stream, lookup kernels.Lookup, rows int64) error {
	n := rows * kernels.FoundBytes
	batch := transfer.Batch{
		Found: l.scratch.Slice(0, n), Ordered: l.scratch.Slice(n, 2*n), Counters: l.counters, Buckets: l.buckets, Out: lookup.Out,
		Reading: r.misses, End: l.ending(2), Counted: true, Absent: l.listed(),
	}
	l.lookup = lookup
	l.lookup.Found, l.lookup.Pages = batch.Found, batch.Pages(r.table.Rows)
	l.decode = kernels.Decode{
		Found: batch.Found, Counters: l.counters, Slabs: l.view.Slabs, Codec: r.table.Codec, Out: lookup.Out,
		RowBytes: r.table.Rows.RowBytes, Peers: l.view.Peers, Leave: 1, // a block of each multiprocessor, for reading misses
		End: batch.End,
	}
	if err := s.Launch(&l.lookup); err != nil {
		return err
	}
	l.mark(s, PointLookedUp)
	if err := l.plan.Enqueue(s, r.table.Rows, r.table.Codec, batch, l.fetchBegun); err != nil {
		return err
	}
	l.mark(s, PointFetched)
	return l.enqueueDecode(s, second)
}

// enqueueDecode enqueues the decoding of hits on stream second, beside the reading of misses, and makes stream s wait
// for it.
func (l *lane) enqueueDecode(s, second device.Stream) error {
	// Reading the misses takes longest, so decoding waits until the reading runs on every multiprocessor. If both
	// begin together, the reading gets only the multiprocessors that the decoder frees first. For 40,000 misses of 256
	// bytes on an H200 it then took 327 instead of 277 µs.
	if err := second.Wait(l.fetchBegun); err != nil {
		return err
	}
	l.mark(second, PointDecoding)
	if err := second.Launch(&l.decode); err != nil {
		return err
	}
	l.mark(second, PointDecoded)
	if err := second.Record(l.decoded); err != nil {
		return err
	}
	return s.Wait(l.decoded)
}
