package experiment

import (
	"context"
	"fmt"
	"math"

	"github.com/tensorcache/tensorcache/bench/sim"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/internal/setting"
	"github.com/tensorcache/tensorcache/pages"
)

// TiersConfig asks a plan what of a table in pages would lie where.
type TiersConfig struct {
	// HostMemories are sizes of host memory, for rows and index together. None: an eighth, a quarter, a half, and all of what the whole table takes if there
	// is a RowsPerSecond; else the table lies in host memory as a whole.
	HostMemories []string
	// Cold is what the drive or the cluster delivers.
	Cold sim.Drive
	// Page is the most bytes of a page, as a size, and Order the order of the rows in them, as for `cachebench pack`, whose order "frequency" is that of the training
	// batches here. "": pages.DefaultPageBytes, and by row number. Of a table of pages both are the table's own.
	Page, Order string
	// RowsPerSecond is how many rows a second are to be looked up, 0 if that does not matter.
	RowsPerSecond float64
}

func (c *TiersConfig) validate(f *faults.List) {
	for _, text := range c.HostMemories {
		_, err := setting.Bytes("--host-memory", text)
		f.Add(err)
	}
	c.Cold.Validate(f)
	f.If(!(c.RowsPerSecond >= 0) || math.IsInf(c.RowsPerSecond, 0), "--rows-per-second (%v) must be a number that is not negative", c.RowsPerSecond)
	_, err := c.pageBytes()
	f.Add(err)
	for _, given := range []struct {
		flag string
		is   bool
	}{{"cold-bandwidth", c.Cold.Bandwidth != ""}, {"cold-reads-per-second", c.Cold.Reads > 0}, {"cold-latency", c.Cold.Latency > 0}, {"page", c.Page != ""}, {"order", c.Order != ""}} {
		f.If(given.is && len(c.HostMemories) == 0 && c.RowsPerSecond == 0, "--%s needs --host-memory or --rows-per-second", given.flag)
	}
}

// pageBytes returns Page in bytes.
func (c *TiersConfig) pageBytes() (int, error) {
	if c.Page == "" {
		return pages.DefaultPageBytes, nil
	}
	n, err := setting.Bytes("--page", c.Page)
	if err != nil || n < pages.MinPageBytes || n > pages.MaxPageBytes {
		return 0, fmt.Errorf("--page (%q) must be 4KiB to 1MiB", c.Page)
	}
	return int(n), nil
}

// PlannedTiers is what a plan's cache does with a table in pages and so much host memory. Slabs hold the rows that the plan says, the host tier the rows that
// follow in the policy's ranking, and rows that batches have read lately. Ratios are of the lookups, the other figures of a mean batch.
type PlannedTiers struct {
	HostMemory int64 `json:"host_memory"`
	// Phase is that of an n-gram workload.
	Phase string `json:"phase,omitempty"`
	// SlabRows and SlabBytes are the rows in slabs and their slots, HostRows and HostBytes those of the main region. Of rows that no batch looks up, mean slots count.
	SlabRows  int64   `json:"slab_rows"`
	SlabBytes int64   `json:"slab_bytes"`
	HostRows  int64   `json:"host_rows"`
	HostBytes int64   `json:"host_bytes"`
	SlabRatio float64 `json:"slab_ratio"`
	HostRatio float64 `json:"host_ratio"`
	ColdRatio float64 `json:"cold_ratio"`
	RowsRead  float64 `json:"rows_read"`
	PagesRead float64 `json:"pages_read"`
	BytesRead float64 `json:"bytes_read"`
	// SlabBytesRead and HostBytesRead are the slots of the lookups that the two tiers serve, and BytesRead whole pages.
	SlabBytesRead float64 `json:"slab_bytes_read"`
	HostBytesRead float64 `json:"host_bytes_read"`
	// ResidentMS is the predicted time for hits and host misses on a GPU, ColdMS that of reading pages from the drive that is given. BatchMS has one after
	// the other, PrefetchedMS the longer of both.
	ResidentMS   float64 `json:"resident_ms"`
	ColdMS       float64 `json:"cold_ms,omitempty"`
	BatchMS      float64 `json:"batch_ms,omitempty"`
	PrefetchedMS float64 `json:"prefetched_ms,omitempty"`
	// NeededBandwidth and NeededReads are the bytes and reads a second with which RowsPerSecond are reached if rows are prefetched: 0 if no drive is enough, or none is asked
	// for.
	NeededBandwidth float64 `json:"needed_cold_bandwidth,omitempty"`
	NeededReads     float64 `json:"needed_cold_reads,omitempty"`
	// PagesBytes is the length of all pages, IndexBytes the device memory of the host tier's index, beside the budget.
	PagesBytes int64 `json:"pages_bytes"`
	IndexBytes int64 `json:"index_bytes"`
}

