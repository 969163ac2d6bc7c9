package cache

import (
	"context"
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/pages/live"
	"github.com/tensorcache/tensorcache/transfer"
)

// inPages is a table whose rows lie in pages. Its host tier holds those that batches use most.
type inPages struct {
	plainKind
	table   *live.Table
	codec   codec.Codec // nil if all rows are raw
	mean    int         // stored length of a row
	finding int64       // host memory that finding rows takes
	buffers int64       // most host memory that buffers of reads take
	logDir  string      // folder of the log of updates; "": it is in memory
	durable bool        // the log is
}

// pagesError is an error of the log of a table of pages, or of its generations, as it was given: it wraps ErrCold beside what it wraps.
type pagesError struct{ error }

func (e pagesError) Unwrap() []error { return []error{e.error, ErrCold} }

func (p inPages) codecName() Codec { return Codec(p.table.Manifest().Codec) }

func (p inPages) check(t *Table) error {
	if t.codec != "" && t.codec != CodecAuto && t.codec != p.codecName() {
		return fmt.Errorf("cache: table %s: codec (%s) must be %s, with which its pages were packed", t.name, t.codec, p.codecName())
	}
	if t.capacity > int64(t.Rows()) {
		return fmt.Errorf("cache: table %s: capacity (%d) must not exceed the %d rows of its pages", t.name, t.capacity, t.Rows())
	}
	return nil
}

func (inPages) checkAs(t *Table, of dtype.Type) error {
	if of != t.dtype {
		return fmt.Errorf("cache: table %s: element type (%v) must be the %v that its pages were packed as", t.name, of, t.dtype)
	}
	return nil
}

func (inPages) checkResident(t *Table) error {
	return fmt.Errorf("cache: table %s: must not be of pages to be resident", t.name)
}

// load makes the host tier of a table of pages, empty.
func (p inPages) load(_ context.Context, c *Cache, l loading) (*read.Table, error) {
	t := l.table
	log := cold.NewMemoryLog(c.opts.Host.Overlay)
	if p.logDir != "" {
		var err error
		log, err = live.OpenLog(p.table, live.LogOptions{
			Dir: p.logDir, Durable: p.durable, Logger: c.opts.Telemetry.Logger, MergeBytes: c.tuning.mergeBytes, MergeWait: c.tuning.mergeWait,
			OpenError: func(err error) error { return pagesError{err} },
		})
		if err != nil {
			return nil, pagesError{err}
		}
	}
	below := cold.New(p.table, cold.Options{Name: t.name, RowBytes: t.RowBytes(), Codec: p.codec, Timeout: c.opts.Host.ColdTimeout, Log: log, PageOf: p.table.PageOf, Logger: c.watch.Log})
	tier, err := transfer.OpenPart(c.set.Devices[0].Device, transfer.PartOptions{
		Rows: int64(t.Rows()), RowBytes: t.RowBytes(), Codec: p.codec, Mean: p.mean, Memory: l.memory - p.finding, Nodes: c.store.Nodes.Tier, Shared: c.set.Shared,
	})
	if err != nil {
		return nil, errors.Join(err, below.Close())
	}
	below.SetAhead(tier.RingRows(), max(tier.RingBytes(), minLanding), tier.AskedFor)
	return &read.Table{Name: t.name, DType: t.dtype, Tier: tier, Cold: below, Absent: below}, nil
}

func (inPages) merge(ctx context.Context, t *read.Table) error {
	log, ok := t.Cold.Log().(*live.Log)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.Cold.Life(), func() { cancel(ErrClosed) })()
	return log.Shorten(ctx, false)
}

func (inPages) end(t *read.Table) { t.Cold.End() }

// close closes the log and, unless New has failed, the pages.
func (p inPages) close(t *read.Table, failed bool) error {
	t.Cold.End()
	err := t.Cold.Close()
	if !failed {
		err = errors.Join(err, p.table.Close())
	}
	return err
}

// minLanding is how many bytes of rows may wait for a ring that is shorter.
const minLanding = 8 << 20

// Prefetch begins to read the rows that are in no slab and not in the host tier, and returns without waiting for them: batches that ask for
// them soon find them in the host tier. Up to an eighth of Options.Host.Memory is for rows read so. Rows that are there already cost a lookup.
// Rows that cannot be read are left to the batches that need them, whose errors say why. For row numbers outside the table the error wraps ErrRows.
func (c *Cache) Prefetch(table int, rows []int64) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	if _, err := c.tableFor(table, rows, false); err != nil {
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
	// HeldRows are rows whose newest version is in the log, and HeldBytes is the length of its files, or of its rows in memory.
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

// hostStats returns the statistics of a host tier.
func hostStats(t *read.Table) (s TierStats) {
	s.HostRows, s.HostBytes, s.HostCapacity = t.Tier.Held()
	s.HostMemory = t.Tier.HostBytes() + t.Tier.IndexBytes()
	return s
}

func (p inPages) stats(t *read.Table, done read.TableTotals, to *TableStats, _ *Stats) {
	s, n, log := &to.Tiers, &t.Cold.Counts, t.Cold.Log()
	s.Paged, s.Restored, s.HostMemory = true, p.table.Restored(), t.Tier.MemoryBytes()+p.finding
	s.AbsentRows, s.FailedRows = done.Absent, done.Failed
	s.RowsRead, s.PagesRead, s.BytesRead, s.Reads, s.ReadNanos = n.Rows.Load(), n.Pages.Load(), n.Bytes.Load(), n.Reads.Load(), n.Nanos.Load()
	s.LogRows, s.LogReads, s.LogNanos, s.FlightRows = n.FromLog.Load(), n.LogReads.Load(), n.LogNanos.Load(), n.FromFlight.Load()
	for _, one := range t.Cold.Stores() {
		of := StoreStats{Name: one.Name, Reads: one.Reads, PagesRead: one.Pages, BytesRead: one.Bytes, FailedPages: one.Failed, Nanos: int64(one.Took)}
		of.Fault = text(one.Fault)
		s.Stores = append(s.Stores, of)
	}
	s.PrefetchedRows, s.UsedRows, s.UnusedRows, s.DroppedRows = n.Prefetched.Load(), t.Tier.UsedAhead(), n.Unused.Load(), n.Dropped.Load()
	s.PromotedRows, s.DemotedRows = n.Promoted.Load(), n.Demoted.Load()
	s.UpdateBytes, s.UpdateBytesWritten = log.Bytes()
	s.HeldRows, s.HeldBytes = log.Held()
	s.FailedMerges, s.MergeWaiting = log.Merges()
}

// heapShare: the Go heap, where buffers of reads lie, keeps about as much memory free as is in use.
const heapShare = 2

func (p inPages) taken(t *read.Table, s *TableStats) int64 {
	return s.Tiers.HostMemory - t.Tier.HostBytes() + heapShare*t.Tier.ListBytes() + p.readBuffers(t)
}

func (p inPages) readBuffers(*read.Table) int64 { return heapShare * p.buffers }
