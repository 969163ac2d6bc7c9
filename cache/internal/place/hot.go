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
	Bytes atomic.Int64 // slot bytes of the rows that are copied; math.MaxInt64 if all rows are

	o  HotOptions
	mu struct {
		sync.Mutex
		plan  placement.Plan
		why   string
		load  [slab.MaxSlabs]float64 // expected share of the hits that each slab serves
		since struct{ hits, lookups int64 }
	}
}

// HotOptions are the inputs of a decision.
type HotOptions struct {
	Mode     string
	Rates    placement.Rates // if zero, the rates are unknown and nothing is copied
	Observed func() int64    // accesses that the policy has observed
	// Cached returns the sum, over the devices that are not lost, of the slot bytes that rows take there in excess of beyond. ok is false
	// before the cache serves.
	Cached func(beyond int64) (used int64, ok bool)
}

// NewHot returns the initial decision: nothing is copied, unless the mode is Replicate.
func NewHot(o HotOptions, devices int) *Hot {
	h := &Hot{o: o}
	switch {
	case devices == 1:
		h.mu.why = "one device"
	case o.Mode == Replicate:
		h.Bytes.Store(math.MaxInt64)
		h.mu.why = "all rows are copied: Options.Devices.Placement"
	case o.Mode == Partition:
		h.mu.why = "partitioned: Options.Devices.Placement"
	case o.Rates == placement.Rates{}:
		h.mu.why = "partitioned: without Options.Devices.Rates it is not known whether copies pay"
	}
	return h
}

// DecideAt reports whether to decide again after the given number of refresh cycles. It is seldom true, because a decision needs a
// ranking.
func DecideAt(cycles int64) bool { return bits.OnesCount64(uint64(cycles)) == 1 || cycles%64 == 0 }

// Rows are copied or divided anew only if the predicted time is below betterBy times the present one.
const betterBy = 0.97

// Decide ranks the rows by the policy and predicts the load of each slab. If Mode is Auto, it then chooses which rows to copy. The
// policy must be an admission.Explainer, otherwise Decide changes nothing but the reason. payload has the bytes for slots of each device.
func (h *Hot) Decide(store *Store, policy admission.Policy, payload []int64) {
	explainer, ok := policy.(admission.Explainer)
	choose := h.o.Mode == Auto && h.o.Rates != placement.Rates{}
	m := &h.mu
	if !ok {
		if choose {
			why := fmt.Sprintf("partitioned: policy %s does not say how often rows are looked up", policy.Name()) // which may panic
			m.Lock()
			defer m.Unlock()
			m.why = why
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
		f := max(0, explainer.Explain(key).Frequency-1) // less one access, because rows are also ranked by chance
		known += f
		curve.LeastMiss = store.cost(table).LeastBytes()
		if slots > room { // a miss, however rows are placed
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
	curve.LeastMiss = store.cost(0).LeastBytes()
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

// addUnknown adds the lookups of rows that the policy does not track. Their number is chosen so that the curve has the hit rate measured
// since the last decision. Without a measurement, it is the number of observed accesses minus those of tracked rows.
func (h *Hot) addUnknown(tables []*read.Table, curve *placement.Curve, known float64) {
	var rowBytes, stored, rows float64
	var hits, lookups int64
	for t := range cacheable(tables) {
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

// State is the last decision, for Stats.
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
