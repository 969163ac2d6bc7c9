package experiment

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// Layouts of a table on a machine.
const (
	// CachedLayout is a cache over a host tier that holds every row.
	CachedLayout = "cached"
	// ResidentLayout has all rows in device memory, compressed, and what is longer than its slot in host memory.
	ResidentLayout = "resident"
	// TiersLayout is a cache over a host tier that holds some rows, over pages.
	TiersLayout = "tiers"
)

// Placement says which layout a machine is to have for the table, of those that fit: the one whose batches take least. With several phases that is the one with the least
// sum of times, each as a multiple of the least time of its phase.
type Placement struct {
	// GPUMemory and HostMemory are what there is; HostMemory 0: as much as the table needs.
	GPUMemory  int64 `json:"gpu_memory"`
	HostMemory int64 `json:"host_memory,omitempty"`
	// Layouts are all three, each with the policy and codec that make it fastest.
	Layouts []PlacedLayout `json:"layouts"`
	// Choice is one of them, "" if none fits, and Why says why.
	Choice string `json:"choice"`
	Why    string `json:"why"`
}

// PlacedLayout is the table in one layout. Shares are of the lookups.
type PlacedLayout struct {
	Layout string `json:"layout"`
	Policy string `json:"policy,omitempty"`
	Codec  string `json:"codec"`
	Fits   bool   `json:"fits"`
	// GPUBytes is what it takes of each device, HostBytes of host memory, PageBytes of the drive.
	GPUBytes  int64 `json:"gpu_bytes"`
	HostBytes int64 `json:"host_bytes"`
	PageBytes int64 `json:"page_bytes,omitempty"`
	// DeviceRatio, HostRatio and ColdRatio are the shares of rows that lie in device memory, are read from host memory, and from pages.
	DeviceRatio float64      `json:"device_ratio"`
	HostRatio   float64      `json:"host_ratio"`
	ColdRatio   float64      `json:"cold_ratio,omitempty"`
	Times       []PlacedTime `json:"times,omitempty"`
	// Why says what the layout lacks, or what its times are made of.
	Why string `json:"why"`
}

// PlacedTime is what the mean batch of a phase is predicted to take, in milliseconds.
type PlacedTime struct {
	Phase string  `json:"phase,omitempty"`
	Rows  float64 `json:"rows"`
	MS    float64 `json:"ms"`
	// PrefetchedMS is with rows that are known so early that pages are read beside other batches, ReadsMS the time for that alone: only of layout tiers.
	PrefetchedMS float64 `json:"prefetched_ms,omitempty"`
	ReadsMS      float64 `json:"reads_ms,omitempty"`
}

// placing is what the memory of a device holds of a table by a policy and a codec: budget bytes of it, as a cache and as a resident table.
type placing struct {
	policy, codec string
	budget        int64
	cached        *outcome // nil: no memory was given
	resident      *PlannedResident
}

// placements returns one for each host memory that is asked about.
func (p *planner) placements(ctx context.Context, plans []*placing) (all []Placement, err error) {
	if p.cfg.GPUMemory == 0 || p.model == nil {
		return nil, nil
	}
	memories := p.cfg.Tiers.memories()
	if len(memories) == 0 {
		memories = []int64{0}
	}
	for _, memory := range memories {
		one := Placement{GPUMemory: p.cfg.GPUMemory, HostMemory: memory}
		if memory == 0 {
			memory = math.MaxInt64
		}
		var found [3][]PlacedLayout
		for _, of := range plans {
			tiers := PlacedLayout{Layout: TiersLayout, Codec: of.codec, Why: "needs --host-memory: how much of it there is for rows and index"}
			if one.HostMemory > 0 {
				if tiers, err = p.placedTiers(ctx, of, memory); err != nil {
					return nil, err
				}
			}
			for i, layout := range []PlacedLayout{p.placedResident(of, memory), p.placedCached(of, memory), tiers} {
				found[i] = append(found[i], layout)
			}
		}
		least := leastTimes(found[:])
		for _, layouts := range found {
			if len(layouts) > 0 {
				one.Layouts = append(one.Layouts, *best(layouts, least))
			}
		}
		one.choose(least)
		all = append(all, one)
	}
	return all, nil
}

