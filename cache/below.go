package cache

import (
	"errors"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/transfer"
)

// below is what has all rows of a table, in the form in which tiers store them, and what is known of them.
type below struct {
	source  cold.Source
	name    Codec       // of codec
	codec   codec.Codec // nil if all rows are raw
	mean    int         // stored length of a row
	memory  int64       // host memory that finding rows takes
	buffers int64       // most host memory that buffers of reads take
	pageOf  func(row int64) uint32
	// The log of updates is in the folder logDir; "": in memory.
	paged   *paged
	logDir  string
	durable bool
	close   func() error
}

// belowError is an error of the log of a table of pages, or of its generations, as it was given: it wraps ErrCold beside what it wraps.
type belowError struct{ error }

func (e belowError) Unwrap() []error { return []error{e.error, ErrCold} }

// fromBelow returns a table whose rows are read from below the host tier when they are needed.
func fromBelow(name string, of dtype.Type, rows int64, rowBytes int, b below) (Table, error) {
	t, err := FromReader(name, of, rows, rowBytes, func(int64, []byte) error { return errors.ErrUnsupported }, nil)
	if err != nil {
		return Table{}, err
	}
	t.below, t.used = &b, new(atomic.Bool)
	t.close = func() error {
		if t.used.Load() { // by a cache, which closes it
			return nil
		}
		return b.close()
	}
	return t, nil
}

// loadBelow makes the host tier of a table of pages, empty, of at most so many bytes.
func (c *Cache) loadBelow(t Table, memory int64) (*read.Table, error) {
	b := t.below
	c.below = append(c.below, b.close)
	log := cold.NewMemoryLog(c.opts.Host.Overlay)
	if b.logDir != "" {
		var err error
		if log, err = openUpdates(c.tuning, b.paged, b.logDir, b.durable, c.opts.Telemetry.Logger); err != nil {
			return nil, belowError{err}
		}
	}
	below := cold.New(b.source, cold.Options{Name: t.name, RowBytes: t.RowBytes(), Codec: b.codec, Timeout: c.opts.Host.ColdTimeout, Log: log, PageOf: b.pageOf, Memory: b.memory, Buffers: b.buffers, Restored: b.paged.restored, Logger: c.watch.Log})
	tier, err := transfer.OpenPart(c.set.Devices[0].Device, transfer.PartOptions{
		Rows: int64(t.Rows()), RowBytes: t.RowBytes(), Codec: b.codec, Mean: b.mean, Memory: memory - b.memory, Nodes: c.store.Nodes.Tier, Shared: c.set.Shared,
	})
	if err != nil {
		return nil, errors.Join(err, below.Close())
	}
	below.SetAhead(tier.RingRows(), max(tier.RingBytes(), minLanding), tier.AskedFor)
	return &read.Table{Name: t.name, DType: t.dtype, Tier: tier, Cold: below, Absent: below}, nil
}

// minLanding is how many bytes of rows may wait for a ring that is shorter.
const minLanding = 8 << 20

// Prefetch begins to read those of rows that are in no slab and not in the host tier, and returns without waiting for them: batches that ask for
// them soon find them in the host tier. Up to an eighth of Options.Host.Memory is for rows read so. Rows that are there already cost a lookup.
// Rows that cannot be read are left to the batches that need them, whose errors say why. For row numbers outside the table the error wraps ErrRows.
func (c *Cache) Prefetch(table int, rows []int64) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	t, err := c.tableFor(table, rows, false)
	if err != nil || t.Absent == nil {
		return err
	}
	return c.owner.prefetch(table, rows)
}

// TierStats say what of a table lies where, and what was read from below the host tier.
type TierStats struct {
	// Paged says that the table is of FromPages: the host tier of others holds all rows.
	Paged bool
	// HostRows and HostBytes are the rows in the host tier and the bytes of their slots, of HostCapacity bytes. HostMemory is all of the tier's host
	// memory, index included.
	HostRows                            int64 `kind:"level" metric:"tensorcache.host.rows" unit:"{row}" help:"Rows in the host tier."`
	HostBytes, HostCapacity, HostMemory int64
	// AbsentRows is the part of Misses that the host tier did not hold. FailedRows of them could not be read.
	AbsentRows int64 `kind:"counter"`
	FailedRows int64 `kind:"counter" metric:"tensorcache.cold.misses" with:"tensorcache.outcome=failed"`
	// RowsRead, PagesRead and BytesRead count what was read from below, for batches, cycles and Prefetch. Reads is the number of calls, which took
	// ReadNanos together. LogRows are rows that were found in the log of updates, by LogReads calls that took LogNanos for that, and FlightRows those that a batch took from a
	// prefetch under way.
	RowsRead   int64 `kind:"counter" metric:"tensorcache.cold.rows" with:"tensorcache.tier=pages" unit:"{row}" help:"Rows read from below the host tier: from pages, from the log of updates, or from a prefetch under way."`
	PagesRead  int64 `kind:"counter"`
	BytesRead  int64 `kind:"counter"`
	Reads      int64 `kind:"counter" metric:"tensorcache.cold.reads" unit:"{read}" help:"Reads from below the host tier: each of one batch, one part of a cycle or one prefetch."`
	ReadNanos  int64 `kind:"counter"`
	LogRows    int64 `kind:"counter" metric:"tensorcache.cold.rows" with:"tensorcache.tier=log"`
	LogReads   int64 `kind:"counter"`
	LogNanos   int64 `kind:"counter"`
	FlightRows int64 `kind:"counter" metric:"tensorcache.cold.rows" with:"tensorcache.tier=prefetch"`
	// Restored says that the manifest of the table's directory was missing or damaged when it was opened, and was restored from the store behind it.
	Restored bool
	// Stores says what of that came from each store, in the order in which they were first asked.
	Stores []StoreStats
	// PrefetchedRows were read by Prefetch. UsedRows of them were in the host tier when a batch asked for them, and UnusedRows left it unread.
	// DroppedRows were read and not kept, because the host tier took rows up more slowly than they were read, or not read, because as many were being
	// read already as it has room for.
	PrefetchedRows int64 `kind:"counter" metric:"tensorcache.prefetch.rows" with:"tensorcache.outcome=read" unit:"{row}" help:"Rows that Prefetch has read; of them those that a batch used, those that left the host tier unused, and those dropped for want of room."`
	UsedRows       int64 `kind:"counter" metric:"tensorcache.prefetch.rows" with:"tensorcache.outcome=used"`
	UnusedRows     int64 `kind:"counter" metric:"tensorcache.prefetch.rows" with:"tensorcache.outcome=unused"`
	DroppedRows    int64 `kind:"counter" metric:"tensorcache.prefetch.rows" with:"tensorcache.outcome=dropped"`
	// PromotedRows and DemotedRows were moved into and out of the host tier by refresh cycles and New.
	PromotedRows int64 `kind:"counter" metric:"tensorcache.host.moves" with:"tensorcache.io.direction=in" unit:"{row}" help:"Rows that cycles have moved in to the host tier and out of it."`
	DemotedRows  int64 `kind:"counter" metric:"tensorcache.host.moves" with:"tensorcache.io.direction=out"`
	// UpdateBytes is the stored bytes of updated rows, and UpdateBytesWritten what was written for them to the log and to pages.
	UpdateBytes        int64 `kind:"counter"`
	UpdateBytesWritten int64 `kind:"counter"`
	// HeldRows are rows of which the log has the newest version, and HeldBytes is the length of its files, or of its rows in memory.
	HeldRows, HeldBytes int64
	// FailedMerges is how often the log of updates could not be merged into the pages, or compacted: it grows until that succeeds. MergeWaiting says that a merge
	// waits for the store now, such as a cluster with slots on their way between masters.
	FailedMerges int64 `kind:"counter"`
	MergeWaiting bool
}

