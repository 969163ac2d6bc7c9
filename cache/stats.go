package cache

import (
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// Reason says why a row missed. Where several apply, the later one is counted.
type Reason = slab.Reason

// Reasons of misses.
const (
	Cold        = slab.Cold        // admission was never offered the row
	Rejected    = slab.Rejected    // admission was offered the row, and others were worth more; or it was withdrawn long ago
	Evicted     = slab.Evicted     // the row was cached and gave way to another
	Invalidated = slab.Invalidated // the caller withdrew the row
	Oversize    = slab.Oversize    // the row is larger than a slab
)

// Stats is what a cache holds and what it has done since New. Each Gather counts as a whole when it
// returns, each GatherDevice once it has finished.
type Stats struct {
	// BudgetBytes is the budget of all devices together, but those that are lost. MetadataBytes are the hashmaps, the row bits and the
	// slabs' tail slack; PayloadBytes the slots of cached rows. MetadataBytes + PayloadBytes ≤ BudgetBytes.
	BudgetBytes, MetadataBytes, PayloadBytes int64
	// CodecBytes is the codec metadata of all tables, once; IndexBytes the packed host tiers' indices on all devices.
	// Both are device memory outside the budget.
	CodecBytes, IndexBytes int64
	// ScratchBytes is device memory for batches under way, on all devices and outside the budget: at most 32 MiB a device
	// beside 32 bytes a row of the largest batch. StagingBytes is what Gathers into Go memory pass through on devices that
	// cannot address it, page-locked and the device's: at most 4 batches, of at most 64 MiB of output unless a row is longer.
	ScratchBytes, StagingBytes int64
	// HostBytes is the host tiers' memory, and HostMemory where it lies.
	HostBytes  int64
	HostMemory HostMemory
	// FreeBytes is what the slots within the budget have left, and HoleBytes the part of all free slab bytes that lies in pieces
	// too short for the longest row.
	FreeBytes, HoleBytes int64
	// OverlayBytes is what Update's rows on their way to the host tier take now, of OverlayCapacity; OverlayRows are how many.
	OverlayBytes, OverlayCapacity, OverlayRows int64
	// AdmittedAge is the mean time since the cached rows were admitted.
	AdmittedAge time.Duration
	// Changes is what was changed since New.
	Changes Changes
	// PolicyError is the policy's panic, after which nothing is admitted any more; RefreshError how the last cycle failed, ""
	// if it did not; ChangeError the fault of a device after which the cache cannot change any more, and serves on.
	PolicyError, RefreshError, ChangeError string
	// RestoredRows are those that New admitted from Options.Restore, and RestoreError is why there are none, "" if nothing
	// was wrong.
	RestoredRows int64
	RestoreError string
	// Estimate is what the hit rate would be at other budgets; nil without RefreshOptions.Keys, and until samples were read.
	Estimate *Estimate
	// Tables are the statistics of each table.
	Tables []TableStats
	// Devices are the statistics of each device, and of its slab.
	Devices []DeviceStats
	// Placement is which rows lie in which slabs.
	Placement Placement
}

// Changes counts what was changed in a cache that serves.
type Changes struct {
	// Cycles of refreshing, and the rows that they admitted, took slots from, moved to make free space whole, and could not
	// admit because the hashmap was full. RefreshedBytes is what they wrote to slabs.
	Cycles, AdmittedRows, EvictedRows, MovedRows, RefusedRows, RefreshedBytes int64
	// CopiedRows were cached already and got slots in further slabs.
	CopiedRows int64
	// UpdatedRows and InvalidatedRows are Update's and Invalidate's; UpdateWaits how often an Update waited for room.
	// HostBytesWritten is what updates have written to the host tier so far.
	UpdatedRows, InvalidatedRows, UpdateWaits, HostBytesWritten int64
	// SampledAccesses were read from the sample rings, LostAccesses overwritten there before that.
	SampledAccesses, LostAccesses int64
}

// TableStats is the part of one table.
type TableStats struct {
	Name string
	// Codec is the codec's name, "none" when all rows are raw.
	Codec string
	DType DType
	// Choice is how "auto" came to the codec, nil where the codec was named.
	Choice *CodecChoice
	// TrainedRatio is RawBytes ÷ StoredBytes of the rows that the table was loaded with, by a sample of which the codec was
	// trained. Where Update has written rows of another kind, RawBytes ÷ StoredBytes has become less than that.
	TrainedRatio float64
	// Rows of the table, and how many of them are stored raw, and cached.
	Rows, RawRows, CachedRows int64
	RowBytes                  int
	// RawBytes and StoredBytes are the whole table's, as given and as stored.
	RawBytes, StoredBytes int64
	// Lookups = Hits + Misses. Duplicates within a batch count each.
	Gathers, Lookups, Hits, Misses int64
	// Hits = LocalHits + PeerHits. PeerHits were read from the slab of another device than the one that served the batch;
	// LocalHits from its own, or from host memory where the row was just updated. Misses were read from the host tier.
	LocalHits, PeerHits int64
	// MissesByReason is indexed by Reason and sums to Misses.
	MissesByReason [slab.NumReasons]int64
	// HostBytesMoved is the stored bytes of the missed rows.
	HostBytesMoved int64
	// MissStrategy says, for each device, how misses are fetched from the host tier.
	MissStrategy []MissStrategy
}

// CodecChoice is why a codec was chosen: the candidates, and what was predicted of them.
type CodecChoice = registry.Choice

// DeviceStats is the part of one device: what its slab holds, and what the batches did that ran there, whichever slab they
// read.
type DeviceStats struct {
	// BudgetBytes, PayloadBytes and FreeBytes are the device's part of those of Stats.
	BudgetBytes, PayloadBytes, FreeBytes int64
	// Node is the memory node (NUMA) of the host that the device is attached to, UnknownNode where the system does not say.
	Node int
	// Load is the share of all hits that the slab is expected to serve, 0 to 1, by how often the policy says that its rows are
	// looked up; 0 for all where it does not say.
	Load float64
	// Lost says that the device has failed for good, and Error how: its slab's rows are withdrawn, and its batches fail.
	Lost  bool
	Error string
	// Lookups = LocalHits + PeerHits + Misses, as in TableStats.
	Gathers, Lookups, LocalHits, PeerHits, Misses int64
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
		t.LocalHits -= e.LocalHits
		t.PeerHits -= e.PeerHits
		t.Misses -= e.Misses
		t.HostBytesMoved -= e.HostBytesMoved
		for r := range t.MissesByReason {
			t.MissesByReason[r] -= e.MissesByReason[r]
		}
		tables[i] = t
	}
	s.Tables = tables
	devices := make([]DeviceStats, len(s.Devices))
	for i, d := range s.Devices {
		e := earlier.Devices[i]
		d.Gathers -= e.Gathers
		d.Lookups -= e.Lookups
		d.LocalHits -= e.LocalHits
		d.PeerHits -= e.PeerHits
		d.Misses -= e.Misses
		devices[i] = d
	}
	s.Devices = devices
	now, then := &s.Changes, &earlier.Changes
	s.Changes = Changes{
		now.Cycles - then.Cycles, now.AdmittedRows - then.AdmittedRows, now.EvictedRows - then.EvictedRows,
		now.MovedRows - then.MovedRows, now.RefusedRows - then.RefusedRows, now.RefreshedBytes - then.RefreshedBytes,
		now.CopiedRows - then.CopiedRows, now.UpdatedRows - then.UpdatedRows, now.InvalidatedRows - then.InvalidatedRows, now.UpdateWaits - then.UpdateWaits,
		now.HostBytesWritten - then.HostBytesWritten,
		now.SampledAccesses - then.SampledAccesses, now.LostAccesses - then.LostAccesses,
	}
	return s
}

