package experiment

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/internal/setting"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// TiersConfig asks a plan what of a table in pages would lie where.
type TiersConfig struct {
	// HostMemories are sizes of host memory, for rows and index together. None: an eighth, a quarter, a half, and all of what the whole table takes if there
	// is a RowsPerSecond; else the table lies in host memory as a whole.
	HostMemories []string
	// ColdBandwidth is what the drive or the cluster delivers a second, as a size; "": not known.
	ColdBandwidth string
	// RowsPerSecond is how many rows a second are to be looked up, 0 if that does not matter.
	RowsPerSecond float64
}

func (c *TiersConfig) validate(f *faults.List) {
	for _, text := range c.HostMemories {
		_, err := setting.Bytes("--host-memory", text)
		f.Add(err)
	}
	_, err := c.bandwidth()
	f.Add(err)
	f.If(!(c.RowsPerSecond >= 0) || math.IsInf(c.RowsPerSecond, 0), "--rows-per-second (%v) must be a number that is not negative", c.RowsPerSecond)
	f.If(len(c.HostMemories) == 0 && c.ColdBandwidth != "" && c.RowsPerSecond == 0, "--cold-bandwidth needs --host-memory or --rows-per-second")
}

// bandwidth returns ColdBandwidth in bytes, 0 if it is not known.
func (c *TiersConfig) bandwidth() (int64, error) {
	if c.ColdBandwidth == "" {
		return 0, nil
	}
	size := strings.TrimSuffix(c.ColdBandwidth, "/s")
	n, err := humanize.ParseBytes(size)
	if _, bare := strconv.ParseFloat(size, 64); err != nil || n == 0 || n > math.MaxInt64/2 || bare == nil {
		return 0, fmt.Errorf("--cold-bandwidth (%q) must be bytes a second with a unit, such as 3GB/s", c.ColdBandwidth)
	}
	return int64(n), nil
}

// PlannedTiers is what a plan's cache does with a table in pages and so much host memory. Slabs hold the rows that the plan says, the host tier the rows that
// follow in the policy's ranking, and rows that batches have read lately. Ratios are of the lookups, the other figures of a mean batch.
type PlannedTiers struct {
	HostMemory int64 `json:"host_memory"`
	// HostRows are those of the main region.
	HostRows  int64   `json:"host_rows"`
	SlabRatio float64 `json:"slab_ratio"`
	HostRatio float64 `json:"host_ratio"`
	ColdRatio float64 `json:"cold_ratio"`
	RowsRead  float64 `json:"rows_read"`
	PagesRead float64 `json:"pages_read"`
	BytesRead float64 `json:"bytes_read"`
	// ResidentMS is the predicted time for hits and host misses on a GPU, ColdMS that of reading pages at the bandwidth that is given. BatchMS has one after
	// the other, PrefetchedMS the longer of both.
	ResidentMS   float64 `json:"resident_ms"`
	ColdMS       float64 `json:"cold_ms,omitempty"`
	BatchMS      float64 `json:"batch_ms,omitempty"`
	PrefetchedMS float64 `json:"prefetched_ms,omitempty"`
	// NeededBandwidth is the bytes a second with which RowsPerSecond are reached if rows are prefetched: 0 if no bandwidth is enough, or none is asked for.
	NeededBandwidth float64 `json:"needed_cold_bandwidth,omitempty"`
}

// PlannedHost is the least host memory with which a plan reaches RowsPerSecond at ColdBandwidth, with rows prefetched. Reached is false if none does.
type PlannedHost struct {
	Bytes   int64 `json:"bytes"`
	Reached bool  `json:"reached"`
}

// tierModel places a table's rows as a cache of pages does, for one plan.
type tierModel struct {
	s          *sizes
	c          *curve
	slabRows   int64
	rowBytes   int
	page       []uint32 // of each row
	pageBytes  []int64
	batches    func(yield func(int, []int64) bool)
	residentMS float64
}

// Parts of a host tier (docs/tiers.md, Memory).
const (
	ringShare    = 8 // the ring has one part in so many of what the index leaves, and gives up one of so many segments at a time
	pageRowBytes = 4 // what a page has for each row beside its stored bytes
)

// newTierModel lays the rows out in pages in the order of their numbers.
func newTierModel(s *sizes, c *curve, slabRows int64, rowBytes, pageBytes int, batches func(yield func(int, []int64) bool)) *tierModel {
	m := &tierModel{s: s, c: c, slabRows: slabRows, rowBytes: rowBytes, page: make([]uint32, len(s.stored)), batches: batches}
	n := int64(0)
	for row, stored := range s.stored {
		more := int64(stored) + pageRowBytes
		if row == 0 || n+more > int64(pageBytes) {
			m.pageBytes = append(m.pageBytes, n)
			n = 0
		}
		n += more
		m.pageBytes[len(m.pageBytes)-1] = n
		m.page[row] = uint32(len(m.pageBytes) - 1)
	}
	return m
}

// index is the host memory that the tier's index and that of the pages take.
func (m *tierModel) index() int64 {
	return m.least() - 3*int64(slab.SlotBytes(m.rowBytes))
}

// least is the least host memory with which a cache opens.
func (m *tierModel) least() int64 {
	rows := int64(len(m.page))
	return transfer.LeastPart(rows, m.rowBytes) + pages.IndexMemory(rows, m.rowBytes, int64(len(m.pageBytes)))
}

