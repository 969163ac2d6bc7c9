package experiment

import (
	"strings"

	"github.com/tensorcache/tensorcache/bench/predict"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/internal/statjson"
)

// PlanConfig asks how many bytes of device memory a hit rate takes.
type PlanConfig struct {
	// Config is the table, the workload and the cache, as for a run. Its Budget is ignored, unless AtBudget is set.
	Config
	// Policies and Codecs are tried in place of those of Config, each with each. None: those of Config.
	Policies, Codecs []string
	// Targets are the hit rates to reach, above 0 and at most 1.
	Targets []float64
	// AtBudget asks what a cache of Config.Budget hits, instead of what Targets take.
	AtBudget bool
	// Learn is how many of the given row numbers the cache learns from; it is judged by those that follow. 0: three quarters, or
	// TrainBatches.
	Learn int64
	// Serve has the cache begin with any rows, and read the first part of the lookups instead of training on it: what a cache does that is opened without training.
	Serve bool
	// GPUMemory is the bytes of each device, 0 if that does not matter.
	GPUMemory int64
	// Phases are those of an n-gram workload, in one plan: "decode:256", "prefill:8192", with tokens of a batch or without. None: that of Config. What is cached is
	// decided by the batches of the first.
	Phases []string
	// HostThreads is how many threads help with misses.
	HostThreads int
	// Check opens a cache of each answer's budget, over the whole table and on the device of Config, and says what it hits.
	Check bool
	Tiers TiersConfig
}

// NewPlanConfig returns the default plan.
func NewPlanConfig() PlanConfig {
	return PlanConfig{Config: NewConfig(), Targets: []float64{0.5, 0.7, 0.9}, HostThreads: predict.HostThreads}
}

// PlanPoint is what a cache of one budget does with the lookups that it did not learn from.
type PlanPoint struct {
	// BudgetBytes is of each device.
	BudgetBytes int64 `json:"budget_bytes"`
	// Codec is the one that was chosen; of several tables, all that were, with commas between them.
	Codec string `json:"codec"`
	// HitRatio is of all those lookups. HitLow and HitHigh are of the worst and the best of up to eight parts of them, one after the other in time.
	HitRatio float64 `json:"hit_ratio"`
	HitLow   float64 `json:"hit_low"`
	HitHigh  float64 `json:"hit_high"`
}

// Answer is the least budget that reaches a hit rate.
type Answer struct {
	TargetHit float64 `json:"target_hit"`
	// Reached is false if no budget reaches the target. Then the answer is the one that hits most.
	Reached bool   `json:"reached"`
	Policy  string `json:"policy"`
	PlanPoint
	// SeenHit is what the cache of PlanConfig.Check hit.
	SeenHit *float64 `json:"seen_hit,omitempty"`
}

// Plan is an answer with what its cache takes.
type Plan struct {
	TargetHit float64 `json:"target_hit"`
	Policy    string  `json:"policy"`
	Codec     string  `json:"codec"`
	// ChosenCodec differs from Codec where that is a choice of several.
	ChosenCodec      string  `json:"chosen_codec"`
	CompressionRatio float64 `json:"compression_ratio"`
	// Reached is as in Answer.
	Reached bool `json:"reached"`
	// Rows are those that the cache holds.
	Rows int64 `json:"rows"`
	// BudgetBytes is the value for --gpu-memory, of each device. PayloadBytes and MetadataBytes are what the cache uses of it, sums over the devices. BesideBytes is device memory
	// outside the budget, on each device: codec tables and the index of a packed host tier. ReserveBytes is kept free on each device for batches under way. TotalBytes is
	// budgets, beside and reserve on all devices.
	BudgetBytes   int64 `json:"budget_bytes"`
	PayloadBytes  int64 `json:"payload_bytes"`
	MetadataBytes int64 `json:"metadata_bytes"`
	BesideBytes   int64 `json:"beside_bytes"`
	ReserveBytes  int64 `json:"reserve_bytes"`
	TotalBytes    int64 `json:"total_bytes"`
	// PredictedHitRatio is of that cache, over the lookups that it did not learn from.
	PredictedHitRatio float64 `json:"predicted_hit_ratio"`
	HitLow            float64 `json:"hit_low"`
	HitHigh           float64 `json:"hit_high"`
	// PredictedRowNS is the mean time of a looked-up row, hits and misses one after the other, in nanoseconds: what policies minimise (admission.Cost), on a GPU.
	PredictedRowNS float64 `json:"predicted_row_ns"`
	// PredictedBatchMS is what a batch of BatchTimes.Rows is predicted to take with that cache, and PhaseMS the same for each of several phases. nil: no figures of this
	// codec, several devices, or several tables.
	PredictedBatchMS *float64  `json:"predicted_batch_ms,omitempty"`
	PhaseMS          []float64 `json:"phase_batch_ms,omitempty"`
	// GPU and Resident are there with PlanConfig.GPUMemory.
	GPU      *GPUPlan         `json:"gpu,omitempty"`
	Resident *PlannedResident `json:"resident,omitempty"`
	// Tiers has an entry for each of TiersConfig.HostMemories, and each phase. LeastHost is there if that has a bandwidth and a rate.
	Tiers     []PlannedTiers `json:"tiers,omitempty"`
	LeastHost *PlannedHost   `json:"least_host_memory,omitempty"`
	// MeasuredHitRatio is there with PlanConfig.Check.
	MeasuredHitRatio *float64 `json:"measured_hit_ratio,omitempty"`
}

