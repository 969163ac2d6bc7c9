package experiment

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tensorcache/tensorcache/bench/predict"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/internal/faults"
)

// phase is one way in which batches of a plan's workload come.
type phase struct {
	*run        // with the batches: of a miniature, if there is one
	name string // "" if the workload has no phases
	// rows are those of the mean batch.
	rows float64
	// Batches and lookups of the tables as they are: those that the cache did not learn from, and those that it did.
	batches, trainingBatches int
	lookups, trainingLookups int64
	// merged is how many batches of the tables are one of the miniature, and whole their lookups; nil: as many as the batch has.
	merged int
	whole  []int64
}

// wholeBatch returns how many lookups of the tables batch i stands for, which has n itself.
func (p *phase) wholeBatch(i, n int) int64 {
	if p.whole == nil {
		return int64(n)
	}
	return p.whole[i]
}

// captured says whether the phase's batches are replays of a graph, as those of decode are.
func (p *phase) captured() bool { return p.name == string(workload.Decode) }

func (p *PlanConfig) validatePhases() error {
	f := faults.List{}
	f.If(len(p.Phases) > 0 && !p.readsText(), "--phase means nothing without --workload %s", ngramKind)
	seen := map[workload.Phase]bool{}
	for _, text := range p.Phases {
		name, _, err := parsePhase(text)
		f.Add(err)
		f.If(err == nil && seen[name], "--phase (%s) must not be given twice", name)
		seen[name] = true
	}
	return f.Err()
}

// parsePhase reads "decode", or "decode:256".
func parsePhase(text string) (name workload.Phase, tokens int, err error) {
	of, size, sized := strings.Cut(text, ":")
	if sized {
		if tokens, err = strconv.Atoi(size); err != nil || tokens < 1 || tokens > maximumBatch {
			return "", 0, fmt.Errorf("--phase (%q) must have 1 to %d tokens behind the colon", text, maximumBatch)
		}
	}
	if name = workload.Phase(of); !slices.Contains(workload.Phases, name) {
		return "", 0, fmt.Errorf("--phase (%q) must be %s or %s, with the tokens of a batch behind a colon or without", text, workload.Decode, workload.Prefill)
	}
	return name, tokens, nil
}

// makePhases makes the batches. REQUIRES: the tables are loaded.
func (p *planner) makePhases(ctx context.Context) error {
	texts := p.cfg.Phases
	if len(texts) == 0 {
		texts = []string{""}
		if p.cfg.readsText() {
			texts[0] = string(workload.Decode)
			if p.cfg.Phase != "" {
				texts[0] = p.cfg.Phase
			}
		}
	}
	for i, text := range texts {
		r := p.base
		if i > 0 {
			other := *r
			r = &other
		}
		if text != "" {
			name, tokens, _ := parsePhase(text)
			r.cfg.Phase = string(name)
			if r.cfg.BatchSize = p.cfg.BatchSize; len(p.cfg.Phases) > 0 && (tokens > 0 || i > 0) {
				r.cfg.BatchSize = tokens
			}
		}
		sample := r.sample
		if r.tables != nil {
			sample = r.lookUpTables
		}
		if err := sample(); err != nil {
			return err
		}
		if err := p.split(r); err != nil {
			return err
		}
		if err := r.record(ctx); err != nil {
			return err
		}
		ph, err := p.newPhase(ctx, r)
		if err != nil {
			return err
		}
		p.phases = append(p.phases, ph)
	}
	return ctx.Err()
}

// newPhase counts the batches of a run, and makes them small if the tables are.
func (p *planner) newPhase(ctx context.Context, r *run) (*phase, error) {
	ph := &phase{run: r, name: r.cfg.Phase, batches: r.last - r.first, trainingBatches: r.trainLast - r.trainFirst, merged: 1}
	for _, rows := range learnFrom(ctx, r.measured, r.first, r.last) {
		ph.lookups += int64(len(rows))
		p.largest = max(p.largest, len(rows))
	}
	for _, rows := range learnFrom(ctx, r.training, r.trainFirst, r.trainLast) {
		ph.trainingLookups += int64(len(rows))
	}
	ph.rows = float64(ph.lookups) / float64(max(1, ph.batches))
	if p.small.scale == 1 {
		return ph, ctx.Err()
	}
	if p.cfg.Prefetch == 0 && !r.cfg.Online.on() { // refresh cycles come after so many batches
		ph.merged = int(max(1, min(p.small.scale, int64(ph.batches/(2*leastParts)))))
	}
	small := *r
	ph.run = &small
	r.progress.Stage("making the lookups small", ph.batches+ph.trainingBatches)
	measured, err := p.small.shrink(ctx, r, r.measured, r.first, r.last, ph.merged)
	if err != nil {
		return nil, err
	}
	small.measured, small.first, small.last, ph.whole = measured, 0, measured.Batches(), measured.whole
	if r.training != nil {
		training, err := p.small.shrink(ctx, r, r.training, r.trainFirst, r.trainLast, ph.merged)
		if err != nil {
			return nil, err
		}
		small.training, small.trainFirst, small.trainLast = training, 0, training.Batches()
	}
	return ph, nil
}

