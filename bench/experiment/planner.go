package experiment

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/bench/gpu"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
)

// mostCycles bounds the refresh cycles of a simulation whose interval is not given: each cycle ranks all rows that were accessed, and a text of a
// language model has thousands of small batches.
const mostCycles = 64

// scratchBytes is the most device memory that batches under way take on a device beside 32 bytes a row of the largest
// (cache.Stats.ScratchBytes).
const scratchBytes = 32 << 20

// planner is a plan being made.
type planner struct {
	cfg    PlanConfig
	base   *run // the first phase's
	phases []phase
	looked *looked    // rows that are counted; nil: all
	model  *gpu.Model // nil with several devices
	counts []int64    // of each row in the measured batches
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
	cfg.planned = cmp.Or(cfg.planned, exactRows)
	p := &planner{cfg: cfg, base: &run{cfg: cfg.Config, progress: progress}, found: map[string]int64{}}
	r := p.base
	if err := r.load(); err != nil {
		return nil, err
	}
	codecs, err := p.codecs()
	if err != nil {
		return nil, err
	}
	if r.some != nil && cfg.Check {
		return nil, fmt.Errorf("--check needs all rows of table %s (%d of %d B): it takes at most %d", r.table.Name, r.table.Rows, r.table.RowBytes, cfg.planned)
	}
	if cfg.Devices == 1 {
		if p.model, err = gpu.Reference(); err != nil {
			return nil, err
		}
	}
	if err := p.makePhases(ctx); err != nil {
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
	var placed []placing
	for _, codec := range codecs {
		s, err := p.sizes(ctx, codec)
		if err != nil {
			return nil, err
		}
		res.SampledRows = len(s.lengths)
		for _, policy := range cfg.Policies {
			progress.Stage(fmt.Sprintf("planning (%s, %s)", policy, codec), 0)
			plan, c, err := p.plan(ctx, s, policy, codec)
			if err != nil {
				return nil, fmt.Errorf("plan: %s, %s: %w", policy, codec, err)
			}
			res.Plans = append(res.Plans, *plan)
			placed = append(placed, placing{s, c, plan})
		}
	}
	// All codecs of a policy together, policies as they were given.
	slices.SortStableFunc(res.Plans, func(a, b Plan) int {
		return slices.Index(cfg.Policies, a.Policy) - slices.Index(cfg.Policies, b.Policy)
	})
	p.predict(res)
	if res.Placements, err = p.placements(ctx, placed); err != nil {
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

// codecs returns those that are planned with: of a table of pages, that of the pages.
func (p *planner) codecs() ([]string, error) {
	m := p.base.table.Paged()
	switch {
	case m == nil && len(p.cfg.Codecs) == 0:
		return PlannedCodecs(), nil
	case m == nil:
		return p.cfg.Codecs, nil
	}
	for _, codec := range p.cfg.Codecs {
		if codec != m.Codec && codec != registry.Auto {
			return nil, fmt.Errorf("--codec (%s) must be %s, with which the table was packed, or not given", codec, m.Codec)
		}
	}
	return []string{m.Codec}, nil
}

// sizes says what the table's rows take with a codec.
func (p *planner) sizes(ctx context.Context, codec string) (*sizes, error) {
	r := p.base
	if r.some != nil || r.table.Paged() != nil {
		return r.sampleSizes(ctx, codec, p.looked)
	}
	return measureSizes(ctx, r.table, &r.cfg, codec, r.progress)
}

// count counts the measured accesses, and joins training and measured batches for simulation.
func (p *planner) count(ctx context.Context) error {
	r := p.base
	r.progress.Stage("counting", 0)
	n := int64(r.table.Rows)
	if p.looked != nil {
		n = p.looked.n
	}
	p.counts = make([]int64, n)
	for _, rows := range learnFrom(ctx, r.measured, r.first, r.last) {
		for _, row := range rows {
			p.counts[row]++
		}
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
func (p *planner) plan(ctx context.Context, s *sizes, policy, codec string) (*Plan, *curve, error) {
	r := *p.base
	r.cfg = p.cfg.at(policy, codec)
	if err := r.fit(); err != nil {
		return nil, nil, err
	}
	plan := &Plan{Policy: policy, Codec: codec, ChosenCodec: s.codec, CompressionRatio: s.ratio, BesideBytes: s.beside(), ReserveBytes: scratchBytes + 32*int64(p.batch), Reached: true}
	available := p.cfg.GPUMemory - plan.BesideBytes - plan.ReserveBytes
	if p.cfg.GPUMemory > 0 {
		plan.GPU = &GPUPlan{BudgetBytes: max(0, available)}
	}
	c, err := p.curve(ctx, &r, s)
	if err != nil {
		return nil, nil, err
	}
	entries := int64(0) // of the curve
	if r.spec.Online {
		plan.Method = Simulated
		err = p.simulated(ctx, &r, s, c, plan)
		entries = c.entriesOf(plan.Rows)
	} else {
		plan.Method = Exact
		entries = c.entriesFor(p.cfg.Target)
		plan.Rows, plan.PayloadBytes, plan.PredictedHitRatio = c.rows[entries-1], c.bytes[entries-1], c.hitRatio(entries)
		plan.PredictedRowNS = c.rowNanos(entries)
		if plan.GPU != nil {
			plan.GPU.HitRatio = c.hitRatio(c.within(s, available))
		}
	}
	if err != nil {
		return nil, nil, err
	}
	plan.BudgetBytes = s.budgetFor(plan.Rows, plan.PayloadBytes)
	plan.MetadataBytes = plan.BudgetBytes*s.devices - plan.PayloadBytes
	if err := p.tiers(ctx, s, c, plan, entries); err != nil {
		return nil, nil, err
	}
	plan.Resident = p.resident(s, c, plan, available)
	plan.TotalBytes = (plan.BudgetBytes + plan.BesideBytes + plan.ReserveBytes) * s.devices
	if plan.GPU != nil {
		plan.GPU.Fits = plan.BudgetBytes <= available
	}
	return plan, c, nil
}

// curve is that of the run's policy, or of the rows as often as they are accessed if the policy follows the accesses. Where rows share slots, what policies see as
// their sizes depends on how many are cached: then it is that of a cache of about the planned size.
func (p *planner) curve(ctx context.Context, r *run, s *sizes) (*curve, error) {
	c, err := p.curveOf(ctx, r, s, s.slots, s.rows)
	for round := 0; err == nil && s.group != nil && round < 4; round++ {
		rows := c.entriesFor(p.cfg.Target)
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

// check measures the hit ratio of a cache with the plan's budget.
func (p *planner) check(ctx context.Context, plan *Plan, progress Progress) error {
	r := *p.base
	codec := plan.Codec
	if r.table.Paged() != nil {
		codec = registry.Auto // the pages say
	}
	r.cfg = p.cfg.at(plan.Policy, codec)
	r.cfg.Budget = fmt.Sprint(plan.BudgetBytes)
	if err := r.fit(); err != nil {
		return err
	}
	m, err := r.measure(ctx, codec, r.cfg.HostTier, false)
	if err != nil {
		return err
	}
	hit := ratio(m.stats.Tables[0].Hits, m.stats.Tables[0].Lookups)
	plan.MeasuredHitRatio = &hit
	return nil
}
