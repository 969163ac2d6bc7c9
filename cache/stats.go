package cache

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/change"
	"github.com/tensorcache/tensorcache/cache/internal/learn"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/metrics"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/slab"
)

// Stats has the content of a cache and counters since New. A Gather is counted when it returns, a batch of Enqueue once it has
// finished. Tags say which fields are counters and metrics: docs/design.md, "Telemetry".
type Stats struct {
	// BudgetBytes is the sum of the budgets of all devices that are not lost. MetadataBytes is the memory of the hashmaps, the row bits
	// and the slabs' tail slack. PayloadBytes is the memory of the slots of cached rows, and ResidentBytes that of resident tables: slots, words, and
	// overflow places on devices. MetadataBytes + PayloadBytes + ResidentBytes ≤ BudgetBytes.
	BudgetBytes                 int64 `kind:"level" metric:"tensorcache.budget.limit" unit:"By" help:"Bytes that slabs and their metadata may take, on all devices together."`
	MetadataBytes               int64 `kind:"level" metric:"tensorcache.metadata.usage" with:"tensorcache.metadata.kind=map" unit:"By" help:"Bytes of device memory that say where rows are and how to decode them: the map, row bits and slack, of the budget; codec and index beside it."`
	PayloadBytes, ResidentBytes int64
	// CodecBytes is the codec metadata of all tables on one device. IndexBytes is the memory of the packed host tiers' indices on all
	// devices. Both are device memory outside the budget.
	CodecBytes int64 `kind:"level" metric:"tensorcache.metadata.usage" with:"tensorcache.metadata.kind=codec"`
	IndexBytes int64 `kind:"level" metric:"tensorcache.metadata.usage" with:"tensorcache.metadata.kind=index"`
	// ScratchBytes is device memory for batches under way, on all devices and outside the budget: per device at most 32 MiB and 32
	// bytes for each row of the largest batch. StagingBytes is page-locked and device memory through which batches for Go memory pass
	// if the device cannot address Go memory: at most 4 batches at a time, with 64 MiB of output each, or one row if it is longer.
	ScratchBytes int64 `kind:"level" metric:"tensorcache.scratch.usage" unit:"By" help:"Bytes of device memory for batches under way."`
	StagingBytes int64 `kind:"level" metric:"tensorcache.staging.usage" unit:"By" help:"Bytes that Gathers into Go memory and shared misses pass through."`
	// HostBytes is the memory of the host tiers, and of the overflow places of resident tables there. HostMemory has the memory nodes where it lies.
	HostBytes  int64 `kind:"level" metric:"tensorcache.host.usage" unit:"By" help:"Bytes of the host tiers."`
	HostMemory HostMemory
	// HostTakenBytes is about how much host memory the cache takes in all: the host tiers with their indexes and what else they have for each row, the policy
	// if it is an admission.Sizer, the overlay, the copy of the hashmap, the row bits, the longest buffers that reads of pages get, and the page-locked part of StagingBytes;
	// on the host backend also what is device memory elsewhere.
	HostTakenBytes int64
	// LoadPeakBytes is how much more of the process's memory was in physical memory at a time until New returned than when it was called.
	// It includes page-locked memory, and the device memory of the host backend. It is too high if the process had more before New, and 0
	// if the system does not report it.
	LoadPeakBytes int64
	// FreeBytes is the slab memory within the budget that no slot takes. HoleBytes is the part of all free slab memory that lies in
	// pieces too short for the longest row.
	FreeBytes, HoleBytes int64
	// UnallocatedBytes is the part of BudgetBytes that slabs were not made for, because all rows fit in less.
	UnallocatedBytes int64
	// OverlayBytes is the part of the overlay's OverlayCapacity bytes in use. OverlayRows is the number of rows in the overlay.
	OverlayBytes                 int64 `kind:"level" metric:"tensorcache.overlay.usage" unit:"By" help:"Bytes of updated rows on their way to the host tier."`
	OverlayCapacity, OverlayRows int64
	// AdmittedAge is the mean time since the cached rows were admitted.
	AdmittedAge time.Duration `kind:"gauge" metric:"tensorcache.rows.age" unit:"s" help:"Mean time since the cached rows were admitted."`
	// Changes counts the changes since New.
	Changes Changes
	// PolicyError is the panic of the policy, after which no row is admitted any more. RefreshError is the error of the last cycle.
	// ChangeError is the error of a device, or the panic of a change, after which the cache serves on but cannot be changed any more: every change returns
	// it. Each is "" if there is none.
	PolicyError, RefreshError, ChangeError string
	// RestoredRows is the number of rows that New admitted from AdmissionOptions.Restore. RestoreError is the reason why there are none,
	// or "".
	RestoredRows int64
	RestoreError string
	// Estimate is the estimated hit rate at other budgets. It is nil without RefreshOptions.Keys, and until one of the keys that it follows has been looked up.
	Estimate *Estimate
	// Tables are the statistics of each table.
	Tables []TableStats
	// Devices are the statistics of each device, and of its slab.
	Devices []DeviceStats
	// Placement says how rows are placed in the slabs.
	Placement Placement
	// Clients are the processes that are attached to the cache. The counters of Tables and Devices include theirs, and those of clients that
	// have left or were killed.
	Clients []ClientStats
	// Machine has the owner's statistics, if the cache is attached. Then the counters of Tables and Devices, ScratchBytes and StagingBytes are
	// those of this process, and all else is what the owner says. Without an owner, Machine is what it said last, and OwnerError the reason; it
	// is "" otherwise.
	Machine    *Stats
	OwnerError string
}

