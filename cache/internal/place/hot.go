package place

import (
	"fmt"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/placement"
)

// Values of HotOptions.Mode. Package cache documents them.
const (
	Auto      = "auto"
	Partition = "partition"
	Replicate = "replicate"
)

// Hot decides which rows are copied to every slab of their clique: the first of the policy's ranking.
type Hot struct {
	Bytes atomic.Int64 // slot bytes of the rows that are copied; the largest number: of all rows

	o  HotOptions
	mu struct {
		sync.Mutex
		plan  placement.Plan
		why   string
		load  [slab.MaxSlabs]float64 // expected share of the hits that each slab serves
		since struct{ hits, lookups int64 }
	}
}

// HotOptions are what a decision is made by.
type HotOptions struct {
	Mode     string
	Rates    placement.Rates // the zero value: unknown, so nothing is copied
	Observed func() int64    // accesses that the policy was told of
	// Cached returns the bytes of the slots that rows take on devices that are not lost, beyond so many bytes on each; ok is false while
	// the cache does not serve yet.
	Cached func(beyond int64) (used int64, ok bool)
}

// NewHot returns the decision before a policy was asked: nothing is copied, unless the mode is Replicate.
func NewHot(o HotOptions, devices int) *Hot {
	h := &Hot{o: o}
	switch {
	case devices == 1:
		h.mu.why = "one device"
	case o.Mode == Replicate:
		h.Bytes.Store(math.MaxInt64)
		h.mu.why = "all rows are copied: Options.Placement"
	case o.Mode == Partition:
		h.mu.why = "partitioned: Options.Placement"
	case o.Rates == placement.Rates{}:
		h.mu.why = "partitioned: Options.Rates, by which copies are weighed, are not given"
	}
	return h
}

// DecideAt says whether to decide again after so many cycles of refreshing: seldom, since a decision takes a ranking.
func DecideAt(cycles int64) bool { return bits.OnesCount64(uint64(cycles)) == 1 || cycles%64 == 0 }

// betterBy is how much less time another split must promise before rows are moved for it.
const betterBy = 0.97

// Decide ranks rows by the policy, predicts the load of each slab, and chooses which rows to copy where Mode is Auto. It needs a
// policy that says how often rows are looked up. payload is what slots may take on each device.
func (h *Hot) Decide(store *Store, policy admission.Policy, payload []int64) {
	explainer, ok := policy.(admission.Explainer)
	choose := h.o.Mode == Auto && h.o.Rates != placement.Rates{}
	m := &h.mu
	if !ok {
		if choose {
			m.Lock()
			m.why = fmt.Sprintf("partitioned: policy %s does not say how often rows are looked up", policy.Name())
			m.Unlock()
		}
		return
	}
	topology := store.Topology.Load()
	var clique []int // the largest
	for _, members := range topology.Cliques {
		if len(members) > len(clique) {
			clique = members
		}
	}
	var own []int64
	room := int64(0)
	for _, i := range clique {
		if topology.Live>>i&1 != 0 {
			own = append(own, payload[i])
			room += payload[i]
		}
	}
	var keys []uint64
	for key := range policy.Rank() {
		keys = append(keys, key)
	}
	curve, load := &placement.Curve{}, [slab.MaxSlabs]float64{}
	slots, hot, known := int64(0), h.Bytes.Load(), 0.0
	for _, key := range keys {
		table, row := hashmap.SplitKey(key)
		if table >= len(store.Set.Tables) || row >= store.Set.Tables[table].Tier.Rows() {
			continue
		}
		t := store.Set.Tables[table].Tier
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
		targets := topology.Targets(key, slots <= hot, Nowhere())
		for i := range SlabsOf(targets) {
			load[i] += f / float64(bits.OnesCount8(targets))
		}
	}
	h.addUnknown(store.Set.Tables, curve, known)
	sum := 0.0
	for _, f := range load {
		sum += f
	}
	m.Lock()
	defer m.Unlock()
	for i := range load {
		m.load[i] = load[i] / max(sum, 1e-300)
	}
	if h.o.Rates == (placement.Rates{}) || len(own) == 0 {
		return
	}
	problem := placement.Problem{Rates: h.o.Rates, Payload: own, Curve: curve}
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
	h.Bytes.Store(best.HotBytes)
}

// addUnknown adds the lookups of rows that the policy does not remember: so many that the curve gives the hit rate since the
// last decision, or else what the policy has been told beyond those of known rows.
func (h *Hot) addUnknown(tables []*read.Table, curve *placement.Curve, known float64) {
	var rowBytes, stored, rows float64
	var hits, lookups int64
	for _, t := range tables {
		total := t.Tier.Totals()
		rows += float64(total.Rows)
		rowBytes += float64(total.RawBytes)
		stored += float64(total.StoredBytes)
		done := t.Counts.Totals()
		hits += done.Hits
		lookups += done.Hits + done.Misses
	}
	unknown := max(0, float64(h.o.Observed())-known)
	since := &h.mu.since
	hot := h.Bytes.Load()
	if n := lookups - since.lookups; n >= 10_000 {
		if used, ok := h.o.Cached(hot); ok {
			rate := float64(hits-since.hits) / float64(n)
			if rate > 0.01 {
				unknown = max(0, curve.Lookups(used+hot)/rate-known)
			}
			since.hits, since.lookups = hits, lookups
		}
	}
	rows = max(1, rows)
	curve.AddTail(rowBytes/rows, stored/rows, unknown)
}

// State is what was decided, as Stats shows it.
type State struct {
	Plan placement.Plan
	Why  string
	Load [slab.MaxSlabs]float64
}

// State returns the last decision.
func (h *Hot) State() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return State{h.mu.plan, h.mu.why, h.mu.load}
}