// leastTimes returns the least time of each phase, of layouts that fit.
func leastTimes(found [][]PlacedLayout) (least []float64) {
	for _, layouts := range found {
		for _, l := range layouts {
			for i, t := range l.Times {
				if i == len(least) {
					least = append(least, math.Inf(1))
				}
				if l.Fits {
					least[i] = min(least[i], t.MS)
				}
			}
		}
	}
	return least
}

// slowness is the sum of a layout's times, each as a multiple of the least: infinite if the layout does not fit, or its times are not known.
func (l *PlacedLayout) slowness(least []float64) float64 {
	if !l.Fits || len(l.Times) == 0 {
		return math.Inf(1)
	}
	sum := 0.0
	for i, t := range l.Times {
		sum += t.MS / least[i]
	}
	return sum
}

// best returns the fastest of some layouts, or of those that are as fast the first. One that fits is better than others, whatever is known of it.
func best(layouts []PlacedLayout, least []float64) *PlacedLayout {
	b := &layouts[0]
	for i := range layouts[1:] {
		l := &layouts[1+i]
		if x, y := l.slowness(least), b.slowness(least); x*fasterBy < y || math.IsInf(y, 1) && l.Fits && !b.Fits {
			b = l
		}
	}
	return b
}

// choose sets Choice and Why.
func (p *Placement) choose(least []float64) {
	if len(p.Layouts) == 0 {
		p.Why = "nothing is known of the codecs"
		return
	}
	b := best(p.Layouts, least)
	if !b.Fits {
		p.Why = "no layout fits"
		return
	}
	p.Choice = b.Layout
	fitting, unknown := 0, ""
	for i := range p.Layouts {
		if l := &p.Layouts[i]; l.Fits {
			if fitting++; len(l.Times) == 0 {
				unknown = l.Layout
			}
		}
	}
	switch {
	case fitting == 1:
		p.Why = "nothing else fits"
	case unknown != "" && unknown != b.Layout:
		p.Why = fmt.Sprintf("least time of the layouts whose drive is known: %s", b.said())
	default:
		p.Why = "least time: " + b.said()
	}
}

// said lists the times.
func (l *PlacedLayout) said() string {
	var all []string
	for _, t := range l.Times {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %.3f ms", t.Phase, t.MS)))
	}
	return strings.Join(all, ", ")
}

// sizeOf prints bytes, as the report does.
func sizeOf(n int64) string { return humanize.SIWithDigits(float64(max(0, n)), 1, "B") }

// fits sets Fits, and Why where it does not. why is said otherwise.
func (l *PlacedLayout) fits(gpu, host int64, why string) {
	l.Fits, l.Why = l.GPUBytes <= gpu && l.HostBytes <= host, why
	switch {
	case l.GPUBytes > gpu:
		l.Why = fmt.Sprintf("takes %s of each device, of which there are %s", sizeOf(l.GPUBytes), sizeOf(gpu))
	case l.HostBytes > host:
		l.Why = fmt.Sprintf("takes %s of host memory, of which there are %s", sizeOf(l.HostBytes), sizeOf(host))
	}
}

// percentOf prints a share.
func percentOf(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }

