package cache

import (
	"fmt"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/placement"
)

// Values of Options.Placement.
const (
	// PlacementAuto copies the rows looked up most to every slab, as far as the cost model says that it pays.
	PlacementAuto = "auto"
	// PlacementPartition has every row in one slab.
	PlacementPartition = "partition"
	// PlacementReplicate has every row in every slab, as far as it has room.
	PlacementReplicate = "replicate"
)

// Rates are how fast a device reads its own slab, another's and the host tier: see package placement.
type Rates = placement.Rates

// Placement says how rows are placed in the slabs, and why.
type Placement struct {
	// HotBytes are the slot bytes, from the best row of the ranking on, that lie in every slab; rows after them lie in one.
	// CopiedRows are how many rows have several slots now.
	HotBytes, CopiedRows int64
	// Why says how that was decided.
	Why string
	// RowNanos is what the cost model predicts that a looked-up row takes, in nanoseconds, PartitionNanos with no row copied,
	// and ReplicateNanos with all; 0 where the model was not asked. A batch of n rows takes n times that and
	// Options.Rates.Overhead.
	RowNanos, PartitionNanos, ReplicateNanos float64
	// Cliques are the devices that read each other's slabs; each has a data store of its own.
	Cliques [][]int
	// LostRows were in the slabs of lost devices only.
	LostRows int64
}

// placing is how rows are being placed.
type placing struct {
	hot atomic.Int64 // Placement.HotBytes; the largest number: all rows are copied
	mu  struct {
		sync.Mutex
		plan  placement.Plan
		why   string
		load  [slab.MaxSlabs]float64 // expected share of the hits that each slab serves
		since struct{ hits, lookups int64 }
	}
}

// place finds out which devices read each other's slabs, and decides which rows are copied.
func (c *Cache) place() {
	devices := c.opened()
	cliques := findCliques(devices)
	_, entries := c.estimate(c.space) // the map takes its share of small budgets
	payload := c.space.payloads(entries)
	c.spread.Store(newSpread(cliques, payload))
	if len(cliques) > 1 {
		for _, members := range cliques {
			c.telemetry.opts.Logger.Warn("devices cannot all read each other's memory: each set has a cache of its own", c.logName(), "set", members, "of", len(devices))
		}
	}
	decided := func(hot int64, why string) {
		c.placing.hot.Store(hot)
		c.placing.mu.Lock()
		c.placing.mu.why = why
		c.placing.mu.Unlock()
	}
	switch {
	case len(devices) == 1:
		decided(0, "one device")
		return
	case c.opts.Placement == PlacementReplicate:
		decided(math.MaxInt64, "all rows are copied: Options.Placement")
	case c.opts.Placement == PlacementPartition:
		decided(0, "partitioned: Options.Placement")
	case c.opts.Rates == Rates{}:
		decided(0, "partitioned: Options.Rates, by which copies are weighed, are not given")
	}
	if !c.opts.Cold {
		c.learner.call(func(policy admission.Policy) { c.decide(policy, payload) })
	}
	capacity := c.capacityOf(payload)
	if c.placing.hot.Load() > 0 {
		c.learner.call(func(p admission.Policy) { p.Resize(capacity) })
	}
}

// capacityOf returns about how many slot bytes of different rows the slabs hold.
func (c *Cache) capacityOf(payload []int64) (most int64) {
	sp, hot := c.spread.Load(), c.placing.hot.Load()
	for _, members := range sp.cliques {
		largest, rest := int64(0), int64(0)
		for _, i := range members {
			if sp.live>>i&1 != 0 {
				largest = max(largest, payload[i])
				rest += max(0, payload[i]-hot)
			}
		}
		most = max(most, min(hot, largest)+rest)
	}
	slots := int64(0)
	for _, t := range c.tables {
		slots += t.tier.Totals().SlotBytes
	}
	return min(most, slots)
}

// capacityLocked is capacityOf what the devices may use now. REQUIRES: c.changes.mu is locked.
func (c *Cache) capacityLocked() int64 {
	limits := make([]int64, len(c.devices))
	for i, d := range c.devices {
		limits[i] = d.limit
	}
	return c.capacityOf(limits)
}

// decideAt says whether the placement is looked at again after so many cycles: seldom, since it takes a ranking.
func decideAt(cycles int64) bool { return bits.OnesCount64(uint64(cycles)) == 1 || cycles%64 == 0 }

// betterBy is how much less time another split must promise before rows are moved for it.
const betterBy = 0.97

