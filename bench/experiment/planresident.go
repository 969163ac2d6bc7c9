package experiment

import (
	"cmp"
	"fmt"
	"sort"

	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/statjson"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// PlannedResident is the table as a resident one (run --layout buddy), beside a cache of the same budget and codec.
type PlannedResident struct {
	// TargetBytes is the length of a slot: the one with the least expected time within the budget, or, where the table does not fit, the least that leaves
	// at most --overflow of the rows longer. OverflowRatio is the share of rows that are longer, OverflowLookups the share of the lookups of such rows.
	TargetBytes int `json:"target_bytes"`
	// Ranges are there if the table would have several targets, of which TargetBytes is the mean.
	Ranges          []statjson.ResidentRange `json:"ranges,omitempty"`
	OverflowRatio   float64                  `json:"overflow_ratio"`
	OverflowLookups float64                  `json:"overflow_lookup_ratio"`
	CapacityGain    float64                  `json:"capacity_gain"`
	// BudgetBytes is what it takes of each device, BuddyBytes the host memory of overflow places.
	BudgetBytes int64 `json:"budget_bytes"`
	BuddyBytes  int64 `json:"buddy_bytes"`
	// Within is the budget of each device that the two are compared at: what GPUMemory leaves for it, or the larger of the plan's and BudgetBytes.
	Within int64 `json:"within_bytes"`
	Fits   bool  `json:"fits"`
	// PredictedRowNS is of a GPU that reads slots and overflow places at the same time, and CachedRowNS that of a cache of the budget Within, filled once with the rows looked up most.
	PredictedRowNS float64 `json:"predicted_row_ns"`
	CachedRowNS    float64 `json:"cached_row_ns"`
	// BorderSkew is the exponent of the rows' frequencies from which on the cache is expected to be the faster one, if rows are looked up by a power law in the
	// order in which the cache takes them up: 0 if it is at any, or the resident table does not fit; nil if it is at none up to 3.
	BorderSkew *float64 `json:"border_skew"`
	// Faster is "resident" or "cached", and Why says why.
	Faster string `json:"faster"`
	Why    string `json:"why"`

	overflowBytes float64 // that a lookup reads beyond its slot, if it does
}

// resident plans the table as a resident one. available is what the devices' memory leaves for a budget, if GPUMemory is given.
func (p *planner) resident(s *sizes, c *curve, plan *Plan, available int64) *PlannedResident {
	t := p.base.table
	layout := buddy.Layout{RowBytes: t.RowBytes, Rows: int64(t.Rows), Devices: int(s.devices)}
	times, share := p.cfg.overflowLink().Times(s.cost.Hit, layout.LocalRows(0)), cmp.Or(p.cfg.Overflow, buddy.Threshold)
	stored := s.lengths
	if stored == nil {
		stored = make([]int32, len(s.stored))
		for i, n := range s.stored {
			stored[i] = int32(n)
		}
	}
	beside := slab.TailSlack + hashmap.LayoutFor(1).Bytes() + slab.TailSlack + layout.WordsBytes(0) // the slots
	within := max(0, available)
	if p.cfg.GPUMemory == 0 {
		least, _ := buddy.ChooseParts(layout, stored, buddy.Limits{Overflow: share}, times)
		within = max(plan.BudgetBytes, beside+least.SlotsBytes())
	}
	choice, fits := buddy.ChooseParts(layout, stored, buddy.Limits{Bytes: max(0, within-beside), Overflow: share}, times)
	r := &PlannedResident{
		TargetBytes: choice.Target, Ranges: rangesOf(layout, choice.Parts), OverflowRatio: choice.Overflow, CapacityGain: choice.Gain,
		BudgetBytes: beside + choice.SlotsBytes(), Within: within, Fits: fits,
	}
	for _, part := range choice.Parts {
		if over := int64(buddy.Over(part.Target, t.RowBytes)); over > 0 {
			r.BuddyBytes += int64(layout.Devices) * ((part.To-part.From)*over + slab.TailSlack)
		}
	}
	target := func(row int64) int { return choice.Parts[0].Target }
	if len(choice.Parts) > 1 { // not of a sample, whose lengths have no order
		target = func(row int64) int {
			local := layout.Local(row)
			return choice.Parts[sort.Search(len(choice.Parts)-1, func(i int) bool { return local < choice.Parts[i].To })].Target
		}
	}
	overflow := func(bytes, target int) float64 { return times.Overflow(bytes, buddy.Over(target, t.RowBytes)) }
	lookups, over, seconds := int64(0), int64(0), 0.0
	for row, n := range p.counts {
		lookups += n
		if more := int(s.stored[row]) - target(int64(row)); n > 0 && more > 0 {
			over += n
			r.overflowBytes += float64(n) * float64(more)
			seconds += float64(n) * overflow(more, target(int64(row)))
		}
	}
	r.OverflowLookups, r.overflowBytes = ratio(over, lookups), r.overflowBytes/float64(max(1, over))
	r.PredictedRowNS = 1e9 * max(s.cost.Hit, seconds/float64(max(1, lookups)))
	cached := c.within(s, within)
	hits := c.hitRatio(cached)
	if r.CachedRowNS = 1e9 * c.misses / float64(max(1, c.lookups)); cached > 0 {
		r.CachedRowNS = c.rowNanos(cached)
	}
	if r.BorderSkew = new(float64); fits {
		r.BorderSkew = newSkewed(s, c, target, overflow, cached).border()
	}
	switch {
	case !fits:
		r.Faster, r.Why = "cached", fmt.Sprintf("a resident table needs %d B of each device, of which there are %d B", r.BudgetBytes, within)
	case r.PredictedRowNS <= r.CachedRowNS*fasterBy: // of two that are as fast, the one without a hashmap
		r.Faster, r.Why = "resident", fmt.Sprintf("%.2f %% of the lookups read beyond their slots; a cache of %d B misses %.2f %%", 100*r.OverflowLookups, within, 100*(1-hits))
	default:
		r.Faster, r.Why = "cached", fmt.Sprintf("a cache of %d B misses %.2f %%; of a resident table %.2f %% of the lookups read beyond their slots", within, 100*(1-hits), 100*r.OverflowLookups)
	}
	return r
}