// BatchTimes is what a batch of the mean number of rows is predicted to take on a GPU without a cache, in milliseconds.
type BatchTimes struct {
	// Device is the GPU whose measured figures the predictions are made from: predict.Model.
	Device string `json:"device"`
	// Phase is that of an n-gram workload. Batches of decode are replays of a graph.
	Phase string  `json:"phase,omitempty"`
	Rows  float64 `json:"rows"`
	// UncachedMS is if all rows are read from page-locked host memory in the order of their addresses, UnsortedMS if they are read as they come, and ResidentMS if the whole
	// table lies on the GPU, all uncompressed.
	UncachedMS float64 `json:"uncached_ms"`
	UnsortedMS float64 `json:"unsorted_ms"`
	ResidentMS float64 `json:"resident_ms"`
}

// spread says where the rows of a batch are found: shares of them in device memory and in host memory, and over which host memory the latter spread.
type spread struct {
	device, host, over float64
	// tier is the memory of the tier, missBytes the mean bytes of a row that is read from it.
	tier, missBytes float64
}

// milliseconds is what the mean batch of a phase is predicted to take. REQUIRES: the model knows the codec.
func (p *planner) milliseconds(ph *phase, codec string, ratio float64, at spread) float64 {
	t := p.base.table
	return 1e3 * p.model.Seconds(predict.Batch{
		RowBytes: t.RowBytes, Codec: codec, DType: t.DType, Lookups: ph.rows, Hits: ph.rows * at.device, Stored: 1 / ratio, MissBytes: ph.rows * at.host * at.missBytes,
		UncachedBytes: at.over, TierBytes: at.tier, Captured: ph.captured(), HostThreads: p.cfg.HostThreads,
	})
}

// cachedMS is what the mean batch of a phase is predicted to take with a cache over a host tier with every row, which hits a share of the lookups with so many rows.
func (p *planner) cachedMS(ph *phase, codec string, ratio, hit float64, rows int64) float64 {
	t := p.base.table
	return p.milliseconds(ph, codec, ratio, spread{hit, 1 - hit, float64(int64(t.Rows)-rows) * float64(t.RowBytes), float64(t.Bytes()), float64(t.RowBytes) / ratio})
}

// predict fills in the predicted times of batches.
func (p *planner) predict(res *PlanResult) {
	if p.model == nil {
		return
	}
	t := p.base.table
	table := float64(t.Bytes())
	for i := range p.phases {
		ph := p.phases[i]
		plain := predict.Uncached{Rows: ph.rows, RowBytes: t.RowBytes, TableBytes: table, Captured: ph.captured()}
		times := BatchTimes{Device: p.model.Device, Phase: ph.name, Rows: ph.rows, UnsortedMS: 1e3 * p.model.Uncached(plain)}
		plain.Sorted = true
		times.UncachedMS = 1e3 * p.model.Uncached(plain)
		times.ResidentMS = p.milliseconds(ph, registry.None, 1, spread{device: 1})
		res.Phases = append(res.Phases, times)
	}
	first := res.Phases[0]
	if res.Batch = &first; len(res.Phases) == 1 {
		res.Phases = nil
	}
	for i := range res.Plans {
		plan := &res.Plans[i]
		if !p.model.Knows(plan.ChosenCodec) || p.cfg.resident() {
			continue
		}
		var all []float64
		for k := range p.phases {
			all = append(all, p.cachedMS(p.phases[k], plan.ChosenCodec, plan.CompressionRatio, plan.PredictedHitRatio, plan.Rows))
		}
		if plan.PredictedBatchMS = &all[0]; len(all) > 1 {
			plan.PhaseMS = all
		}
	}
}