// placedCached is a cache of all the device memory over a tier with every row.
func (p *planner) placedCached(of *placing, host int64) PlacedLayout {
	t, o := p.base.table, of.cached
	l := PlacedLayout{Layout: CachedLayout, Policy: of.policy, Codec: o.Codec, DeviceRatio: o.HitRatio, HostRatio: 1 - o.HitRatio, GPUBytes: p.cfg.GPUMemory}
	if o.lookups == 0 { // it does not hold one row
		l.Codec, l.GPUBytes = of.codec, p.cfg.GPUMemory+1
	}
	// The rows as they are, in place or while a packed tier is loaded, and what tells which are compressed, or where they lie.
	l.HostBytes = int64(t.Rows)*((int64(t.RowBytes)+3)&^3) + slab.TailSlack + (int64(t.Rows)+63)/64*8
	if p.cfg.HostTier == transfer.Packed.String() {
		l.HostBytes += int64(t.Rows) * 8
	}
	if p.model.Knows(o.Codec) {
		for _, ph := range p.phases {
			l.Times = append(l.Times, PlacedTime{Phase: ph.name, Rows: ph.rows, MS: p.cachedMS(ph, o.Codec, o.ratio, o.HitRatio, o.rows)})
		}
	}
	l.fits(p.cfg.GPUMemory, host, percentOf(o.HitRatio)+" hit")
	return l
}

// placedResident is the table as a resident one.
func (p *planner) placedResident(of *placing, host int64) PlacedLayout {
	r := of.resident
	l := PlacedLayout{
		Layout: ResidentLayout, Codec: r.codec, GPUBytes: r.BudgetBytes + r.codecBytes + scratchBytes + 32*int64(p.largest), HostBytes: r.BuddyBytes,
		DeviceRatio: 1 - r.OverflowLookups, HostRatio: r.OverflowLookups,
	}
	over := float64(r.BuddyBytes)
	if p.model.Knows(r.codec) {
		for _, ph := range p.phases {
			ms := p.milliseconds(ph, r.codec, r.ratio, spread{1 - r.OverflowLookups, r.OverflowLookups, over, over, r.overflowBytes})
			l.Times = append(l.Times, PlacedTime{Phase: ph.name, Rows: ph.rows, MS: ms})
		}
	}
	if l.fits(p.cfg.GPUMemory, host, percentOf(r.OverflowLookups)+" read beyond their slots"); !r.Fits {
		l.Fits, l.Why = false, r.Why
	}
	return l
}

// placedTiers is a cache of all the device memory over a tier of all the host memory, over pages.
func (p *planner) placedTiers(ctx context.Context, of *placing, host int64) (PlacedLayout, error) {
	l := PlacedLayout{Layout: TiersLayout, Policy: of.policy, Codec: of.codec, GPUBytes: p.cfg.GPUMemory, HostBytes: host}
	t := trial{policy: of.policy, codec: of.codec, budget: min(p.wholeBudget(), of.budget-8*int64(p.base.table.Rows))} // the index of the host tier
	if t.budget <= 0 {
		l.GPUBytes = p.cfg.GPUMemory - t.budget + slab.Align
		l.fits(p.cfg.GPUMemory, host, "")
		return l, nil
	}
	var read []string
	for i, ph := range p.phases {
		one, o, err := p.tiersOf(ctx, t, host, i)
		if o == nil && err != nil && ctx.Err() == nil {
			l.Why = err.Error()
			return l, nil
		}
		if err != nil {
			return l, err
		}
		if i == 0 {
			l.Codec, l.PageBytes, l.DeviceRatio, l.HostRatio, l.ColdRatio = o.Codec, one.PagesBytes, one.SlabRatio, one.HostRatio, one.ColdRatio
		}
		read = append(read, strings.TrimSpace(fmt.Sprintf("%s %.0f", ph.name, one.PagesRead)))
		if p.cfg.Tiers.Cold.Known() || one.PagesRead == 0 {
			l.Times = append(l.Times, PlacedTime{Phase: ph.name, Rows: ph.rows, MS: one.ResidentMS + one.ColdMS, PrefetchedMS: max(one.ResidentMS, one.ColdMS), ReadsMS: one.ColdMS})
		}
	}
	if len(l.Times) < len(p.phases) {
		l.Times = nil
	}
	why := "pages read for a batch: " + strings.Join(read, ", ")
	if l.Times == nil {
		why += "; how long that takes, --cold-reads-per-second and --cold-bandwidth say"
	}
	l.fits(p.cfg.GPUMemory, host, why)
	return l, nil
}
