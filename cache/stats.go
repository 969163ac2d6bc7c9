package cache

import (
	"fmt"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/change"
	"github.com/tensorcache/tensorcache/cache/internal/learn"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/slab"
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
	DType dtype.Type
	// Choice is how "auto" came to the codec, nil where the codec was named.
	Choice *registry.Choice
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
	// MissesByReason is indexed by slab.Reason and sums to Misses.
	MissesByReason [slab.NumReasons]int64
	// HostBytesMoved is the stored bytes of the missed rows.
	HostBytesMoved int64
	// MissStrategy says, for each device, how misses are fetched from the host tier.
	MissStrategy []MissStrategy
}

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

// MissStrategy says how a device fetches a table's misses from the host tier.
type MissStrategy struct {
	// Strategy is "zero-copy", "shared", or "zero-copy: sharing does not pay".
	Strategy string
	// Fraction is the fraction of a shared batch's misses that the host's processors gather, 0 to 1.
	Fraction float64
	// Shared and Alone are the numbers of batches with and without sharing. GaveUp is the number of shared batches in which the device
	// timed out waiting for the host.
	Shared, Alone, GaveUp int64
	// SharedNanos and AloneNanos are the mean nanoseconds a miss, 0 if not measured.
	SharedNanos, AloneNanos float64
}

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
	c.learner.DrainIfIdle()
	s := Stats{HostMemory: c.hostMemory(c.set.Tables), RestoredRows: c.restored, RestoreError: text(c.restoredErr)}
	w := c.writer.State()
	s.HoleBytes, s.AdmittedAge, s.OverlayBytes, s.OverlayRows = w.Holes, w.MeanAge, w.OverlayBytes, w.OverlayRows
	s.OverlayCapacity = c.store.Overlay.Slots.Capacity()
	s.PolicyError, s.RefreshError, s.ChangeError = text(c.learner.Failure()), text(w.CycleErr), text(w.Err)
	s.Changes = c.changes()
	s.Placement = c.placement(w.CopiedRows)
	maps := c.deviceStats(&s, w)
	c.tableStats(&s)
	if e := c.learner.Estimate(s.BudgetBytes, s.MetadataBytes-maps, s.PayloadBytes+s.FreeBytes); e != nil {
		s.Estimate = &Estimate{Accesses: e.Accesses, Keys: e.Keys, Rate: e.Rate}
		for i, times := range learn.EstimatedTimes {
			s.Estimate.Budgets = append(s.Estimate.Budgets, BudgetEstimate{times, e.HitRates[i]})
		}
	}
	return s, nil
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// deviceStats fills in what the devices hold and have done, and returns the bytes of their hashmaps.
func (c *Cache) deviceStats(s *Stats, w change.State) (maps int64) {
	load := c.store.Hot.State().Load
	for i, d := range c.set.Devices {
		one := DeviceStats{
			Node: c.store.Nodes.Devices[i], Load: load[i], BudgetBytes: min(c.store.Space.Budgets[i], w.Budget),
			PayloadBytes: w.Used[i], FreeBytes: w.Free[i], Lost: d.IsLost(),
		}
		one.Gathers, one.LocalHits, one.PeerHits, one.Misses = d.Counts.Totals()
		one.Lookups = one.LocalHits + one.PeerHits + one.Misses
		if one.Lost {
			one.Error = fmt.Sprint(d.Device.Err())
			s.Devices = append(s.Devices, one)
			continue
		}
		s.Devices = append(s.Devices, one)
		s.BudgetBytes += one.BudgetBytes
		s.PayloadBytes += one.PayloadBytes
		s.FreeBytes += one.FreeBytes
		d.SettleFinished()
		maps += d.Map.Size()
		s.MetadataBytes += d.Map.Size() + slab.TailSlack
		s.ScratchBytes += d.ScratchBytes()
		s.StagingBytes += d.StagingBytes()
		for table := range c.set.Tables {
			t := d.Table(table)
			s.MetadataBytes += t.Rows.Compressed.Size() + t.Rejected.Size() + t.Oversize.Size()
		}
	}
	return maps
}

// tableStats fills in what the tables hold, and what was done with them.
func (c *Cache) tableStats(s *Stats) {
	for i, t := range c.set.Tables {
		total, done := t.Tier.Totals(), t.Counts.Totals()
		one := TableStats{
			Name: t.Name, Codec: codecName(t), DType: t.DType, Choice: t.Tier.Choice(), TrainedRatio: t.Tier.TrainedRatio(),
			Rows: total.Rows, RawRows: total.RawRows, CachedRows: t.Counts.Cached.Load(), RowBytes: t.Tier.RowBytes(),
			RawBytes: total.RawBytes, StoredBytes: total.StoredBytes,
			Gathers: done.Gathers, Lookups: done.Hits + done.Misses, Hits: done.Hits, Misses: done.Misses,
			LocalHits: done.Hits - done.PeerHits, PeerHits: done.PeerHits, MissesByReason: done.Reasons, HostBytesMoved: done.HostBytes,
		}
		if codec := t.Tier.Codec(); codec != nil {
			s.CodecBytes += codec.MetadataBytes()
		}
		for _, d := range c.set.Devices {
			one.MissStrategy = append(one.MissStrategy, MissStrategy(d.Table(i).Share.Stats()))
		}
		s.IndexBytes += t.Tier.IndexBytes() * int64(len(c.set.Devices))
		s.HostBytes += t.Tier.HostBytes()
		s.Tables = append(s.Tables, one)
	}
}