// within runs the batches with so much host memory. The first half of them fills the ring, the figures are of the second half, or of all if there is one batch.
func (m *tierModel) within(ctx context.Context, memory int64) (PlannedTiers, error) {
	p := PlannedTiers{HostMemory: memory, ResidentMS: m.residentMS}
	if memory < m.least() {
		return p, fmt.Errorf("--host-memory (%d B) must be at least %d B: the indexes of %d rows, and three rows", memory, m.least(), len(m.page))
	}
	rest := memory - m.index()
	const inSlab, host = 1, 2
	where := make([]uint8, len(m.page))
	main, used := rest-rest/ringShare, int64(0)
	for i, row := range m.c.order {
		if int64(i) < m.slabRows {
			where[row] = inSlab
			continue
		}
		if used += int64(m.s.slot[row]); used > main {
			break
		}
		where[row] = host
		p.HostRows++
	}
	segment := max(1, rest/ringShare/ringShare)
	var ring [][]int64 // segments of rows, the oldest first
	last := int64(0)   // bytes of the newest
	inRing := make([]bool, len(m.page))
	seen := make([]int, len(m.pageBytes)) // the batch that has read a page, from 1
	all := 0
	for range m.batches {
		all++
	}
	batch, counted, lookups := 0, 0, int64(0)
	var hits, cold, read, pagesRead, bytes int64
	for _, rows := range m.batches {
		if ctx.Err() != nil {
			return p, ctx.Err()
		}
		batch++
		count := batch > all/2
		if count {
			counted++
			lookups += int64(len(rows))
		}
		fresh := map[int64]bool{}
		for _, row := range rows {
			switch {
			case where[row] == inSlab:
				if count {
					hits++
				}
				continue
			case where[row] == host || inRing[row]:
				continue
			}
			if count {
				cold++
			}
			if fresh[row] {
				continue
			}
			fresh[row] = true
			page := m.page[row]
			if count {
				read++
				if seen[page] != batch {
					pagesRead, bytes = pagesRead+1, bytes+m.pageBytes[page]
				}
			}
			seen[page] = batch
		}
		for _, row := range rows { // in the batch's order
			if !fresh[row] {
				continue
			}
			delete(fresh, row)
			n := int64(m.s.slot[row])
			if len(ring) == 0 || last+n > segment {
				if len(ring) == ringShare {
					for _, old := range ring[0] {
						inRing[old] = false
					}
					ring = ring[1:]
				}
				ring, last = append(ring, nil), 0
			}
			last += n
			ring[len(ring)-1] = append(ring[len(ring)-1], row)
			inRing[row] = true
		}
	}
	per := func(n int64) float64 { return float64(n) / float64(max(1, counted)) }
	p.SlabRatio, p.ColdRatio = ratio(hits, lookups), ratio(cold, lookups)
	p.HostRatio = ratio(lookups-hits-cold, lookups)
	p.RowsRead, p.PagesRead, p.BytesRead = per(read), per(pagesRead), per(bytes)
	return p, nil
}

// times adds what follows from the bandwidth and the rate asked for. lookups are those of a mean batch.
func (p *PlannedTiers) times(bandwidth int64, rate, lookups float64) {
	if bandwidth > 0 {
		p.ColdMS = 1e3 * p.BytesRead / float64(bandwidth)
		p.BatchMS, p.PrefetchedMS = p.ResidentMS+p.ColdMS, max(p.ResidentMS, p.ColdMS)
	}
	if seconds := lookups / max(rate, 1e-9); rate > 0 && p.ResidentMS <= 1e3*seconds {
		p.NeededBandwidth = p.BytesRead / seconds
	}
}

// tiers adds to a plan what lies where.
func (p *planner) tiers(ctx context.Context, s *sizes, c *curve, plan *Plan) error {
	t := &p.cfg.Tiers
	if len(t.HostMemories) == 0 && t.RowsPerSecond == 0 {
		return nil
	}
	bandwidth, _ := t.bandwidth()
	r := p.base
	m := newTierModel(s, c, plan.Rows, r.table.RowBytes, pages.DefaultPageBytes, learnFrom(ctx, r.measured, r.first, r.last))
	lookups := float64(c.lookups) / float64(max(1, r.last-r.first))
	m.residentMS = plan.PredictedRowNS * lookups / 1e6
	at := func(memory int64) (PlannedTiers, error) {
		one, err := m.within(ctx, memory)
		one.times(bandwidth, t.RowsPerSecond, lookups)
		return one, err
	}
	whole := m.least() + s.slots*ringShare/(ringShare-1) + ringShare*ringShare
	var memories []int64
	for _, text := range t.HostMemories {
		memory, _ := setting.Bytes("--host-memory", text)
		memories = append(memories, memory)
	}
	if len(memories) == 0 {
		for _, part := range []int64{8, 4, 2, 1} {
			memories = append(memories, max(m.least(), whole/part))
		}
	}
	for _, memory := range memories {
		one, err := at(memory)
		if err != nil {
			return err
		}
		plan.Tiers = append(plan.Tiers, one)
	}
	if t.RowsPerSecond == 0 || bandwidth == 0 {
		return nil
	}
	fits := func(memory int64) (bool, error) {
		one, err := at(memory)
		return one.PrefetchedMS <= 1e3*lookups/t.RowsPerSecond, err
	}
	low, high := m.least(), whole
	reached, err := fits(high)
	plan.LeastHost = &PlannedHost{high, reached}
	for err == nil && reached && high-low > high/200 {
		var enough bool
		middle := low + (high-low)/2
		if enough, err = fits(middle); enough {
			high = middle
		} else {
			low = middle + 1
		}
	}
	plan.LeastHost.Bytes = high
	return err
}
