package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/internal/setting"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/transfer"
)

// TiersConfig asks a plan what of a table in pages would lie where.
type TiersConfig struct {
	// HostMemories are sizes of host memory, for rows and index together. None: an eighth, a quarter, a half, and all of what the whole table takes if there
	// is a RowsPerSecond; else the table lies in host memory as a whole.
	HostMemories []string
	// Cold is what the drive or the cluster delivers.
	Cold Drive
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
func (p *PlannedTiers) times(d *Drive, rate, lookups float64) {
	if d.Known() {
		p.ColdMS = 1e3 * d.Seconds(p.BytesRead, p.PagesRead)
		p.BatchMS, p.PrefetchedMS = p.ResidentMS+p.ColdMS, max(p.ResidentMS, p.ColdMS)
	}
	seconds := lookups / max(rate, 1e-9)
	if reading := seconds - d.Latency.Seconds(); rate > 0 && p.ResidentMS <= 1e3*seconds && reading > 0 {
		p.NeededBandwidth, p.NeededReads = p.BytesRead/reading, p.PagesRead/reading
	}
}

// asked says whether a plan is to say anything of tiers.
func (c *TiersConfig) asked() bool { return len(c.HostMemories) > 0 || c.RowsPerSecond > 0 }

// tiersOf opens a cache of a table in pages, with so much host memory, and reads the batches of a phase.
func (p *planner) tiersOf(ctx context.Context, t trial, host int64, phase int) (PlannedTiers, *outcome, error) {
	t.host, t.phase = host, phase
	ph := p.phases[phase]
	one := PlannedTiers{HostMemory: host, Phase: ph.name}
	table, scale := p.base.table, p.small.scale
	if least := transfer.LeastPart(int64(table.Rows), table.RowBytes); host < least {
		return one, nil, fmt.Errorf("--host-memory (%d B) must be at least %d B: the indexes of %d rows, and three rows", host, least, table.Rows)
	}
	o, err := p.try(ctx, t)
	if err != nil {
		return one, nil, err
	}
	one.SlabRows, one.SlabBytes = o.rows, o.payload
	one.HostRows, one.HostBytes = o.tiers.HostRows*scale, o.tiers.HostBytes*scale
	one.SlabRatio, one.ColdRatio = o.HitRatio, o.absent
	one.HostRatio = max(0, 1-one.SlabRatio-one.ColdRatio)
	one.RowsRead, one.PagesRead, one.BytesRead = o.rowsRead, o.pagesRead, o.bytesRead
	one.SlabBytesRead = ph.rows * one.SlabRatio * ratio(one.SlabBytes, one.SlabRows)
	one.HostBytesRead = ph.rows * one.HostRatio * ratio(one.HostBytes, one.HostRows)
	pagesOf := p.packed[t.codec].Paged()
	one.PagesBytes, one.IndexBytes = pagesOf.PageTotal*scale, 8*int64(table.Rows)
	one.ResidentMS = o.rowNanos * ph.rows / 1e6
	if p.model != nil && p.model.Knows(o.Codec) {
		rest := float64(max(0, host-one.IndexBytes))
		one.ResidentMS = p.milliseconds(ph, o.Codec, o.ratio, spread{1 - one.HostRatio, one.HostRatio, rest, rest, float64(table.RowBytes) / o.ratio})
	}
	one.times(&p.cfg.Tiers.Cold, p.cfg.Tiers.RowsPerSecond, ph.rows)
	return one, o, nil
}

// tiers adds to a plan what lies where.
func (p *planner) tiers(ctx context.Context, plan *Plan, of *outcome) error {
	t := &p.cfg.Tiers
	if !t.asked() || of.lookups == 0 {
		return nil
	}
	with := trial{policy: plan.Policy, codec: plan.Codec, budget: plan.BudgetBytes}
	// at returns all phases, and whether they reach the rate.
	at := func(memory int64) (all []PlannedTiers, reached bool, err error) {
		reached = true
		for i, ph := range p.phases {
			one, _, err := p.tiersOf(ctx, with, memory, i)
			if err != nil {
				return nil, false, err
			}
			all, reached = append(all, one), reached && one.PrefetchedMS <= 1e3*ph.rows/t.RowsPerSecond
		}
		return all, reached, nil
	}
	table := p.base.table
	least := p.leastHost()
	whole := least + int64(float64(table.Bytes())/max(1, of.ratio)*5/4)
	memories := t.memories()
	if len(memories) == 0 {
		for _, part := range []int64{8, 4, 2, 1} {
			memories = append(memories, max(least, whole/part))
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
	low, high := least, whole
	_, reached, err := at(high)
	plan.LeastHost = &PlannedHost{high, reached}
	for err == nil && reached && high-low > high/20 {
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

// leastHost is host memory that a cache of the table in pages opens with: some more than that of the indexes.
func (p *planner) leastHost() int64 {
	rows, rowBytes := int64(p.base.table.Rows), p.base.table.RowBytes
	page, _ := p.cfg.Tiers.pageBytes()
	count := (rows*int64(rowBytes) + int64(page) - 1) / int64(page) * 2
	least := transfer.LeastPart(rows, rowBytes) + pages.IndexMemory(rows, rowBytes, count)
	if p.cfg.Tiers.Order != "" {
		least += 4 * rows
	}
	return least + p.small.scale*(64<<10)
}

// inPages returns the table packed into pages of a temporary folder, unless it lies in pages as it is.
func (p *planner) inPages(ctx context.Context, codec string) (*dataset.Table, error) {
	t := p.tables[0]
	if p.packed[codec] == nil && t.Paged() != nil {
		p.packed[codec] = t
	}
	if p.packed[codec] != nil {
		return p.packed[codec], nil
	}
	p.base.progress.Stage("packing ("+codec+")", 0)
	order, err := p.order(ctx)
	if err != nil {
		return nil, err
	}
	if p.folder == "" {
		if p.folder, err = os.MkdirTemp("", "tensorcache-plan-"); err != nil {
			return nil, err
		}
	}
	dir := filepath.Join(p.folder, codec)
	w, err := pages.CreateFiles(dir)
	if err != nil {
		return nil, err
	}
	page, _ := p.cfg.Tiers.pageBytes()
	o := pages.PackOptions{Name: "table", DType: t.DType, Codec: codec, PageBytes: page, Order: order, Seed: p.cfg.Seed, Stage: pages.StageNone.String()}
	if _, err := pages.Pack(ctx, func() (pages.Source, error) { return &rowsSource{t, 0}, nil }, w, o); err != nil {
		return nil, err
	}
	p.packed[codec], err = dataset.Load(dir)
	return p.packed[codec], err
}

// rowsSource gives the rows of a table in memory to pages.Pack.
type rowsSource struct {
	t    *dataset.Table
	next int
}

func (s *rowsSource) Rows() int     { return s.t.Rows }
func (s *rowsSource) RowBytes() int { return s.t.RowBytes }
func (s *rowsSource) Close() error  { return nil }

func (s *rowsSource) Read(dst []byte) (int, error) {
	if s.next == s.t.Rows {
		return 0, io.EOF
	}
	n := copy(dst, s.t.Data[s.next*s.t.RowBytes:]) / s.t.RowBytes
	s.next += n
	return n, nil
}

func (s *rowsSource) ReadFrom(row int64, dst []byte) error {
	copy(dst, s.t.Data[row*int64(s.t.RowBytes):])
	return nil
}

// order returns the rows in the order of --order, nil for that of their numbers.
func (p *planner) order(ctx context.Context) ([]uint32, error) {
	text, ph := p.cfg.Tiers.Order, p.phases[0]
	whole, rows := int64(p.base.table.Rows), p.tables[0].Rows
	counts := make([]uint32, rows)
	switch {
	case text == "":
		return nil, nil
	case text == "degree" && p.base.graph == nil:
		return nil, errors.New("--order degree needs a graph")
	case text == "degree":
		for row, n := range p.base.graph.InDegrees() {
			if small, ok := p.small.row(int64(row), whole); ok {
				counts[small] = uint32(n)
			}
		}
	case text == "frequency":
		for _, of := range learnFrom(ctx, ph.training, ph.trainFirst, ph.trainLast) {
			for _, row := range of {
				counts[row]++
			}
		}
	default:
		listed, err := readIDs(text, int(whole), p.cfg.Force)
		if err != nil {
			return nil, fmt.Errorf("--order (degree, frequency or a file): %w", err)
		}
		var kept []int64
		for _, row := range listed {
			if small, ok := p.small.row(row, whole); ok {
				kept = append(kept, small)
			}
		}
		order, err := pages.OrderOf(kept, int64(rows))
		if err != nil {
			return nil, fmt.Errorf("--order (%s): %w", text, err)
		}
		return order, nil
	}
	return pages.OrderByCount(counts), ctx.Err()
}

// memories returns HostMemories in bytes.
func (c *TiersConfig) memories() (all []int64) {
	for _, text := range c.HostMemories {
		memory, _ := setting.Bytes("--host-memory", text)
		all = append(all, memory)
	}
	return all
}