// ClientStats are the statistics of a process that is attached to a cache.
type ClientStats struct {
	Name                   string // with the process's number, if the owner can see the process
	Gathers, Lookups, Hits int64
	// HoldsFor is how long the client has held back changes, 0 unless that is longer than the server allows.
	HoldsFor time.Duration
}

// Changes counts the changes of a cache since New.
type Changes struct {
	// Cycles is the number of refresh cycles. AdmittedRows and EvictedRows are the rows that they admitted and evicted. MovedRows were
	// moved by compaction. RefusedRows were not admitted because the hashmap was full. RefreshedBytes is the bytes written to slabs.
	Cycles         int64 `kind:"counter" metric:"tensorcache.refresh.cycles" unit:"{cycle}" help:"Cycles of Refresh."`
	AdmittedRows   int64 `kind:"counter" metric:"tensorcache.refresh.rows" with:"tensorcache.refresh.action=admitted" unit:"{row}" help:"Churn: rows that were admitted, evicted, moved, or refused by a full hashmap."`
	EvictedRows    int64 `kind:"counter" metric:"tensorcache.refresh.rows" with:"tensorcache.refresh.action=evicted"`
	MovedRows      int64 `kind:"counter" metric:"tensorcache.refresh.rows" with:"tensorcache.refresh.action=moved"`
	RefusedRows    int64 `kind:"counter" metric:"tensorcache.refresh.rows" with:"tensorcache.refresh.action=refused"`
	RefreshedBytes int64 `kind:"counter" metric:"tensorcache.io" with:"tensorcache.io.path=slab,tensorcache.io.direction=write"`
	// CopiedRows is the number of times that a cached row was copied to another slab.
	CopiedRows int64 `kind:"counter"`
	// UpdatedRows and InvalidatedRows are the rows of Update and Invalidate. UpdateWaits is the number of times that Update waited for
	// room in the overlay. HostBytesWritten is the bytes that updates have written to the host tier.
	UpdatedRows      int64 `kind:"counter" metric:"tensorcache.updates" unit:"{row}" help:"Rows that Update replaced or inserted."`
	InvalidatedRows  int64 `kind:"counter" metric:"tensorcache.invalidations" unit:"{row}" help:"Rows that Invalidate withdrew."`
	UpdateWaits      int64 `kind:"counter" metric:"tensorcache.update.waits" unit:"{wait}" help:"Times that Update waited for room."`
	HostBytesWritten int64 `kind:"counter" metric:"tensorcache.io" with:"tensorcache.io.path=host_tier,tensorcache.io.direction=write"`
	// SampledAccesses were read from the sample rings. LostAccesses were overwritten there before they could be read, or dropped because the
	// policy had not observed those before them yet.
	SampledAccesses int64 `kind:"counter" metric:"tensorcache.sample.reads" unit:"{sample}" help:"Samples read from the rings."`
	LostAccesses    int64 `kind:"counter" metric:"tensorcache.sample.drops" unit:"{sample}" help:"Samples overwritten in the rings before they were read."`
}