// changes returns what was changed since New.
func (c *Cache) changes() Changes {
	n := &c.writer.Counts
	return Changes{
		Cycles: n.Cycles.Load(), AdmittedRows: n.Admitted.Load(), EvictedRows: n.Evicted.Load(), MovedRows: n.Moved.Load(),
		RefusedRows: n.Refused.Load(), RefreshedBytes: n.Bytes.Load(), CopiedRows: n.Copied.Load(), UpdatedRows: n.Updated.Load(),
		InvalidatedRows: n.Invalidated.Load(), UpdateWaits: n.Waits.Load(), HostBytesWritten: n.HostBytes.Load(),
		SampledAccesses: c.learner.Samples.Load(), LostAccesses: c.learner.Lost.Load(),
	}
}

// placement returns how rows are placed.
func (c *Cache) placement(copied int64) Placement {
	hot := c.store.Hot.State()
	p := Placement{
		HotBytes: min(c.store.Hot.Bytes.Load(), slices.Max(c.store.Space.Payload)), CopiedRows: copied, Why: hot.Why,
		RowNanos: hot.Plan.Nanos, PartitionNanos: hot.Plan.Partition, ReplicateNanos: hot.Plan.Replicate,
		Cliques: c.store.Topology.Load().Cliques, LostRows: c.writer.Counts.Lost.Load(),
	}
	return p
}

// hostMemory returns where the host tiers lie.
func (c *Cache) hostMemory(tables []*read.Table) HostMemory {
	h := HostMemory{Nodes: slices.Clone(c.store.Nodes.Tier), Why: c.store.Nodes.Why}
	var held []numa.Held
	for _, t := range tables {
		held = numa.Add(held, t.Tier.Nodes().Held)
	}
	for _, n := range held {
		h.Held = append(h.Held, NodeBytes(n))
	}
	return h
}

// Estimate says what the hit rate would be at other budgets, were the cache filled by LRU: about what it can expect, since
// policies that follow frequency hit more than that more often than not. It is made by package mrc from every access, since New,
// to a share of the keys, and is as good as the keys are many.
type Estimate struct {
	// Accesses are the lookups that it stands for; Keys are how many keys it keeps, of a share Rate of all.
	Accesses int64
	Keys     int
	Rate     float64
	// Budgets are the hit rates at half, once, twice and four times the budget.
	Budgets []BudgetEstimate
}

// BudgetEstimate is the hit rate, 0 to 1, at so many times the budget.
type BudgetEstimate struct{ Times, HitRate float64 }

// Placement says how rows are placed in the slabs, and why.
type Placement struct {
	// HotBytes are the slot bytes, from the best row of the ranking on, that lie in every slab; rows after them lie in one.
	// CopiedRows are how many rows have several slots now.
	HotBytes   int64 `json:"hot_bytes"`
	CopiedRows int64 `json:"copied_rows"`
	// Why says how that was decided.
	Why string `json:"why"`
	// RowNanos is what the cost model predicts that a looked-up row takes, in nanoseconds, PartitionNanos with no row copied,
	// and ReplicateNanos with all; 0 where the model was not asked.
	RowNanos       float64 `json:"predicted_row_ns"`
	PartitionNanos float64 `json:"predicted_partition_row_ns"`
	ReplicateNanos float64 `json:"predicted_replicate_row_ns"`
	// Cliques are the devices that read each other's slabs; each has a data store of its own.
	Cliques [][]int `json:"-"`
	// LostRows were in the slabs of lost devices only.
	LostRows int64 `json:"-"`
}

// NodeBytes is how many bytes of some memory lie on a memory node of the host.
type NodeBytes struct {
	Node  int   `json:"node"`
	Bytes int64 `json:"bytes"`
}

// HostMemory says on which memory nodes (NUMA) of the host the host tiers lie, and why.
type HostMemory struct {
	// Nodes are those that the host tiers' pages were to be laid on in turns; empty: wherever the system puts them.
	Nodes []int `json:"nodes,omitempty"`
	// Held is what was found there when the tables had been loaded, or packed anew: exactly, or of large ones by looking at 1,024
	// pages each. Empty where Nodes is, or where the system does not say.
	Held []NodeBytes `json:"held,omitempty"`
	// Why says how the nodes were chosen, or why none were; "" on machines that are not known to have several.
	Why string `json:"why"`
}
