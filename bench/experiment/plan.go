package experiment

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/tensorcache/tensorcache/bench/gpu"
	"github.com/tensorcache/tensorcache/bench/sim"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/faults"
)

// PlanConfig asks how many bytes of device memory a hit ratio takes.
type PlanConfig struct {
	// Config is the table, the workload and the caches. Its Budget, Policy, Codec and Cold are ignored.
	Config
	Policies, Codecs []string
	// Target is the hit ratio, above 0 and at most 1.
	Target float64
	// GPUMemory is the bytes of each device, 0 if that does not matter.
	GPUMemory int64
	// Check runs a cache of each plan.
	Check bool
	Tiers TiersConfig
}

// NewPlanConfig returns the default plan.
func NewPlanConfig() PlanConfig {
	return PlanConfig{
		Config: NewConfig(), Target: 0.9, Codecs: []string{registry.None, "ibp4", "ibp8"},
		Policies: []string{admission.Default, "static-freq", "static-optimal"},
	}
}

// Methods of prediction.
const (
	// Exact counts the hits of the rows that a cache which is filled once holds.
	Exact = "exact"
	// Simulated runs the policy over the workload, with a model of a cache that begins empty and follows it.
	Simulated = "simulated"
)

// Plan is what one policy and codec need.
type Plan struct {
	Policy string `json:"policy"`
	Codec  string `json:"codec"`
	// ChosenCodec differs from Codec where that is a choice of several.
	ChosenCodec      string  `json:"chosen_codec"`
	CompressionRatio float64 `json:"compression_ratio"`
	Method           string  `json:"method"`
	// Reached says that there is a cache that reaches the target. Else the plan is for the best there is.
	Reached bool `json:"reached"`
	// Rows are those that the cache holds.
	Rows int64 `json:"rows"`
	// BudgetBytes is the value for --budget, of each device: payload and metadata. PayloadBytes and MetadataBytes are sums over the
	// devices. BesideBytes is device memory outside the budget, on each device: codec tables and the index of a packed host tier.
	// ReserveBytes is kept free on each device for batches under way. TotalBytes is all of that on all devices.
	BudgetBytes   int64 `json:"budget_bytes"`
	PayloadBytes  int64 `json:"payload_bytes"`
	MetadataBytes int64 `json:"metadata_bytes"`
	BesideBytes   int64 `json:"beside_bytes"`
	ReserveBytes  int64 `json:"reserve_bytes"`
	TotalBytes    int64 `json:"total_bytes"`
	// PredictedHitRatio is of that cache.
	PredictedHitRatio float64 `json:"predicted_hit_ratio"`
	// PredictedRowNS is the mean time of a looked-up row, hits and misses one after the other, in nanoseconds: what policies minimise
	// (admission.Cost), on a GPU.
	PredictedRowNS float64 `json:"predicted_row_ns"`
	// PredictedBatchMS is what a batch of BatchTimes.Rows is predicted to take with that cache. nil: no figures of this codec, or several devices.
	PredictedBatchMS *float64 `json:"predicted_batch_ms,omitempty"`
	// GPU is there with PlanConfig.GPUMemory.
	GPU *GPUPlan `json:"gpu,omitempty"`
	// Resident is the table as a resident one with this codec, beside a cache.
	Resident *PlannedResident `json:"resident"`
	// Tiers has an entry for each of TiersConfig.HostMemories. LeastHost is there if that has a bandwidth and a rate.
	Tiers     []PlannedTiers `json:"tiers,omitempty"`
	LeastHost *PlannedHost   `json:"least_host_memory,omitempty"`
	// MeasuredHitRatio is there with PlanConfig.Check.
	MeasuredHitRatio *float64 `json:"measured_hit_ratio,omitempty"`
}

// GPUPlan is what the memory of a device means to a plan.
type GPUPlan struct {
	// Fits says that the plan's cache fits, with the memory of batches under way.
	Fits bool `json:"fits"`
	// BudgetBytes is what the memory leaves for --budget, at least 0, and HitRatio what a cache of it is predicted to reach.
	BudgetBytes int64   `json:"budget_bytes"`
	HitRatio    float64 `json:"hit_ratio"`
}

