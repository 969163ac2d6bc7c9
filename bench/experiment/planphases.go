package experiment

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/tensorcache/tensorcache/bench/gpu"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/internal/faults"
)

// phase is one way in which batches of a plan's workload come.
type phase struct {
	*run        // with the batches
	name string // "" if the workload has no phases
	// rows are those of the mean batch.
	rows    float64
	largest int
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

// makePhases makes the batches. REQUIRES: the table is loaded.
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
		if err := r.sample(); err != nil {
			return err
		}
		if err := r.record(ctx); err != nil {
			return err
		}
		p.phases = append(p.phases, phase{run: r, name: r.cfg.Phase})
	}
	if r := p.base; r.table.Rows > r.cfg.planned && r.graph == nil { // of others everything is kept for each row
		var err error
		r.progress.Stage("finding the rows that are looked up", 0)
		var all []iter.Seq2[int, []int64]
		for _, ph := range p.phases {
			all = append(all, learnFrom(ctx, ph.measured, ph.first, ph.last), learnFrom(ctx, ph.training, ph.trainFirst, ph.trainLast))
		}
		if p.looked, err = lookedUp(ctx, int64(r.table.Rows), all...); err != nil {
			return err
		}
		for _, ph := range p.phases {
			ph.measured, ph.training = renumbered(ph.measured, p.looked), renumbered(ph.training, p.looked)
		}
	}
	for i := range p.phases {
		ph := &p.phases[i]
		lookups := 0
		for _, rows := range learnFrom(ctx, ph.measured, ph.first, ph.last) {
			lookups, ph.largest = lookups+len(rows), max(ph.largest, len(rows))
		}
		ph.rows = float64(lookups) / float64(max(1, ph.last-ph.first))
		p.batch = max(p.batch, ph.largest)
	}
	return ctx.Err()
}

// BatchTimes is what a batch of the mean number of rows is predicted to take on a GPU without a cache, in milliseconds.
type BatchTimes struct {
	// Device is the GPU whose measured figures the predictions are made from: gpu.Model.
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
	return 1e3 * p.model.Seconds(gpu.Batch{
		RowBytes: t.RowBytes, Codec: codec, DType: t.DType, Lookups: ph.rows, Hits: ph.rows * at.device, Stored: 1 / ratio, MissBytes: ph.rows * at.host * at.missBytes,
		UncachedBytes: at.over, TierBytes: at.tier, Captured: ph.captured(), HostThreads: p.cfg.HostThreads,
	})
}

// cachedSpread is that of a cache over a host tier with every row, which hits a share of the lookups with so many rows.
func (p *planner) cachedSpread(hit float64, rows int64, stored float64) spread {
	t := p.base.table
	return spread{hit, 1 - hit, float64(int64(t.Rows)-rows) * float64(t.RowBytes), float64(t.Bytes()), stored}
}

// predict fills in the predicted times of batches.
func (p *planner) predict(res *PlanResult) {
	if p.model == nil {
		return
	}
	t := p.base.table
	table := float64(t.Bytes())
	for i := range p.phases {
		ph := &p.phases[i]
		plain := gpu.Uncached{Rows: ph.rows, RowBytes: t.RowBytes, TableBytes: table, Captured: ph.captured()}
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
		if !p.model.Knows(plan.ChosenCodec) {
			continue
		}
		var all []float64
		for k := range p.phases {
			stored := float64(t.RowBytes) / plan.CompressionRatio
			all = append(all, p.milliseconds(&p.phases[k], plan.ChosenCodec, plan.CompressionRatio, p.cachedSpread(plan.PredictedHitRatio, plan.Rows, stored)))
		}
		if plan.PredictedBatchMS = &all[0]; len(all) > 1 {
			plan.PhaseMS = all
		}
	}
}