// TableStats are the statistics of one table.
type TableStats struct {
	Name string
	// Codec is the name of the codec, "none" if all rows are raw.
	Codec string
	DType dtype.Type
	// Choice has the reasons of CodecAuto. It is nil if the codec was named.
	Choice *registry.Choice
	// TrainedRatio is RawBytes ÷ StoredBytes of the rows as loaded. The codec was trained on a sample of them. If RawBytes ÷ StoredBytes
	// is much lower now, Update has written rows that the codec does not suit.
	TrainedRatio float64
	// Rows is the length of the table. RawRows of them are stored uncompressed, and CachedRows are cached.
	Rows       int64 `kind:"level" metric:"tensorcache.table.rows" unit:"{row}" help:"Rows of the table."`
	RawRows    int64
	CachedRows int64 `kind:"level" metric:"tensorcache.rows.cached" unit:"{row}" help:"Rows cached."`
	// Capacity is the number of rows that the table can grow to.
	Capacity int64
	RowBytes int
	// RawBytes and StoredBytes are the lengths of all rows, uncompressed and as stored.
	RawBytes, StoredBytes int64
	// EqualRows are rows that are stored in the same bytes as others, of those that were found when the table was loaded. In a packed host tier they share a place. Rows that
	// Update writes leave the others; the last one still counts. EqualBytes is the host memory that says which rows are equal, and which slots they share.
	EqualRows  int64 `kind:"level" metric:"tensorcache.rows.equal" unit:"{row}" help:"Rows of the table that were found to be stored like others."`
	EqualBytes int64
	// SlotsSaved is how many cached rows have no slot of their own, because the slot of an equal row serves them.
	SlotsSaved int64 `kind:"level" metric:"tensorcache.slots.saved" unit:"{slot}" help:"Cached rows that the slot of an equal row serves."`
	// Lookups = Hits + Misses. Duplicates within a batch are counted separately.
	Gathers int64 `kind:"counter" metric:"tensorcache.gathers" unit:"{batch}" help:"Gathers that have finished."`
	Lookups int64 `kind:"counter" metric:"tensorcache.lookups" unit:"{row}" help:"Rows looked up, duplicates included."`
	Hits    int64 `kind:"counter"`
	Misses  int64 `kind:"counter"`
	// Hits = LocalHits + PeerHits. LocalHits were read from the slab of the device that served the batch, or from the overlay. PeerHits
	// were read from the slab of another device. Misses were read from the host tier.
	LocalHits int64 `kind:"counter" metric:"tensorcache.hits" with:"tensorcache.hit.slab=own" unit:"{row}" help:"Lookups that found their row, in the device's own slab, or the overlay, or in a peer's slab."`
	PeerHits  int64 `kind:"counter" metric:"tensorcache.hits" with:"tensorcache.hit.slab=peer"`
	// MissesByReason is indexed by slab.Reason and sums to Misses.
	MissesByReason [slab.NumReasons]int64 `kind:"counter"`
	// Tiers says what lies in the host tier, and what was read from below it.
	Tiers TierStats
	// HostBytesMoved is the stored bytes of the missed rows, and what was read of overflow places in host memory.
	HostBytesMoved int64 `kind:"counter"`
	// Resident says how the rows of a resident table lie, nil for other tables.
	Resident *ResidentStats
	// MissStrategy says for each device how misses are read from the host tier.
	MissStrategy []MissStrategy
}

// DeviceStats are the statistics of one device: the content of its slab, and counters of the batches that it served.
type DeviceStats struct {
	// BudgetBytes, PayloadBytes, FreeBytes and UnallocatedBytes are the device's shares of the fields of Stats with these names.
	BudgetBytes      int64
	PayloadBytes     int64 `kind:"level" metric:"tensorcache.slab.usage" with:"tensorcache.slab.state=used" unit:"By" help:"Bytes of the slots within the budget, used and free."`
	FreeBytes        int64 `kind:"level" metric:"tensorcache.slab.usage" with:"tensorcache.slab.state=free"`
	UnallocatedBytes int64
	// Node is the memory node (NUMA) of the host that the device is attached to, or UnknownNode.
	Node int
	// Load is the share of all hits, 0 to 1, that the slab is expected to serve, by the policy's frequencies of its rows. It is 0 for all
	// devices if the policy reports no frequencies.
	Load float64
	// Lost says that the device has failed for good, with Error. The rows of its slab are withdrawn, and batches on it fail. In an attached cache it
	// also says so of a device that has failed in this process only, and of a GPU that this process does not see: the other GPUs read the rows of
	// its slab.
	Lost  bool
	Error string
	// Lookups = LocalHits + PeerHits + Misses, as in TableStats.
	Gathers   int64 `kind:"counter"`
	Lookups   int64 `kind:"counter"`
	LocalHits int64 `kind:"counter"`
	PeerHits  int64 `kind:"counter"`
	Misses    int64 `kind:"counter"`
}

