package cache

import (
	"sync/atomic"

	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// Reason says why a row missed. Where several apply, the later one is counted.
type Reason = slab.Reason

// Reasons of misses.
const (
	Cold        = slab.Cold        // admission was never offered the row
	Rejected    = slab.Rejected    // admission was offered the row, and others were worth more
	Evicted     = slab.Evicted     // the row was cached and gave way to another
	Invalidated = slab.Invalidated // the caller withdrew the row
	Oversize    = slab.Oversize    // the row is larger than a slab
)

// Stats is what a cache holds and what it has done since New. Each Gather counts as a whole when it
// returns, each GatherDevice once it has finished.
type Stats struct {
	// BudgetBytes is the budget of all devices together. MetadataBytes are the hashmaps, the row bits and the
	// slabs' tail slack; PayloadBytes the slots of cached rows. MetadataBytes + PayloadBytes ≤ BudgetBytes.
	BudgetBytes, MetadataBytes, PayloadBytes int64
	// CodecBytes is the codec metadata of all tables, once; IndexBytes the packed host tiers' indices on all devices.
	// Both are device memory outside the budget.
	CodecBytes, IndexBytes int64
	// HostBytes is the host tiers' memory.
	HostBytes int64
	// StagingBytes and DeviceStagingBytes are the staging memory of misses that the host's processors help with, page-locked and
	// on the devices, outside the budget.
	StagingBytes, DeviceStagingBytes int64
	// Tables are the statistics of each table.
	Tables []TableStats
}

// TableStats is the part of one table.
type TableStats struct {
	Name string
	// Codec is the codec's name, "none" when all rows are raw.
	Codec string
	DType DType
	// Rows of the table, and how many of them are stored raw, and cached.
	Rows, RawRows, CachedRows int64
	RowBytes                  int
	// RawBytes and StoredBytes are the whole table's, as given and as stored.
	RawBytes, StoredBytes int64
	// Lookups = Hits + Misses. Duplicates within a batch count each.
	Gathers, Lookups, Hits, Misses int64
	// MissesByReason is indexed by Reason and sums to Misses.
	MissesByReason [slab.NumReasons]int64
	// HostBytesMoved is the stored bytes of the missed rows.
	HostBytesMoved int64
	// MissStrategy says, for each device, how misses are fetched from the host tier.
	MissStrategy []MissStrategy
}

// MissStrategy says how a device fetches a table's misses.
type MissStrategy = transfer.ShareStats

// Sub returns the difference of what was done between two Stats of one cache: s is the later one. What the cache holds
// is taken from s.
func (s Stats) Sub(earlier Stats) Stats {
	tables := make([]TableStats, len(s.Tables))
	for i, t := range s.Tables {
		e := earlier.Tables[i]
		t.Gathers -= e.Gathers
		t.Lookups -= e.Lookups
		t.Hits -= e.Hits
		t.Misses -= e.Misses
		t.HostBytesMoved -= e.HostBytesMoved
		for r := range t.MissesByReason {
			t.MissesByReason[r] -= e.MissesByReason[r]
		}
		tables[i] = t
	}
	s.Tables = tables
	return s
}

// Stats returns the statistics as of now. Gathers under way may be counted in one table and not yet in another; batches of
// GatherDevice count once they have finished.
func (c *Cache) Stats() (Stats, error) {
	if err := c.enter(); err != nil {
		return Stats{}, err
	}
	defer c.leave()
	s := Stats{BudgetBytes: c.opts.Budget * int64(len(c.devices))}
	for _, d := range c.devices {
		d.settleFinished()
		s.MetadataBytes += d.hashes.Size() + slab.TailSlack
		s.PayloadBytes += d.slots.Used()
		if d.sharer != nil {
			host, onDevice := d.sharer.StageBytes()
			s.StagingBytes += host
			s.DeviceStagingBytes += onDevice
		}
		for _, t := range d.tables {
			s.MetadataBytes += t.tier.Compressed.Size() + t.rejected.Size() + t.oversize.Size()
		}
	}
	for i, t := range c.tables {
		total := t.tier.Totals()
		ts := TableStats{
			Name: t.name, Codec: "none", DType: t.dtype,
			Rows: total.Rows, RawRows: total.RawRows, RowBytes: t.tier.RowBytes(), RawBytes: total.RawBytes, StoredBytes: total.StoredBytes,
		}
		if codec := t.tier.Codec(); codec != nil {
			ts.Codec = codec.Name()
			s.CodecBytes += codec.MetadataBytes()
		}
		t.counts.read(&ts)
		for _, d := range c.devices {
			ts.MissStrategy = append(ts.MissStrategy, d.tables[i].share.Stats())
		}
		s.IndexBytes += t.tier.IndexBytes() * int64(len(c.devices))
		s.HostBytes += t.tier.HostBytes()
		s.Tables = append(s.Tables, ts)
	}
	return s, nil
}

// tableCounts are a table's counters.
type tableCounts struct {
	cached        atomic.Int64
	gathers, hits atomic.Int64
	reasons       [slab.NumReasons]atomic.Int64
	hostBytes     atomic.Int64
}

func (c *tableCounts) add(batch *outcome) {
	c.gathers.Add(1)
	c.hits.Add(batch.hits)
	c.hostBytes.Add(batch.hostBytes)
	for r, n := range batch.reasons {
		c.reasons[r].Add(n)
	}
}

func (c *tableCounts) read(s *TableStats) {
	s.CachedRows = c.cached.Load()
	s.Gathers, s.Hits, s.HostBytesMoved = c.gathers.Load(), c.hits.Load(), c.hostBytes.Load()
	// Misses is the sum of its reasons, whatever is being counted at this moment.
	for r := range c.reasons {
		s.MissesByReason[r] = c.reasons[r].Load()
		s.Misses += s.MissesByReason[r]
	}
	s.Lookups = s.Hits + s.Misses
}