// Stats returns the statistics as of now, the samples of finished Gathers included: it may have the policy and the callbacks of
// Options called. Gathers under way may be counted in one table and not yet in another; batches of
// GatherDevice count once they have finished.
func (c *Cache) Stats() (Stats, error) {
	if err := c.enter(); err != nil {
		return Stats{}, err
	}
	defer c.leave()
	c.learner.drainIfIdle()
	s := Stats{}
	c.changes.read(&s)
	c.placementStats(&s)
	for i := range s.Devices {
		if !s.Devices[i].Lost {
			s.BudgetBytes += s.Devices[i].BudgetBytes
		}
	}
	hashes := int64(0)
	for _, d := range c.devices {
		if d.isLost() {
			continue
		}
		d.settleFinished()
		s.MetadataBytes += d.hashes.Size() + slab.TailSlack
		hashes += d.hashes.Size()
		d.lanes.Lock()
		s.ScratchBytes += d.lanes.scratch.bytes + int64(len(d.lanes.all))*laneBytes
		d.lanes.Unlock()
		s.StagingBytes += d.staged.Load()
		if d.sharer != nil {
			host, onDevice := d.sharer.StageBytes()
			s.StagingBytes += host + onDevice
		}
		for i := range d.tables {
			t := d.table(i)
			s.MetadataBytes += t.tier.Compressed.Size() + t.rejected.Size() + t.oversize.Size()
		}
	}
	s.HostMemory = c.hostMemory()
	for i, t := range c.tables {
		total := t.tier.Totals()
		ts := TableStats{
			Name: t.name, Codec: "none", DType: t.dtype, Choice: t.tier.Choice(), TrainedRatio: t.tier.TrainedRatio(),
			Rows: total.Rows, RawRows: total.RawRows, RowBytes: t.tier.RowBytes(), RawBytes: total.RawBytes, StoredBytes: total.StoredBytes,
		}
		if codec := t.tier.Codec(); codec != nil {
			ts.Codec = codec.Name()
			s.CodecBytes += codec.MetadataBytes()
		}
		t.counts.read(&ts)
		for _, d := range c.devices {
			ts.MissStrategy = append(ts.MissStrategy, d.table(i).share.Stats())
		}
		s.IndexBytes += t.tier.IndexBytes() * int64(len(c.devices))
		s.HostBytes += t.tier.HostBytes()
		s.Tables = append(s.Tables, ts)
	}
	s.Estimate = c.learner.estimator.estimate(s.BudgetBytes, s.MetadataBytes-hashes, s.PayloadBytes+s.FreeBytes)
	return s, nil
}