// MissStrategy says how a device reads a table's misses from the host tier.
type MissStrategy struct {
	// Strategy is "zero-copy", "shared", or "zero-copy: sharing does not pay". While sharing does not pay, a few batches are shared all the same, to
	// find out when it pays again.
	Strategy string
	// Fraction is the fraction of a shared batch's misses that the host's processors gather, 0 to 1. It is 0 unless Strategy is "shared".
	Fraction float64
	// Shared and Alone are the numbers of batches with and without sharing, both 0 if sharing is not tried. GaveUp is the number of shared batches in which the device
	// timed out waiting for the host.
	Shared, Alone, GaveUp int64
	// SharedNanos and AloneNanos are the mean nanoseconds a miss, 0 if not measured.
	SharedNanos, AloneNanos float64
}

// Tried says whether batches were read on a device that may share the table's misses.
func (m *MissStrategy) Tried() bool { return m.Shared+m.Alone > 0 }

// Sub returns s with the counters of an earlier Stats of the same cache subtracted. The content of the cache stays as s has it.
func (s Stats) Sub(earlier Stats) Stats {
	s.Tables, s.Devices = slices.Clone(s.Tables), slices.Clone(s.Devices)
	for i := range s.Tables {
		s.Tables[i].sub(&earlier.Tables[i])
	}
	for i := range s.Devices {
		metrics.Subtract(&s.Devices[i], &earlier.Devices[i])
	}
	metrics.Subtract(&s.Changes, &earlier.Changes)
	return s
}

func (t *TableStats) sub(earlier *TableStats) {
	metrics.Subtract(t, earlier)
	metrics.Subtract(&t.Tiers, &earlier.Tiers)
	t.Tiers.Stores = slices.Clone(t.Tiers.Stores)
	for i := range t.Tiers.Stores {
		now := &t.Tiers.Stores[i]
		for j := range earlier.Tiers.Stores {
			if then := &earlier.Tiers.Stores[j]; then.Name == now.Name {
				metrics.Subtract(now, then)
			}
		}
	}
	if t.Resident != nil && earlier.Resident != nil {
		t.Resident = new(*t.Resident)
		metrics.Subtract(t.Resident, earlier.Resident)
	}
}

// Stats returns the statistics as of now. It reads the samples of finished Gathers first, so it may call the policy and the callbacks of
// Options. Gathers under way may be counted in part.
func (c *Cache) Stats() (Stats, error) {
	if err := c.enter(); err != nil {
		return Stats{}, err
	}
	defer c.leave()
	return c.owner.stats()
}