// StoreStats say what was read from one store of a table of pages, such as its files or a cluster. Reads is the number of calls that asked it for pages, which it took Nanos
// together to answer. FailedPages were not delivered, or were damaged: Fault is why the latest of them was not, with the page's number.
type StoreStats struct {
	Name        string
	Reads       int64 `kind:"counter"`
	PagesRead   int64 `kind:"counter" metric:"tensorcache.cold.pages" unit:"{page}" help:"Pages read, by store: files DIR, or cluster NODES."`
	BytesRead   int64 `kind:"counter" metric:"tensorcache.cold.bytes" unit:"By" help:"Bytes of the pages read, by store."`
	FailedPages int64 `kind:"counter" metric:"tensorcache.cold.failed_pages" unit:"{page}" help:"Pages that a store did not deliver, or had damaged: another store has been asked for them."`
	Nanos       int64 `kind:"counter"`
	Fault       string
}

// tierStats returns the statistics of a table's tiers.
func tierStats(t *read.Table) (s TierStats) {
	s.HostRows, s.HostBytes, s.HostCapacity = t.Tier.Held()
	s.HostMemory = t.Tier.HostBytes() + t.Tier.IndexBytes()
	if t.Cold == nil {
		return s
	}
	s.Restored = t.Cold.Restored()
	s.Paged, s.HostMemory = true, t.Tier.MemoryBytes()+t.Cold.MemoryBytes()
	n := &t.Cold.Counts
	done := t.Counts.Totals()
	s.AbsentRows, s.FailedRows = done.Absent, done.Failed
	s.RowsRead, s.PagesRead, s.BytesRead, s.Reads, s.ReadNanos = n.Rows.Load(), n.Pages.Load(), n.Bytes.Load(), n.Reads.Load(), n.Nanos.Load()
	s.LogRows, s.LogReads, s.LogNanos, s.FlightRows = n.FromLog.Load(), n.LogReads.Load(), n.LogNanos.Load(), n.FromFlight.Load()
	for _, one := range t.Cold.Stores() {
		of := StoreStats{Name: one.Name, Reads: one.Reads, PagesRead: one.Pages, BytesRead: one.Bytes, FailedPages: one.Failed, Nanos: int64(one.Took)}
		if one.Fault != nil {
			of.Fault = one.Fault.Error()
		}
		s.Stores = append(s.Stores, of)
	}
	s.PrefetchedRows, s.UsedRows, s.UnusedRows, s.DroppedRows = n.Prefetched.Load(), t.Tier.UsedAhead(), n.Unused.Load(), n.Dropped.Load()
	s.PromotedRows, s.DemotedRows = n.Promoted.Load(), n.Demoted.Load()
	s.UpdateBytes, s.UpdateBytesWritten = t.Cold.Log().Bytes()
	s.HeldRows, s.HeldBytes = t.Cold.Log().Held()
	s.FailedMerges, s.MergeWaiting = t.Cold.Log().Merges()
	return s
}

// endCold makes reads from below the host tiers return.
func (c *Cache) endCold() {
	if c.set == nil {
		return
	}
	for _, t := range c.set.Tables {
		if t.Cold != nil {
			t.Cold.End()
		}
	}
}

// closeCold closes what has the rows below the host tiers, once nothing reads them. If New has failed, the pages stay open: they are the caller's again.
func (c *Cache) closeCold(failed bool) error {
	var errs []error
	for _, t := range c.set.Tables {
		if t.Cold != nil {
			t.Cold.End()
			errs = append(errs, t.Cold.Close())
		}
	}
	if !failed {
		for _, close := range c.below {
			errs = append(errs, close())
		}
	}
	c.below = nil
	return errors.Join(errs...)
}
