package experiment

import (
	"context"
	"fmt"
	"strconv"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// trial is a cache to open.
type trial struct {
	policy, codec string
	slots         bool // a resident table
	// budget is of each device, and host the host memory of a table in pages; 0: the table lies in host memory. Both are for the tables as they are.
	budget, host int64
	phase        int
}

// outcome is what a cache did with the lookups that it did not learn from. Numbers of rows and bytes are of the tables as they are.
type outcome struct {
	PlanPoint
	devices                                int
	lookups                                int64
	batches                                int
	ratio                                  float64
	rows, payload, metadata                int64
	beside, codecBytes                     int64
	reserve                                int64
	rowNanos                               float64
	resident                               *ResidentInfo
	tiers                                  cache.TierStats
	absent, pagesRead, bytesRead, rowsRead float64 // of a mean batch; absent is a share of the lookups
}

const (
	// leastParts is how many parts the measured lookups are divided into: what they hit says how far hit rates vary.
	leastParts = 8
	// scratchBytes is the most device memory that batches under way take on a device beside 32 bytes a row of the largest (cache.Stats.ScratchBytes).
	scratchBytes = 32 << 20
)

// try opens a cache as a program would, and reads through it. Unless the plan is being checked, its devices are emulated: GPUs need not be there or have so much memory free.
func (p *planner) try(ctx context.Context, t trial) (*outcome, error) {
	ph := p.phases[t.phase]
	r := *ph.run
	r.cfg = p.cfg.at(t.policy, codecName(p.tables[0], t.codec))
	if !t.slots {
		r.cfg.Resident = Resident{}
	} else if !p.cfg.resident() {
		r.cfg.Resident = Resident{AutoSlots, p.cfg.MaxOverflow, p.cfg.Buddy}
		r.cfg.Online = Online{}
	}
	if !p.checking {
		r.cfg.Device, r.cfg.GPUs = "host", ""
	}
	if err := r.fit(); err != nil {
		return nil, err
	}
	r.budget = t.budget / p.small.scale
	if r.table = p.tables[0]; r.tables != nil {
		r.tables = p.tables
	}
	if m := r.table.Paged(); m != nil && t.slots && !p.cfg.resident() { // beside the cache over pages: a resident table is made from the rows themselves
		r.cfg.Codec = m.Codec
		whole := miniature{scale: 1, block: 1}
		table, err := whole.table(ctx, r.table, nil)
		if err != nil {
			return nil, err
		}
		r.table = table
	}
	if p.small.scale > 1 {
		r.cfg.NoEqualRows = r.cfg.NoEqualRows || r.some != nil
		if r.cfg.Online.on() {
			bytes, _ := r.cfg.refreshBytes()
			if bytes == 0 {
				bytes = defaultRefreshBytes
			}
			r.cfg.RefreshBytes = strconv.FormatInt(max(1<<10, bytes/p.small.scale), 10)
		}
	}
	if t.host > 0 {
		paged, err := p.inPages(ctx, t.codec)
		if err != nil {
			return nil, err
		}
		r.table, r.cfg.Codec, r.cfg.HostMemory = paged, codecName(paged, t.codec), strconv.FormatInt(t.host/p.small.scale, 10)
	}
	served := r.training
	if p.cfg.Serve {
		r.training = nil
	}
	c, err := r.open(ctx, r.cfg.Codec, r.cfg.HostTier)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if r.training = served; r.cfg.Cold || p.cfg.Serve {
		r.cfg.Cold = true
	}
	return p.replay(ctx, &r, c, &t, ph)
}

// replay reads the measured batches through a cache.
func (p *planner) replay(ctx context.Context, r *run, c *cache.Cache, t *trial, ph *phase) (*outcome, error) {
	scale := p.small.scale
	o := &outcome{PlanPoint: PlanPoint{BudgetBytes: t.budget, HitLow: 1}, devices: c.Devices(), batches: ph.batches}
	read := r.reader(ctx, c)
	if err := r.warmUp(ctx, read.batch); err != nil {
		return nil, err
	}
	first := r.first
	if t.host > 0 { // the first half fills the part of the host tier that has rows read lately
		first += (r.last - r.first) / 2
		for i := r.first; i < first; i++ {
			if err := read.batch(ph.measured.NewCursor().Batch(i, nil)); err != nil {
				return nil, err
			}
		}
	}
	// What stays as it is filled need not be read: what the cache holds is what it hits.
	asked := !r.cfg.Online.on() && t.host == 0 && !t.slots && r.all()[0].Paged() == nil
	begin, err := c.Stats()
	if err != nil {
		return nil, err
	}
	last := begin
	cursor := ph.measured.NewCursor()
	var rows []int64
	var cached []bool
	parts, n := min(leastParts, r.last-first), r.last-first
	whole, misses := int64(0), 0.0
	for part := range parts {
		lookups, missed := int64(0), int64(0)
		for i := first + part*n/parts; i < first+(part+1)*n/parts; i++ {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			rows = cursor.Batch(i, rows[:0])
			lookups += ph.wholeBatch(i, len(rows))
			if !asked {
				if err := read.batch(rows); err != nil {
					return nil, err
				}
				continue
			}
			for table, of := range r.parts(rows) {
				if cached, err = c.Cached(table, of, cached[:0]); err != nil {
					return nil, err
				}
				for _, hit := range cached {
					if !hit {
						missed++
					}
				}
			}
		}
		if !asked {
			now, err := c.Stats()
			if err != nil {
				return nil, err
			}
			part := now.Sub(last)
			for i := range part.Tables {
				missed += missedOf(&part.Tables[i])
			}
			last = now
		}
		missing := min(float64(lookups), float64(missed*scale))
		whole, misses = whole+lookups, misses+missing
		hit := (float64(lookups) - missing) / max(1, float64(lookups))
		o.HitLow, o.HitHigh = min(o.HitLow, hit), max(o.HitHigh, hit)
	}
	o.lookups, o.HitRatio = whole, (float64(whole)-misses)/max(1, float64(whole))
	done := last.Sub(begin)
	o.describe(p, &done, t, n)
	return o, nil
}

// missedOf is the lookups of a table that were not served from device memory as a whole.
func missedOf(t *cache.TableStats) int64 {
	if t.Resident != nil {
		return t.Resident.OverflowReads
	}
	return t.Misses
}

// describe fills in what the cache takes. batches is how many were read.
func (o *outcome) describe(p *planner, s *cache.Stats, t *trial, batches int) {
	scale, n := p.small.scale, int64(o.devices)
	var codecs []string
	raw, stored := int64(0), int64(0)
	rowBytes := 0.0
	for i := range s.Tables {
		of := &s.Tables[i]
		codecs = append(codecs, of.Codec)
		raw, stored = raw+of.RawBytes, stored+of.StoredBytes
		o.rows += of.CachedRows * scale
		rowBytes += float64(of.RowBytes) / float64(len(s.Tables))
	}
	o.Codec, o.ratio = codecsOf(codecs), ratio(raw, stored)
	o.payload, o.metadata = (s.PayloadBytes+s.ResidentBytes)*scale, s.MetadataBytes*scale
	o.codecBytes = s.CodecBytes
	o.beside, o.reserve = s.CodecBytes+s.IndexBytes/n*scale, scratchBytes+32*int64(p.largest)
	cost := admission.GPUCost(int(rowBytes), p.cfg.link())
	o.rowNanos = 1e9 * (o.HitRatio*cost.Hit + (1-o.HitRatio)*cost.Miss(int(rowBytes/max(1e-9, o.ratio))))
	of := &s.Tables[0]
	o.resident, o.tiers = residentInfo(of.Resident), of.Tiers
	if t.host > 0 {
		each := float64(scale) / float64(max(1, batches)) / float64(max(1, p.phases[t.phase].merged))
		o.absent = min(1, float64(of.Tiers.AbsentRows*scale)/float64(max(1, o.lookups)))
		o.rowsRead, o.pagesRead, o.bytesRead = each*float64(of.Tiers.RowsRead), each*float64(of.Tiers.PagesRead), each*float64(of.Tiers.BytesRead)
	}
}

// wholeBudget is a budget that all rows fit in, raw.
func (p *planner) wholeBudget() int64 {
	n := int64(max(1, p.cfg.Devices))
	if p.cfg.resident() {
		return wholeTable(p.base.all(), int(n))
	}
	rows, bytes := int64(0), int64(0)
	for _, t := range p.base.all() {
		rows, bytes = rows+int64(t.Rows), bytes+int64(t.Rows)*int64(slab.SlotBytes(t.RowBytes))
	}
	// A hash spreads rows over the devices: one gets some more than the others.
	return bytes/n + bytes/n/16*min(1, n-1) + hashmap.LayoutFor(max(1, rows)).Bytes() + rows/2 + (64<<10)*p.small.scale
}

// within fills in what the memory of a device holds: as a cache, and as a resident table.
func (p *planner) within(ctx context.Context, of *placing) (err error) {
	cached := trial{policy: of.policy, codec: of.codec, budget: 1}
	beside := scratchBytes + 32*int64(p.largest)
	most := p.wholeBudget()
	of.budget = max(0, p.cfg.GPUMemory-beside)
	cached.budget = min(most, of.budget)
	if of.cached, err = p.tryOrNothing(ctx, cached); err != nil {
		return err
	}
	if of.cached.beside > 0 {
		of.budget = max(0, of.budget-of.cached.beside)
		if cached.budget = min(most, of.budget); cached.budget < most {
			if of.cached, err = p.tryOrNothing(ctx, cached); err != nil {
				return err
			}
		}
	}
	of.resident, err = p.resident(ctx, of)
	return err
}

// resident opens the table as a resident one.
func (p *planner) resident(ctx context.Context, of *placing) (*PlannedResident, error) {
	r := &PlannedResident{Within: of.budget, CachedRowNS: of.cached.rowNanos, Faster: "cached"}
	t := trial{policy: of.policy, codec: of.codec, slots: true, budget: of.budget}
	o, err := p.try(ctx, t)
	if budgetTooSmall(err) {
		r.Why = "a resident table does not fit: " + err.Error()
		t.budget = wholeTable(p.base.all(), max(1, p.cfg.Devices))
		o, err = p.try(ctx, t)
	} else {
		r.Fits = true
	}
	if err != nil {
		return nil, err
	}
	info, n := o.resident, int64(o.devices)
	table := p.base.table
	r.TargetBytes, r.Ranges, r.CapacityGain = info.TargetBytes, info.Ranges, info.CapacityGain
	r.OverflowRatio = ratio(info.OverflowRows, int64(p.tables[0].Rows))
	r.OverflowLookups = 1 - o.HitRatio
	r.BudgetBytes, r.BuddyBytes = (o.payload+o.metadata+n-1)/n, info.BuddyBytes*p.small.scale
	r.codec, r.ratio, r.codecBytes, r.overflowBytes = o.Codec, o.ratio, o.codecBytes, ratio(info.OverflowBytesRead, info.OverflowReads)
	cost := admission.GPUCost(table.RowBytes, p.cfg.link())
	times := p.cfg.overflowLink().Times(cost.Hit, (int64(table.Rows)+n-1)/n)
	seconds := 0.0
	if r.OverflowLookups > 0 {
		seconds = r.OverflowLookups * times.Overflow(int(r.overflowBytes), buddy.Over(r.TargetBytes, table.RowBytes))
	}
	r.PredictedRowNS = 1e9 * max(cost.Hit, seconds)
	switch missed := 100 * (1 - of.cached.HitRatio); {
	case !r.Fits:
	case r.PredictedRowNS <= r.CachedRowNS*fasterBy: // of two that are as fast, the one without a hashmap
		r.Faster, r.Why = "resident", fmt.Sprintf("%.2f %% of the lookups read beyond their slots; a cache of %s misses %.2f %%", 100*r.OverflowLookups, sizeOf(of.budget), missed)
	default:
		r.Why = fmt.Sprintf("a cache of %s misses %.2f %%; of a resident table %.2f %% of the lookups read beyond their slots", sizeOf(of.budget), missed, 100*r.OverflowLookups)
	}
	return r, nil
}

// fasterBy is by how much a time must be longer than another one to count as longer, which is more than rounding makes it.
const fasterBy = 1 + 1e-6