func (c local) stats() (Stats, error) {
	c.learner.DrainIfIdle()
	s := Stats{HostMemory: c.hostMemory(c.set.Tables), LoadPeakBytes: c.loadPeak, RestoredRows: c.restored, RestoreError: text(c.restoredErr)}
	w := c.writer.State()
	s.HoleBytes, s.AdmittedAge, s.OverlayBytes, s.OverlayRows = w.Holes, w.MeanAge, w.OverlayBytes, w.OverlayRows
	s.OverlayCapacity = c.store.Overlay.Slots.Capacity()
	s.PolicyError, s.RefreshError, s.ChangeError = text(c.learner.Failure()), text(w.CycleErr), text(w.Err)
	s.Changes = c.changes()
	s.Placement = c.placement(w.CopiedRows)
	maps := c.deviceStats(&s, w)
	c.tableStats(&s)
	s.HostTakenBytes = c.hostTaken(&s)
	s.Clients = c.shares.clients()
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

// deviceStats fills in the statistics of the devices, and returns the bytes of their hashmaps.
func (c *Cache) deviceStats(s *Stats, w change.State) (maps int64) {
	load := c.store.Hot.State().Load
	for i, d := range c.set.Devices {
		one := DeviceStats{
			Node: c.store.Nodes.Devices[i], Load: load[i], BudgetBytes: min(c.store.Space.Load().Budgets[i], w.Budget),
			PayloadBytes: w.Used[i], FreeBytes: w.Free[i], UnallocatedBytes: w.Unallocated[i], Lost: d.IsLost(),
		}
		d.SettleReplays()
		one.count(d)
		if one.Lost {
			one.Error = fmt.Sprint(d.Device.Err())
			s.Devices = append(s.Devices, one)
			continue
		}
		s.Devices = append(s.Devices, one)
		s.BudgetBytes += one.BudgetBytes
		s.PayloadBytes += one.PayloadBytes
		s.FreeBytes += one.FreeBytes
		s.UnallocatedBytes += one.UnallocatedBytes
		d.SettleFinished()
		maps += d.View().Map.Size()
		s.MetadataBytes += d.View().Map.Size() + slab.TailSlack
		s.ScratchBytes += d.ScratchBytes()
		s.StagingBytes += d.StagingBytes()
		for table := range c.set.Tables {
			t := d.Table(table)
			s.MetadataBytes += t.Rows.Compressed.Size() + t.Rejected.Size() + t.Oversize.Size()
		}
	}
	return maps
}

// hostTaken returns Stats.HostTakenBytes, from the statistics of devices and tables.
func (c *Cache) hostTaken(s *Stats) (bytes int64) {
	const slotBytes = 4 // what the writer keeps for each slot of the hashmap
	bytes = s.OverlayCapacity + c.learner.PolicyBytes() + s.HostBytes + slotBytes*c.store.Space.Load().Layout.Slots()
	for i, t := range c.set.Tables {
		bytes += c.kinds[i].taken(t, &s.Tables[i]) + read.BitsetBytes(t.Tier.Capacity())
	}
	bytes += c.pageLocked()
	onHost := c.DeviceInfo(0).Kind == "host"
	if onHost {
		bytes += s.MetadataBytes + s.PayloadBytes + s.ResidentBytes + s.IndexBytes + s.ScratchBytes
	}
	if !onHost || len(c.set.Devices) > 1 { // the writer has a hashmap of its own
		bytes += c.set.Devices[0].View().Map.Size()
	}
	return bytes
}

// pageLocked returns the page-locked memory that batches pass through now.
func (c *Cache) pageLocked() (bytes int64) {
	for _, d := range c.set.Devices {
		bytes += d.PageLockedBytes()
	}
	return bytes
}

// mostUnsaid is how much more host memory than Options.Host.Memory a cache may take before that is logged, beside overlay, buffers and staging.
const mostUnsaid = 16 << 20

// warnTaken logs it if tables of pages have the cache take more host memory than Options.Host.Memory says.
func (c *Cache) warnTaken() {
	limit := c.opts.Host.Memory
	if limit == 0 || c.policyMemory() == 0 {
		return
	}
	s, err := c.Stats()
	if err != nil {
		return
	}
	taken, index := s.HostTakenBytes-s.OverlayCapacity-c.pageLocked(), int64(0)
	for i, k := range c.kinds {
		taken -= k.readBuffers(c.set.Tables[i])
	}
	if c.DeviceInfo(0).Kind == "host" { // the budgets are given apart
		index = s.IndexBytes
		taken -= s.MetadataBytes + s.PayloadBytes + s.ResidentBytes + s.ScratchBytes
	}
	if taken > limit+mostUnsaid {
		c.watch.Log.Warn("more host memory is taken than Host.Memory: give less, longer rows, or a GPU for the copy of the index", slog.Int64("memory", limit), slog.Int64("taken", taken),
			slog.Int64("host_tiers", s.HostBytes), slog.Int64("copies_of_indexes", index), slog.Int64("policy", c.learner.PolicyBytes()))
	}
}

// tableStats fills in the statistics of the tables.
func (c *Cache) tableStats(s *Stats) {
	for i, t := range c.set.Tables {
		total, done := t.Tier.Totals(), t.Counts.Totals()
		one := TableStats{
			Name: t.Name, Codec: codecName(t), DType: t.DType, Choice: t.Tier.Choice(), TrainedRatio: t.Tier.TrainedRatio(),
			Rows: total.Rows, Capacity: t.Tier.Capacity(), RawRows: total.RawRows, CachedRows: t.Counts.Cached.Load(), RowBytes: t.Tier.RowBytes(),
			RawBytes: total.RawBytes, StoredBytes: total.StoredBytes, EqualRows: total.EqualRows, EqualBytes: t.Tier.EqualBytes() + c.store.SharedSlots.Bytes(i), SlotsSaved: c.store.SharedSlots.Saved(i),
		}
		one.count(done)
		one.Tiers = hostStats(t)
		c.kinds[i].stats(t, done, &one, s)
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

// count sets the counters of batches.
func (s *DeviceStats) count(d *read.Device) {
	s.Gathers, s.LocalHits, s.PeerHits, s.Misses = d.Counts.Totals()
	s.Lookups = s.LocalHits + s.PeerHits + s.Misses
}

// count sets the counters of batches.
func (t *TableStats) count(done read.TableTotals) {
	t.Gathers, t.Lookups, t.Hits, t.Misses = done.Gathers, done.Hits+done.Misses, done.Hits, done.Misses
	t.LocalHits, t.PeerHits, t.MissesByReason, t.HostBytesMoved = done.Hits-done.PeerHits, done.PeerHits, done.Reasons, done.HostBytes-done.PeerBytes
}

// changes returns the counters of changes.
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
		HotBytes: min(c.store.Hot.Bytes.Load(), slices.Max(c.store.Space.Load().Payload)), CopiedRows: copied, Why: hot.Why,
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

// Estimate is the estimated hit rate at other budgets of a cache filled by LRU. Policies that follow frequency usually hit more. Package
// mrc computes it from all accesses since New to a share of the keys. The error falls with the number of keys.
type Estimate struct {
	// Accesses is the number of lookups that the estimate stands for. Keys is the number of keys that are tracked, Rate their share of
	// all keys.
	Accesses int64
	Keys     int
	Rate     float64
	// Budgets has the hit rates at half, once, twice and four times the budget.
	Budgets []BudgetEstimate
}

// BudgetEstimate is the hit rate, 0 to 1, at Times the budget.
type BudgetEstimate struct {
	Times   float64
	HitRate float64 `kind:"gauge" metric:"tensorcache.estimated.hit_ratio" unit:"1" help:"What the hit ratio would be at 0.5, 1, 2 and 4 times the budget, were the cache filled by LRU. Needs RefreshOptions.Keys."`
}

// Placement says how rows are placed in the slabs, and why.
type Placement struct {
	// HotBytes is the slot bytes of the best rows of the ranking that are copied to every slab. The other rows lie in one slab.
	// CopiedRows is the number of rows that have several slots now.
	HotBytes   int64 `json:"hot_bytes"`
	CopiedRows int64 `json:"copied_rows"`
	// Why is the reason of that decision.
	Why string `json:"why"`
	// RowNanos is the predicted time of a looked-up row in nanoseconds. PartitionNanos is the prediction if no row were copied, and
	// ReplicateNanos if all were. All are 0 if the cost model was not used.
	RowNanos       float64 `json:"predicted_row_ns"`
	PartitionNanos float64 `json:"predicted_partition_row_ns"`
	ReplicateNanos float64 `json:"predicted_replicate_row_ns"`
	// Cliques are the sets of devices that read each other's slabs. Each has a data store of its own.
	Cliques [][]int `json:"-"`
	// LostRows is the number of rows that were cached only on devices that were lost.
	LostRows int64 `json:"-"`
}

// NodeBytes is the number of bytes that lie on a memory node of the host.
type NodeBytes struct {
	Node  int   `json:"node"`
	Bytes int64 `json:"bytes"`
}

// HostMemory has the memory nodes (NUMA) on which the host tiers lie.
type HostMemory struct {
	// Nodes are the nodes chosen for the pages of the host tiers, which are interleaved over them. If empty, the system chooses.
	Nodes []int `json:"nodes,omitempty"`
	// Held is where the pages were found to lie after the tables had been loaded or packed anew: exactly, or, for large tables, estimated
	// from 1,024 pages each. It is empty if Nodes is, or if the system does not report it.
	Held []NodeBytes `json:"held,omitempty"`
	// Why is the reason why these nodes or none were chosen. It is "" on machines that are not known to have several nodes.
	Why string `json:"why"`
}