// GPUPlan is what the memory of a device means to a plan.
type GPUPlan struct {
	// Fits says that the plan's cache fits, with the memory of batches under way.
	Fits bool `json:"fits"`
	// BudgetBytes is what the memory leaves for --gpu-memory, at least 0, and HitRatio what a cache of it hits.
	BudgetBytes int64   `json:"budget_bytes"`
	HitRatio    float64 `json:"hit_ratio"`
}

// PlannedResident is the table as a resident one (run --resident) in the memory that GPUPlan.BudgetBytes says, beside a cache.
type PlannedResident struct {
	// TargetBytes is the length of a slot. OverflowRatio is the share of rows that are longer, OverflowLookups the share of the lookups of such rows.
	TargetBytes int `json:"target_bytes"`
	// Ranges are there if the table has several targets, of which TargetBytes is the mean.
	Ranges          []statjson.ResidentRange `json:"ranges,omitempty"`
	OverflowRatio   float64                  `json:"overflow_ratio"`
	OverflowLookups float64                  `json:"overflow_lookup_ratio"`
	CapacityGain    float64                  `json:"capacity_gain"`
	// BudgetBytes is what it takes of each device, BuddyBytes the host memory of overflow places.
	BudgetBytes int64 `json:"budget_bytes"`
	BuddyBytes  int64 `json:"buddy_bytes"`
	Within      int64 `json:"within_bytes"`
	Fits        bool  `json:"fits"`
	// PredictedRowNS is of a GPU that reads slots and overflow places at the same time, and CachedRowNS that of the cache of GPUPlan.
	PredictedRowNS float64 `json:"predicted_row_ns"`
	CachedRowNS    float64 `json:"cached_row_ns"`
	// Faster is "resident" or "cached", and Why says why.
	Faster string `json:"faster"`
	Why    string `json:"why"`

	codec         string
	ratio         float64
	codecBytes    int64
	overflowBytes float64 // that a lookup reads beyond its slot, if it does
}

// PlanResult is what a plan finds. Its JSON form is what `cachebench plan --json` prints.
type PlanResult struct {
	// Verdict says it in a sentence.
	Verdict string `json:"verdict"`
	// Answers are those of the first policy and codec.
	Answers []Answer `json:"answers"`
	// Curve is what all caches hit that were tried with the first policy and codec, by budget. EnoughBytes is the least of them that hits half a point less than the best, or more.
	Curve       []PlanPoint `json:"curve"`
	EnoughBytes int64       `json:"enough_bytes"`
	// Table is the table, and Tables are there if there are several: then Table is all of them together.
	Table    TableInfo   `json:"table"`
	Tables   []TableInfo `json:"tables,omitempty"`
	Workload struct {
		Kind string `json:"kind"`
		// Generated says how the lookups were invented, nil if a file has them.
		Generated *GeneratedLookups `json:"generated,omitempty"`
		// Batches are those that the cache did not learn from, TrainingBatches those that it did.
		Batches int   `json:"batches"`
		Lookups int64 `json:"lookups"`
		// Rows are the different ones among the lookups.
		Rows            int64 `json:"rows"`
		TrainingBatches int   `json:"training_batches"`
		TrainingLookups int64 `json:"training_lookups"`
		// RefreshBatches is the number of batches between refresh cycles, 0 if there are none.
		RefreshBatches int `json:"refresh_batches"`
	} `json:"workload"`
	// Target is the first one.
	Target    float64 `json:"target_hit_ratio"`
	Devices   int     `json:"devices"`
	GPUMemory int64   `json:"gpu_memory,omitempty"`
	Plans     []Plan  `json:"plans"`
	// SampledRows is the rows of the table in small that was tried in place of the table. 0: the table itself was.
	SampledRows int64 `json:"sampled_rows,omitempty"`
	// Batch is there with one device and one table, and Phases with several phases, of which it is the first.
	Batch  *BatchTimes  `json:"batch,omitempty"`
	Phases []BatchTimes `json:"phases,omitempty"`
	// Placements has an entry for each of TiersConfig.HostMemories, if there is GPUMemory, one device and one table.
	Placements []Placement `json:"placements,omitempty"`
}