// PlannedHost is the least host memory with which a plan reaches RowsPerSecond at ColdBandwidth, with rows prefetched. Reached is false if none does.
type PlannedHost struct {
	Bytes   int64 `json:"bytes"`
	Reached bool  `json:"reached"`
}

// times adds what follows from the drive and the rate asked for. lookups are those of a mean batch.
func (p *PlannedTiers) times(d *sim.Drive, rate, lookups float64) {
	if d.Known() {
		p.ColdMS = 1e3 * d.Seconds(p.BytesRead, p.PagesRead)
		p.BatchMS, p.PrefetchedMS = p.ResidentMS+p.ColdMS, max(p.ResidentMS, p.ColdMS)
	}
	seconds := lookups / max(rate, 1e-9)
	if reading := seconds - d.Latency.Seconds(); rate > 0 && p.ResidentMS <= 1e3*seconds && reading > 0 {
		p.NeededBandwidth, p.NeededReads = p.BytesRead/reading, p.PagesRead/reading
	}
}

// tiersOf returns what a cache with so many entries of the curve does with a table in pages and so much host memory, in a phase.
func (p *planner) tiersOf(ctx context.Context, m *tierModel, ph *phase, codec string, rowNanos float64, memory int64) (PlannedTiers, error) {
	one, err := m.within(ctx, memory, learnFrom(ctx, ph.measured, ph.first, ph.last))
	one.Phase = ph.name
	if one.ResidentMS = rowNanos * ph.rows / 1e6; p.model != nil && p.model.Knows(codec) {
		rest := float64(memory - m.index())
		one.ResidentMS = p.milliseconds(ph, codec, m.s.ratio, spread{1 - one.HostRatio, one.HostRatio, rest, rest, float64(m.rowBytes) / m.s.ratio})
	}
	one.times(&p.cfg.Tiers.Cold, p.cfg.Tiers.RowsPerSecond, ph.rows)
	return one, err
}

// tiers adds to a plan what lies where.
func (p *planner) tiers(ctx context.Context, s *sizes, c *curve, plan *Plan, entries int64) error {
	t := &p.cfg.Tiers
	if len(t.HostMemories) == 0 && t.RowsPerSecond == 0 {
		return nil
	}
	m, err := p.tierModel(ctx, s, c)
	if err != nil {
		return err
	}
	m.slab = entries
	// at returns all phases, and whether they reach the rate.
	at := func(memory int64) (all []PlannedTiers, reached bool, err error) {
		reached = true
		for i := range p.phases {
			ph := &p.phases[i]
			one, err := p.tiersOf(ctx, m, ph, plan.ChosenCodec, plan.PredictedRowNS, memory)
			if err != nil {
				return nil, false, err
			}
			all, reached = append(all, one), reached && one.PrefetchedMS <= 1e3*ph.rows/t.RowsPerSecond
		}
		return all, reached, nil
	}
	whole := m.least() + s.slots*ringShare/(ringShare-1) + ringShare*ringShare
	memories := t.memories()
	if len(memories) == 0 {
		for _, part := range []int64{8, 4, 2, 1} {
			memories = append(memories, max(m.least(), whole/part))
		}
	}
	for _, memory := range memories {
		all, _, err := at(memory)
		if err != nil {
			return err
		}
		plan.Tiers = append(plan.Tiers, all...)
	}
	if t.RowsPerSecond == 0 || !t.Cold.Known() {
		return nil
	}
	low, high := m.least(), whole
	_, reached, err := at(high)
	plan.LeastHost = &PlannedHost{high, reached}
	for err == nil && reached && high-low > high/200 {
		var enough bool
		middle := low + (high-low)/2
		if _, enough, err = at(middle); enough {
			high = middle
		} else {
			low = middle + 1
		}
	}
	plan.LeastHost.Bytes = high
	return err
}

// memories returns HostMemories in bytes.
func (c *TiersConfig) memories() (all []int64) {
	for _, text := range c.HostMemories {
		memory, _ := setting.Bytes("--host-memory", text)
		all = append(all, memory)
	}
	return all
}
