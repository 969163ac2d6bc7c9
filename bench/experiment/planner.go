package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/bench/predict"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/internal/setting"
)

// planner is a plan being made: it opens caches as a program would, lets them learn from the first part of the lookups, and counts what they hit of the rest.
type planner struct {
	cfg     PlanConfig
	base    *run // the first phase's, with the tables as they are
	small   miniature
	tables  []*dataset.Table // that are opened: in small if small.scale is not 1
	phases  []*phase
	model   *predict.Model            // nil with several devices or tables
	packed  map[string]*dataset.Table // pages of the table, by codec
	folder  string                    // of these; "" for none yet
	largest int                       // rows of the largest batch
	// checking has caches opened on the devices of the config.
	checking bool
}

// MakePlan finds, for each policy and codec, the least budget that reaches each target.
func MakePlan(ctx context.Context, cfg PlanConfig, progress Progress) (_ *PlanResult, err error) {
	cfg.ensureDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if gpus, _ := setting.GPUs(cfg.GPUs, cfg.Device); len(gpus) > 0 {
		cfg.Devices = len(gpus)
	}
	cfg.planned = cmp.Or(cfg.planned, exactRows)
	p := &planner{cfg: cfg, base: &run{cfg: cfg.Config, progress: progress}, packed: map[string]*dataset.Table{}}
	defer func() {
		if p.folder != "" {
			err = errors.Join(err, os.RemoveAll(p.folder))
		}
	}()
	if err := p.load(ctx); err != nil {
		return nil, err
	}
	res, err := p.result(ctx)
	if err != nil {
		return nil, err
	}
	var placed []*placing
	for _, codec := range p.codecs() {
		for _, policy := range cfg.Policies {
			of, err := p.plan(ctx, res, policy, codec)
			if err != nil {
				return nil, fmt.Errorf("plan: %s, %s: %w", policy, codec, err)
			}
			placed = append(placed, of)
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
	res.Verdict = res.verdict(cfg.AtBudget)
	return res, nil
}

// load loads the tables or their outline, makes the lookups and, of large tables, miniatures.
func (p *planner) load(ctx context.Context) error {
	r := p.base
	if p.cfg.Several() {
		if err := r.loadTables(); err != nil {
			return err
		}
	} else if err := r.load(); err != nil {
		return err
	}
	if m := r.all()[0].Paged(); m != nil && (p.cfg.Tiers.Page != "" || p.cfg.Tiers.Order != "") {
		return fmt.Errorf("--page and --order mean nothing for table %s, which is packed", r.all()[0].Name)
	}
	if m := r.all()[0].Paged(); m != nil && r.tables == nil {
		for _, codec := range p.cfg.Codecs {
			if codec != m.Codec && codec != registry.Auto {
				return fmt.Errorf("--codec (%s) must be %s, with which the table was packed, or not given", codec, m.Codec)
			}
		}
	}
	rows, bytes, block := int64(0), int64(0), int64(1)
	for _, t := range r.all() {
		rows, bytes = rows+int64(t.Rows), bytes+t.Bytes()
	}
	if t := p.cfg.Tiers; t.asked() && t.Order == "" {
		page, _ := t.pageBytes()
		block = max(1, int64(page/r.all()[0].RowBytes))
	}
	if p.small = miniatureOf(rows, bytes, block, int64(p.cfg.planned), p.cfg.Seed); p.small.scale == 1 && r.some != nil {
		return fmt.Errorf("experiment: a table of %d rows was not read", rows) // a mistake of outline
	}
	if p.cfg.Devices == 1 && r.tables == nil {
		var err error
		if p.model, err = predict.Reference(); err != nil {
			return err
		}
	}
	if err := p.makePhases(ctx); err != nil {
		return err
	}
	p.tables = r.all()
	if p.small.scale == 1 {
		return nil
	}
	for _, policy := range p.cfg.Policies {
		if spec, err := admission.Lookup(policy); err == nil && spec.Learns == admission.FromGraph {
			return fmt.Errorf("--policy %s needs all rows of the table (%d of %d B together): it takes at most %d, of %d B", policy, rows, bytes, exactRows, exactBytes)
		}
	}
	r.progress.Stage("making the table small", 0)
	p.tables = nil
	for _, t := range r.all() {
		small, err := p.small.table(ctx, t, r.some)
		if err != nil {
			return err
		}
		p.tables = append(p.tables, small)
	}
	return nil
}

// codecs returns those that are planned with. Of a table of pages it is theirs.
func (p *planner) codecs() []string {
	if m := p.base.all()[0].Paged(); m != nil && p.base.tables == nil {
		return []string{m.Codec}
	}
	return p.cfg.Codecs
}

// split has the cache learn from the first part of lookups that are one sequence, and be judged by the others.
func (p *planner) split(r *run) error {
	given := p.cfg.TrainBatches != Default && p.cfg.Learn == 0
	if apart := r.trainLast > 0 && r.first >= r.trainLast; r.training != r.measured || apart || given {
		return nil
	}
	if _, one := r.measured.(*workload.Replay[int64]); !one {
		r.trainFirst, r.trainLast = 0, max(1, r.last*learnShare/learnOf)
		r.first = r.trainLast
		if r.first >= r.last {
			return fmt.Errorf("lookups (%d batches) must be two batches at least: some train the policy, and some are measured", r.last)
		}
		return nil
	}
	ids := r.ids
	if p.cfg.Batches != Default {
		ids = ids[:min(len(ids), p.cfg.Batches*cmp.Or(p.cfg.BatchSize, defaultReplay))]
	}
	n := cmp.Or(int(p.cfg.Learn), len(ids)*learnShare/learnOf)
	if n < 1 || n >= len(ids) {
		return fmt.Errorf("--ids: lookups (%d) must be more than the %d that the cache learns from", len(ids), max(1, n))
	}
	size := cmp.Or(p.cfg.BatchSize, min(defaultReplay, (len(ids)-n+leastParts-1)/leastParts))
	training, err := workload.NewReplay(ids[:n], size)
	if err != nil {
		return err
	}
	measured, err := workload.NewReplay(ids[n:], size)
	r.training, r.trainFirst, r.trainLast = training, 0, training.Batches()
	r.measured, r.first, r.last = measured, 0, measured.Batches()
	return err
}

// The cache learns from learnShare of learnOf lookups, unless the plan says from how many.
const learnShare, learnOf = 3, 4

// result describes what was planned for.
func (p *planner) result(ctx context.Context) (*PlanResult, error) {
	r, cfg := p.base, &p.cfg
	res := &PlanResult{Answers: []Answer{}, Curve: []PlanPoint{}, Target: cfg.Targets[0], Devices: cfg.Devices, GPUMemory: cfg.GPUMemory}
	res.Table = infoOf(r.all()[0])
	if r.tables != nil {
		res.Table = TableInfo{Name: fmt.Sprintf("%d tables", len(r.tables))}
		for _, t := range r.tables {
			res.Tables = append(res.Tables, infoOf(t))
			res.Table.Rows += int64(t.Rows)
		}
	}
	if p.small.scale > 1 {
		for _, t := range p.tables {
			res.SampledRows += int64(t.Rows)
		}
	}
	ph := p.phases[0]
	w := &res.Workload
	w.Kind, w.Generated, w.Batches, w.TrainingBatches, w.TrainingLookups = ph.measured.Kind(), r.generated, ph.batches, ph.trainingBatches, ph.trainingLookups
	c := p.cfg.at(cfg.Policies[0], cfg.Codecs[0])
	w.RefreshBatches, w.Lookups = c.every(), ph.lookups
	seen := map[int64]struct{}{}
	for _, rows := range learnFrom(ctx, ph.measured, ph.first, ph.last) {
		for _, row := range rows {
			seen[row] = struct{}{}
		}
	}
	w.Rows = int64(len(seen)) * p.small.scale
	return res, ctx.Err()
}

// plan adds the answers of a policy and a codec to the result.
func (p *planner) plan(ctx context.Context, res *PlanResult, policy, codec string) (*placing, error) {
	s := newSearch(p, trial{policy: policy, codec: codec, slots: p.cfg.resident()})
	first := len(res.Plans) == 0
	answers, err := p.answers(ctx, s)
	if err != nil {
		return nil, err
	}
	of := &placing{policy: policy, codec: codec}
	if p.cfg.GPUMemory > 0 {
		if err := p.within(ctx, of); err != nil {
			return nil, err
		}
	}
	for i := range answers {
		a, o := &answers[i], s.at(answers[i].BudgetBytes)
		if p.cfg.Check {
			if a.SeenHit, err = p.check(ctx, policy, codec, a.BudgetBytes); err != nil {
				return nil, fmt.Errorf("checking: %w", err)
			}
		}
		plan := o.planOf(a, codec)
		if of.cached != nil {
			plan.GPU = &GPUPlan{plan.BudgetBytes <= of.budget, of.budget, of.cached.HitRatio}
			plan.Resident = of.resident
		}
		if err := p.tiers(ctx, &plan, o); err != nil {
			return nil, err
		}
		res.Plans = append(res.Plans, plan)
	}
	if first {
		res.Answers = answers
		for _, o := range s.tried {
			if o.lookups > 0 {
				res.Curve = append(res.Curve, o.PlanPoint)
			}
		}
		res.EnoughBytes = s.enough()
	}
	return of, nil
}

// answers finds the least budget for each target, or what the budget of the config hits.
func (p *planner) answers(ctx context.Context, s *search) ([]Answer, error) {
	if p.cfg.AtBudget {
		raw := int64(0)
		for _, t := range p.base.all() {
			raw += t.Bytes()
		}
		budget, err := p.cfg.residentBudget(p.base.all(), raw)
		if err != nil {
			return nil, err
		}
		o, err := s.try(ctx, budget)
		if err != nil {
			return nil, err
		}
		return []Answer{{TargetHit: o.HitRatio, Reached: true, Policy: s.policy, PlanPoint: o.PlanPoint}}, nil
	}
	if err := s.sketch(ctx); err != nil {
		return nil, err
	}
	var all []Answer
	for _, target := range p.cfg.Targets {
		o, err := s.least(ctx, target, nearBudget)
		if err != nil {
			return nil, err
		}
		all = append(all, Answer{TargetHit: target, Reached: o.HitRatio >= target, Policy: s.policy, PlanPoint: o.PlanPoint})
	}
	if len(p.cfg.Policies)*len(p.cfg.Codecs) == 1 { // where nothing more is gained
		if _, err := s.least(ctx, s.best()-enoughBelow, nearEnough); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// check opens a cache over the whole tables, and returns what it hits.
func (p *planner) check(ctx context.Context, policy, codec string, budget int64) (*float64, error) {
	whole := *p
	whole.checking = true
	if p.small.scale > 1 {
		if p.base.some != nil && p.cfg.Features == "" {
			return nil, fmt.Errorf("--check needs all rows of table %s, which is generated and has more (%d) than are made for a plan", p.base.table.Name, p.base.table.Rows)
		}
		r := &run{cfg: p.cfg.Config, progress: p.base.progress}
		r.cfg.planned = 0
		if p.cfg.Several() {
			if err := r.loadTables(); err != nil {
				return nil, err
			}
		} else if err := r.load(); err != nil {
			return nil, err
		}
		whole.cfg.planned, whole.base, whole.small, whole.phases = 0, r, miniature{scale: 1, block: 1}, nil
		whole.cfg.Phases = p.cfg.Phases[:min(1, len(p.cfg.Phases))]
		if err := whole.makePhases(ctx); err != nil {
			return nil, err
		}
		whole.tables = r.all()
	}
	o, err := whole.try(ctx, trial{policy: policy, codec: codec, slots: p.cfg.resident(), budget: budget})
	if err != nil {
		return nil, err
	}
	return &o.HitRatio, nil
}

// verdict says the answers in a sentence.
func (r *PlanResult) verdict(atBudget bool) string {
	if w := &r.Workload; w.Lookups < tooFew {
		return fmt.Sprintf("too few lookups to answer: %d to learn from, %d to judge by; give --ids thousands", w.TrainingLookups, w.Lookups)
	}
	var said []string
	percent := func(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }
	each := ""
	if r.Devices > 1 {
		each = fmt.Sprintf(" on each of %d devices", r.Devices)
	}
	most := int64(0)
	for _, a := range r.Answers {
		most = max(most, a.BudgetBytes)
		text := fmt.Sprintf("%s%s gives %s (%.0f to %s)", sizeOf(a.BudgetBytes), each, percent(a.HitRatio), 100*a.HitLow, percent(a.HitHigh))
		if each = ""; !a.Reached {
			text = fmt.Sprintf("%s is out of reach: %s", percent(a.TargetHit), text)
		}
		said = append(said, text)
	}
	if !atBudget && r.EnoughBytes > most {
		said = append(said, fmt.Sprintf("more than %s buys nothing", sizeOf(r.EnoughBytes)))
	} else if !atBudget && len(r.Answers) > 0 && r.EnoughBytes > 0 {
		said = append(said, "more buys nothing")
	}
	text := strings.Join(slices.Compact(said), "; ")
	if g := r.Workload.Generated; g != nil && g.From == "" {
		text += "; of invented lookups, which say nothing about yours: give --ids"
	}
	return text
}

// tooFew lookups say a hit rate to within 10 points at best, 19 times of 20.
const tooFew = 100

// codecName is a codec as it is asked for of a table of pages, which have theirs.
func codecName(t *dataset.Table, name string) string {
	if t.Paged() != nil {
		return registry.Auto
	}
	return name
}