// ensureDefaults sets Policies and Codecs.
func (p *PlanConfig) ensureDefaults() {
	if len(p.Policies) == 0 {
		p.Policies = []string{p.Policy}
	}
	if len(p.Codecs) == 0 {
		p.Codecs = []string{p.Codec}
	}
}

// Validate reports all faults at once.
func (p *PlanConfig) Validate() error {
	var f faults.List
	for _, target := range p.Targets {
		f.If(!(target > 0 && target <= 1), "--target-hit (%.6g %%) must be above 0 %% and at most 100 %%", 100*target)
	}
	f.If(len(p.Targets) == 0, "--target-hit () must have at least one value")
	f.If(p.GPUMemory < 0, "--device-memory (%d B) must not be negative", p.GPUMemory)
	f.If(p.RefreshInterval != 0, "--refresh-interval (%v) must be 0: a plan goes by batches", p.RefreshInterval)
	f.If(p.HostThreads < 0 || p.HostThreads > maximumWorkers, "--host-threads (%d) must be 0 to %d", p.HostThreads, maximumWorkers)
	p.Tiers.validate(&f)
	f.Add(p.validatePhases())
	p.validateResident(&f)
	several := p.Several()
	for _, x := range []struct {
		name  string
		given bool
	}{{"device-memory", p.GPUMemory > 0}, {"host-memory", len(p.Tiers.HostMemories) > 0}, {"rows-per-second", p.Tiers.RowsPerSecond > 0}} {
		f.If(several && x.given, "--%s takes one table", x.name)
		f.If(p.resident() && x.given, "--%s and --resident contradict each other", x.name)
	}
	for _, policy := range p.Policies {
		for _, codec := range p.Codecs {
			c := p.at(policy, codec)
			if several { // a plan refreshes them, too
				c.Cold, c.Drift, c.RefreshBatches = false, 0, 0
				f.Add(c.validateTables())
			} else {
				f.Add(c.Validate())
			}
		}
	}
	return once(f.Err())
}

// at returns the run that a plan is for. Policies that learn nothing from accesses are not refreshed.
func (p *PlanConfig) at(policy, codec string) Config {
	c := p.Config
	c.Policy, c.Codec = policy, codec
	if !c.resident() { // they are of the resident table beside the cache
		c.MaxOverflow, c.Buddy = 0, ""
	}
	if spec, err := admission.Lookup(policy); err == nil && !spec.Online { // Validate says if there is none
		c.Cold, c.RefreshBatches, c.RefreshInterval, c.Drift = false, 0, 0, 0
	}
	return c
}

// planOf returns the plan of an answer.
func (o *outcome) planOf(a *Answer, codec string) Plan {
	n := int64(o.devices)
	p := Plan{
		TargetHit: a.TargetHit, Policy: a.Policy, Codec: codec, ChosenCodec: a.Codec, CompressionRatio: o.ratio, Reached: a.Reached, Rows: o.rows, BudgetBytes: a.BudgetBytes,
		PayloadBytes: o.payload, MetadataBytes: o.metadata, BesideBytes: o.beside, ReserveBytes: o.reserve, PredictedHitRatio: a.HitRatio, HitLow: a.HitLow, HitHigh: a.HitHigh,
		PredictedRowNS: o.rowNanos, MeasuredHitRatio: a.SeenHit,
	}
	p.TotalBytes = (p.BudgetBytes + p.BesideBytes + p.ReserveBytes) * n
	return p
}

// codecsOf joins different names.
func codecsOf(names []string) string {
	var all []string
	for _, name := range names {
		if !strings.Contains(","+strings.Join(all, ",")+",", ","+name+",") {
			all = append(all, name)
		}
	}
	return strings.Join(all, ",")
}