// decide looks at the policy's ranking, and chooses which rows to copy where that is to be chosen. Only policies that say how
// often rows are looked up allow that. payload is what slots may take on each device.
func (c *Cache) decide(policy admission.Policy, payload []int64) {
	explainer, ok := policy.(admission.Explainer)
	choose := c.opts.Placement == PlacementAuto && c.opts.Rates != Rates{}
	m := &c.placing.mu
	if !ok {
		if choose {
			m.Lock()
			m.why = fmt.Sprintf("partitioned: policy %s does not say how often rows are looked up", policy.Name())
			m.Unlock()
		}
		return
	}
	sp := c.spread.Load()
	var clique []int // the largest
	for _, members := range sp.cliques {
		if len(members) > len(clique) {
			clique = members
		}
	}
	var own []int64
	room := int64(0)
	for _, i := range clique {
		if sp.live>>i&1 != 0 {
			own = append(own, payload[i])
			room += payload[i]
		}
	}
	var keys []uint64
	for key := range policy.Rank() {
		keys = append(keys, key)
	}
	curve, load := &placement.Curve{}, [slab.MaxSlabs]float64{}
	slots, hot, known := int64(0), c.placing.hot.Load(), 0.0
	for _, key := range keys {
		table, row := hashmap.SplitKey(key)
		if table >= len(c.tables) || row >= c.tables[table].tier.Rows() {
			continue
		}
		t := c.tables[table].tier
		f := max(0, explainer.Explain(key).Frequency-1) // the ranking is by chance too: what is left without one access
		known += f
		if slots > room { // missed however rows are placed
			total := t.Totals()
			curve.AddTail(float64(t.RowBytes()), float64(total.StoredBytes)/float64(max(1, total.Rows)), f)
			continue
		}
		stored, err := t.StoredBytes(row)
		if err != nil {
			continue
		}
		n := slab.SlotBytes(stored)
		curve.Add(n, t.RowBytes(), stored, f)
		slots += int64(n)
		targets := sp.targets(key, slots <= hot, nowhere())
		for i := range slabsOf(targets) {
			load[i] += f / float64(bits.OnesCount8(targets))
		}
	}
	c.addUnknown(curve, known)
	sum := 0.0
	for _, f := range load {
		sum += f
	}
	m.Lock()
	defer m.Unlock()
	for i := range load {
		m.load[i] = load[i] / max(sum, 1e-300)
	}
	if c.opts.Rates == (Rates{}) || len(own) == 0 {
		return
	}
	problem := placement.Problem{Rates: c.opts.Rates, Payload: own, Curve: curve}
	if !choose {
		m.plan = problem.Predict(min(hot, room))
		return
	}
	now, best := problem.Predict(hot), problem.Solve()
	if m.plan != (placement.Plan{}) && best.Nanos > betterBy*now.Nanos {
		m.plan, m.why = now, now.Why
		return
	}
	m.plan, m.why = best, best.Why
	c.placing.hot.Store(best.HotBytes)
}

// addUnknown adds the lookups of rows that the policy does not remember: so many that the curve gives the hit rate since the
// last decision, or else what the policy has been told beyond those of known rows.
func (c *Cache) addUnknown(curve *placement.Curve, known float64) {
	var rowBytes, stored, rows float64
	var hits, lookups int64
	for _, t := range c.tables {
		total := t.tier.Totals()
		rows += float64(total.Rows)
		rowBytes += float64(total.RawBytes)
		stored += float64(total.StoredBytes)
		ts := TableStats{}
		t.counts.read(&ts)
		hits += ts.Hits
		lookups += ts.Lookups
	}
	unknown := max(0, float64(c.learner.observed.Load())-known)
	since := &c.placing.mu.since
	if n := lookups - since.lookups; n >= 10_000 && c.changes.mu.index != nil {
		used, hot := int64(0), c.placing.hot.Load()
		c.changes.mu.Lock()
		for _, d := range c.devices {
			if !d.isLost() {
				used += max(0, d.used()-hot)
			}
		}
		c.changes.mu.Unlock()
		rate := float64(hits-since.hits) / float64(n)
		if rate > 0.01 {
			unknown = max(0, curve.Lookups(used+hot)/rate-known)
		}
		since.hits, since.lookups = hits, lookups
	}
	rows = max(1, rows)
	curve.AddTail(rowBytes/rows, stored/rows, unknown)
}

// placementStats fills in how rows are placed.
func (c *Cache) placementStats(s *Stats) {
	p := &s.Placement
	p.CopiedRows, p.LostRows = c.changes.copies.rows.Load(), c.losses.rows.Load()
	sp := c.spread.Load()
	p.Cliques = sp.cliques
	largest := int64(0)
	for _, n := range c.space.payload {
		largest = max(largest, n)
	}
	p.HotBytes = min(c.placing.hot.Load(), largest)
	m := &c.placing.mu
	m.Lock()
	defer m.Unlock()
	p.Why, p.RowNanos, p.PartitionNanos, p.ReplicateNanos = m.why, m.plan.Nanos, m.plan.Partition, m.plan.Replicate
	for i, d := range c.devices {
		s.Devices[i].BudgetBytes = min(c.space.budgets[i], c.budget.Load())
		s.Devices[i].Load = m.load[i]
		if d.isLost() {
			s.Devices[i].Lost, s.Devices[i].Error = true, fmt.Sprint(d.device.Err())
		}
	}
}