// read fills in what the writing side knows.
func (ch *changes) read(s *Stats) {
	c := ch.cache
	ch.mu.Lock()
	defer ch.mu.Unlock()
	longest := c.longestSlot()
	for _, d := range c.devices {
		one := DeviceStats{Node: c.nodes.devices[d.index]}
		d.counts.read(&one)
		if d.isLost() {
			s.Devices = append(s.Devices, one)
			continue
		}
		one.PayloadBytes, one.FreeBytes = d.used(), max(0, d.limit-d.used())
		s.Devices = append(s.Devices, one)
		s.PayloadBytes += one.PayloadBytes
		s.FreeBytes += one.FreeBytes
		s.HoleBytes += d.slots.HoleBytes(longest)
	}
	s.OverlayBytes, s.OverlayCapacity, s.OverlayRows = c.overlay.slots.Used(), c.overlay.slots.Capacity(), int64(len(ch.mu.fresh))
	rows := int64(0)
	for _, t := range c.tables {
		rows += t.counts.cached.Load()
	}
	if rows > 0 {
		filled := rows*int64(ch.now()) - ch.mu.bornSum
		s.AdmittedAge = time.Duration(max(0, filled/rows)) * (100 * time.Millisecond)
	}
	s.Changes = ch.counts.read()
	s.Changes.SampledAccesses, s.Changes.LostAccesses = c.learner.samples.Load(), c.learner.lost.Load()
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	c.refresher.last.Lock()
	defer c.refresher.last.Unlock()
	s.RestoredRows, s.RestoreError = c.snapshots.restored, text(c.snapshots.err)
	s.PolicyError, s.RefreshError, s.ChangeError = text(c.learner.failure()), text(c.refresher.last.err), text(ch.mu.err)
}

// tableCounts are a table's counters.
type tableCounts struct {
	cached        atomic.Int64
	gathers, hits atomic.Int64
	peers         atomic.Int64 // of the hits
	reasons       [slab.NumReasons]atomic.Int64
	hostBytes     atomic.Int64
}

func (c *tableCounts) add(batch *outcome) {
	c.gathers.Add(1)
	c.hits.Add(batch.hits)
	if batch.peers != 0 {
		c.peers.Add(batch.peers)
	}
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
	s.PeerHits = min(c.peers.Load(), s.Hits)
	s.LocalHits = s.Hits - s.PeerHits
}

// deviceCounts are the counters of the batches that ran on a device.
type deviceCounts struct{ gathers, local, peers, misses atomic.Int64 }

func (c *deviceCounts) add(batch *outcome) {
	c.gathers.Add(1)
	c.local.Add(batch.hits - batch.peers)
	if batch.peers != 0 {
		c.peers.Add(batch.peers)
	}
	c.misses.Add(batch.misses)
}

func (c *deviceCounts) read(s *DeviceStats) {
	s.Gathers, s.LocalHits, s.PeerHits, s.Misses = c.gathers.Load(), c.local.Load(), c.peers.Load(), c.misses.Load()
	s.Lookups = s.LocalHits + s.PeerHits + s.Misses
}