// PlanResult is what a plan finds. Its JSON form is what `cachebench plan --json` prints.
type PlanResult struct {
	Table    TableInfo `json:"table"`
	Workload struct {
		Kind    string `json:"kind"`
		Batches int    `json:"batches"`
		Lookups int64  `json:"lookups"`
		// Rows are the different ones among the lookups.
		Rows            int64 `json:"rows"`
		TrainingBatches int   `json:"training_batches"`
		// RefreshBatches is the number of batches between the refresh cycles of policies that follow the accesses.
		RefreshBatches int `json:"refresh_batches"`
	} `json:"workload"`
	Target    float64 `json:"target_hit_ratio"`
	Devices   int     `json:"devices"`
	GPUMemory int64   `json:"gpu_memory,omitempty"`
	Plans     []Plan  `json:"plans"`
	// Batch is there with one device.
	Batch *BatchTimes `json:"batch,omitempty"`
}

// BatchTimes is what a batch of the mean number of rows is predicted to take on a GPU without a cache, in milliseconds.
type BatchTimes struct {
	// Device is the GPU whose measured figures the predictions are made from: gpu.Model.
	Device string  `json:"device"`
	Rows   float64 `json:"rows"`
	// UncachedMS is if all rows are read from page-locked host memory, ResidentMS if the whole table lies on the GPU, both uncompressed.
	UncachedMS float64 `json:"uncached_ms"`
	ResidentMS float64 `json:"resident_ms"`
}

// predict fills in the predicted times of batches.
func (p *planner) predict(res *PlanResult) error {
	model, err := gpu.Reference()
	if err != nil || res.Devices != 1 {
		return err
	}
	t, rows := p.base.table, float64(res.Workload.Lookups)/float64(res.Workload.Batches)
	ms := func(codec string, hitRatio, stored float64, cached int64) float64 {
		hits := rows * hitRatio
		return 1e3 * model.Seconds(gpu.Batch{
			RowBytes: t.RowBytes, Codec: codec, DType: t.DType, Lookups: rows, Hits: hits, Stored: stored / float64(t.RowBytes), MissBytes: (rows - hits) * stored, UncachedBytes: float64(int64(t.Rows)-cached) * float64(t.RowBytes),
		})
	}
	rowBytes := float64(t.RowBytes)
	res.Batch = &BatchTimes{model.Device, rows, 1e3 * model.Uncached(rows, t.RowBytes), ms(registry.None, 1, rowBytes, int64(t.Rows))}
	for i := range res.Plans {
		if plan := &res.Plans[i]; model.Knows(plan.ChosenCodec) {
			took := ms(plan.ChosenCodec, plan.PredictedHitRatio, rowBytes/plan.CompressionRatio, plan.Rows)
			plan.PredictedBatchMS = &took
		}
	}
	return nil
}

// Validate reports all faults at once.
func (p *PlanConfig) Validate() error {
	var f faults.List
	f.If(!(p.Target > 0 && p.Target <= 1), "--target-hit (%.6g %%) must be above 0 %% and at most 100 %%", 100*p.Target)
	f.If(p.GPUMemory < 0, "--gpu-memory (%d B) must not be negative", p.GPUMemory)
	f.If(!(p.SampleRate > 0), "--sample-rate (%v) must be above 0", p.SampleRate)
	f.If(!(p.RefreshChurn > 0), "--refresh-churn (%v) must be above 0", p.RefreshChurn)
	f.If(p.RefreshInterval != 0, "--refresh-interval (%v) must be 0: a plan goes by batches", p.RefreshInterval)
	p.Tiers.validate(&f)
	p.validateResident(&f)
	for _, a := range []axis{{"policy", p.Policies}, {"codec", p.Codecs}} {
		f.If(len(a.values) == 0, "--%s () must have at least one value", a.flag)
	}
	for _, policy := range p.Policies {
		for _, codec := range p.Codecs {
			c := p.at(policy, codec)
			f.Add(c.Validate())
		}
	}
	return once(f.Err())
}

// at returns the run that a plan is for: policies that follow the accesses begin with an empty cache.
func (p *PlanConfig) at(policy, codec string) Config {
	c := p.Config
	c.Policy, c.Codec = policy, codec
	c.Overflow, c.Buddy = 0, ""         // of the resident table beside it
	spec, _ := admission.Lookup(policy) // Validate says if there is none
	if c.Cold = spec.Online; !c.Cold {  // not refreshed; the workload drifts all the same
		c.RefreshBatches, c.Drift = 0, 0
	}
	return c
}

// mostCycles bounds the refresh cycles of a simulation whose interval is not given: each cycle ranks all rows that were accessed, and a text of a
// language model has thousands of small batches.
const mostCycles = 64

// scratchBytes is the most device memory that batches under way take on a device beside 32 bytes a row of the largest
// (cache.Stats.ScratchBytes).
const scratchBytes = 32 << 20

// planner is a plan being made.
type planner struct {
	cfg    PlanConfig
	base   *run
	counts []int64 // of each row in the measured batches
	stream *recorded
	warmup int              // batches of the stream
	batch  int              // rows of the largest
	found  map[string]int64 // rows that a simulated policy needs, by its name
}

// MakePlan predicts, for each policy and codec, the least budget that reaches the target.
func MakePlan(ctx context.Context, cfg PlanConfig, progress Progress) (*PlanResult, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &planner{cfg: cfg, base: &run{cfg: cfg.Config, progress: progress}, found: map[string]int64{}}
	r := p.base
	if err := r.load(); err != nil {
		return nil, err
	}
	if err := r.table.InMemory(); err != nil {
		return nil, err
	}
	if err := r.sample(); err != nil {
		return nil, err
	}
	if err := r.record(ctx); err != nil {
		return nil, err
	}
	if err := p.count(ctx); err != nil {
		return nil, err
	}
	if p.cfg.RefreshBatches == 0 {
		batches := r.trainLast - r.trainFirst + r.last - r.first
		p.cfg.RefreshBatches = max(defaultRefreshBatches, (batches+mostCycles-1)/mostCycles)
	}
	res := &PlanResult{Table: infoOf(r.table), Target: cfg.Target, Devices: cfg.Devices, GPUMemory: cfg.GPUMemory}
	w := &res.Workload
	w.Kind, w.Batches, w.TrainingBatches, w.RefreshBatches = r.measured.Kind(), r.last-r.first, r.trainLast-r.trainFirst, p.cfg.RefreshBatches
	for _, n := range p.counts {
		if w.Lookups += n; n > 0 {
			w.Rows++
		}
	}
	for _, codec := range cfg.Codecs {
		s, err := measureSizes(ctx, r.table, &r.cfg, codec, progress)
		if err != nil {
			return nil, err
		}
		for _, policy := range cfg.Policies {
			progress.Stage(fmt.Sprintf("planning (%s, %s)", policy, codec), 0)
			plan, err := p.plan(ctx, s, policy, codec)
			if err != nil {
				return nil, fmt.Errorf("plan: %s, %s: %w", policy, codec, err)
			}
			res.Plans = append(res.Plans, *plan)
		}
	}
	// All codecs of a policy together, policies as they were given.
	slices.SortStableFunc(res.Plans, func(a, b Plan) int {
		return slices.Index(cfg.Policies, a.Policy) - slices.Index(cfg.Policies, b.Policy)
	})
	if err := p.predict(res); err != nil {
		return nil, err
	}
	if cfg.Check {
		for i := range res.Plans {
			if err := p.check(ctx, &res.Plans[i], progress); err != nil {
				return nil, fmt.Errorf("plan: checking %s, %s: %w", res.Plans[i].Policy, res.Plans[i].Codec, err)
			}
		}
	}
	return res, nil
}

// count counts the measured accesses, and joins training and measured batches for simulation.
func (p *planner) count(ctx context.Context) error {
	r := p.base
	r.progress.Stage("counting", 0)
	p.counts = make([]int64, r.table.Rows)
	for _, rows := range learnFrom(ctx, r.measured, r.first, r.last) {
		for _, row := range rows {
			p.counts[row]++
		}
		p.batch = max(p.batch, len(rows))
	}
	p.stream = &recorded{kind: r.measured.Kind(), ends: []int{0}}
	if !slices.ContainsFunc(p.cfg.Policies, func(name string) bool { spec, _ := admission.Lookup(name); return spec.Online }) {
		return ctx.Err()
	}
	p.warmup = r.trainLast - r.trainFirst
	for _, part := range []struct {
		w        workload.Workload
		from, to int
	}{{r.training, r.trainFirst, r.trainLast}, {r.measured, r.first, r.last}} {
		if err := p.stream.add(ctx, part.w, part.from, part.to, r.progress.Step); err == errTooLong {
			return fmt.Errorf("plan: workload (%s) must have at most %d row numbers to be simulated: lower --batches", p.stream.kind, maxRecorded)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// plan finds the least cache that reaches the target.
func (p *planner) plan(ctx context.Context, s *sizes, policy, codec string) (*Plan, error) {
	r := *p.base
	r.cfg = p.cfg.at(policy, codec)
	if err := r.fit(); err != nil {
		return nil, err
	}
	plan := &Plan{Policy: policy, Codec: codec, ChosenCodec: s.codec, CompressionRatio: s.ratio, BesideBytes: s.beside(), ReserveBytes: scratchBytes + 32*int64(p.batch), Reached: true}
	available := p.cfg.GPUMemory - plan.BesideBytes - plan.ReserveBytes
	if p.cfg.GPUMemory > 0 {
		plan.GPU = &GPUPlan{BudgetBytes: max(0, available)}
	}
	c, err := p.curve(ctx, &r, s)
	if err != nil {
		return nil, err
	}
	if r.spec.Online {
		plan.Method = Simulated
		err = p.simulated(ctx, &r, s, c, plan)
	} else {
		plan.Method = Exact
		plan.Rows = c.rowsFor(p.cfg.Target)
		plan.PayloadBytes, plan.PredictedHitRatio = c.bytes[plan.Rows-1], c.hitRatio(plan.Rows)
		plan.PredictedRowNS = c.rowNanos(plan.Rows)
		if plan.GPU != nil {
			plan.GPU.HitRatio = c.hitRatio(c.rowsWithin(s, available))
		}
	}
	if err != nil {
		return nil, err
	}
	plan.BudgetBytes = s.budgetFor(plan.Rows, plan.PayloadBytes)
	plan.MetadataBytes = plan.BudgetBytes*s.devices - plan.PayloadBytes
	if err := p.tiers(ctx, s, c, plan); err != nil {
		return nil, err
	}
	plan.Resident = p.resident(s, c, plan, available)
	plan.TotalBytes = (plan.BudgetBytes + plan.BesideBytes + plan.ReserveBytes) * s.devices
	if plan.GPU != nil {
		plan.GPU.Fits = plan.BudgetBytes <= available
	}
	return plan, nil
}

// curve is that of the run's policy, or of the rows as often as they are accessed if the policy follows the accesses. Where rows share slots, what policies see as
// their sizes depends on how many are cached: then it is that of a cache of about the planned size.
func (p *planner) curve(ctx context.Context, r *run, s *sizes) (*curve, error) {
	c, err := p.curveOf(ctx, r, s, s.slots, int64(len(s.slot)))
	for round := 0; err == nil && s.group != nil && round < 4; round++ {
		rows := c.rowsFor(p.cfg.Target)
		c, err = p.curveOf(ctx, r, s, c.bytes[rows-1], rows)
	}
	return c, err
}

// curveOf is curve for policies that see sizes of rows in a cache of so many slot bytes and rows.
func (p *planner) curveOf(ctx context.Context, r *run, s *sizes, capacity, rows int64) (*curve, error) {
	policy, training, from, to := admission.Policy(nil), r.training, r.trainFirst, r.trainLast
	if r.spec.Online {
		policy, training, from, to = admission.NewStaticOptimal(), r.measured, r.first, r.last
	} else {
		var err error
		if policy, err = r.policy(); err != nil {
			return nil, err
		}
	}
	defer policy.Close()
	if err := policy.Start(s.problem(capacity, rows)); err != nil {
		return nil, err
	}
	for table, rows := range learnFrom(ctx, training, from, to) {
		policy.Observe(table, rows)
	}
	return newCurve(s, policy.Rank(), p.counts), ctx.Err()
}

// simulated searches the least capacity with which the simulated policy reaches the target. The curve of the best static cache
// is where it begins.
func (p *planner) simulated(ctx context.Context, r *run, s *sizes, best *curve, plan *Plan) error {
	nanos := map[int64]float64{} // of a row, by capacity
	var mu sync.Mutex
	hitRatio := func(capacity int64) (float64, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		policy, err := r.policy()
		if err != nil {
			return 0, err
		}
		o := &r.cfg.Online
		out, err := sim.Run(
			&sim.Stream{
				Batches: p.stream, Warmup: p.warmup, Slot: s.slot, Stored: s.stored, Group: s.group, Priced: s.priced(capacity + int64(float64(s.rowsIn(capacity))*s.mapBytes())), Cost: s.cost, Capacity: capacity, Entries: s.rowsIn(capacity), Graph: r.graph,
			},
			policy, sim.Options{
				Every: o.every(), Evict: o.RefreshChurn, Churn: min(1, defaultRefreshBytes/float64(capacity)), Sampling: o.SampleRate, Seed: r.cfg.Seed,
			},
		)
		if err != nil {
			return 0, err
		}
		mu.Lock()
		defer mu.Unlock()
		nanos[capacity] = 1e9 * out.Seconds / float64(max(1, out.Lookups))
		return out.HitRatio(), nil
	}
	most := int64(0) // whatever the stream accesses
	accessed, held := make([]bool, len(s.slot)), make([]bool, len(s.members))
	for _, row := range p.stream.rows {
		if !accessed[row] {
			accessed[row] = true
			if s.group != nil && s.group[row] != 0 {
				if held[s.group[row]] {
					continue
				}
				held[s.group[row]] = true
			}
			most += int64(s.slot[row])
		}
	}
	if plan.GPU != nil {
		if capacity := min(most, s.capacityOf(plan.GPU.BudgetBytes)); capacity > 0 {
			var err error
			if plan.GPU.HitRatio, err = hitRatio(capacity); err != nil {
				return err
			}
		}
	}
	from := best.bytes[best.rowsFor(p.cfg.Target)-1]
	to := from + from/2
	if rows := p.found[plan.Policy]; rows > 0 { // with another codec it takes about as many
		mean := float64(rows) * float64(s.slots) / float64(len(s.slot))
		from, to = int64(mean/narrow), int64(mean*narrow)
	}
	capacity, hit, err := search(hitRatio, from, to, most, p.cfg.Target)
	if err != nil {
		return err
	}
	plan.Reached = hit >= p.cfg.Target
	plan.PayloadBytes, plan.PredictedHitRatio, plan.Rows = capacity, hit, s.rowsIn(capacity)
	plan.PredictedRowNS = nanos[capacity]
	p.found[plan.Policy] = plan.Rows
	return nil
}

// narrow is how far apart, as a factor, a simulated capacity lies from one that is expected to be right.
const narrow = 1.004

// search returns the least capacity, to a hundredth, that reaches the target, or most if none does. It begins with two capacities
// that may have it between them, and calls f for two at a time. f must not fall but for noise.
func search(f func(int64) (float64, error), a, b, most int64, target float64) (capacity int64, hit float64, err error) {
	lo, hi := int64(0), most // lo does not reach the target; hi does once it is known to
	var atLo, atHi float64
	reached := false
	grow, spread := max(1.1, float64(b)/float64(max(1, a))), narrow
	for !reached || float64(hi) > 1.01*float64(lo)+hashmap.SlotBytes {
		last := hi // that is worth a call
		if reached {
			last--
		}
		a = max(lo+1, min(a, last))
		b = max(a, min(b, last))
		var second float64
		var failed error
		var other sync.WaitGroup
		if a != b {
			other.Go(func() { second, failed = f(b) })
		}
		first, err := f(a)
		other.Wait()
		if err := cmp.Or(err, failed); err != nil {
			return 0, 0, err
		}
		switch {
		case first >= target:
			hi, atHi, reached = a, first, true
		case a == b:
			lo, atLo = a, first
		case second >= target:
			lo, atLo, hi, atHi, reached = a, first, b, second, true
			spread = narrow
		default:
			lo, atLo = b, second
		}
		if lo == most {
			return most, atLo, nil
		}
		x, y := float64(lo), float64(hi)
		switch {
		case !reached:
			grow *= grow
			a, b = clamp(x*grow), clamp(x*grow*grow)
		case lo == 0:
			grow *= grow
			a, b = clamp(y/grow/grow), clamp(y/grow)
		case spread*spread < y/x: // the hit ratio grows with the logarithm, nearly: the farther the first guesses were off, the wider are the next
			x *= math.Pow(y/x, (target-atLo)/(atHi-atLo))
			a, b = clamp(x/spread), clamp(x*spread)
			spread *= spread * spread * spread
		default:
			a, b = clamp(math.Cbrt(x*x*y)), clamp(math.Cbrt(x*y*y))
		}
	}
	return hi, atHi, nil
}

func clamp(x float64) int64 { return int64(min(x, 1<<60)) }

// check measures the hit ratio of a cache with the plan's budget.
func (p *planner) check(ctx context.Context, plan *Plan, progress Progress) error {
	r := *p.base
	r.cfg = p.cfg.at(plan.Policy, plan.Codec)
	r.cfg.Budget = fmt.Sprint(plan.BudgetBytes)
	if err := r.fit(); err != nil {
		return err
	}
	m, err := r.measure(ctx, plan.Codec, r.cfg.HostTier, false)
	if err != nil {
		return err
	}
	hit := ratio(m.stats.Tables[0].Hits, m.stats.Tables[0].Lookups)
	plan.MeasuredHitRatio = &hit
	return nil
}
