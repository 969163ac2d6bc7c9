package experiment

import (
	"github.com/tensorcache/tensorcache/bench/gpu"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
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
	// Phases are those of an n-gram workload, in one plan: "decode:256", "prefill:8192", with tokens of a batch or without. None: that of Config. What is cached is
	// decided by the batches of the first.
	Phases []string
	// HostThreads is how many threads help with misses.
	HostThreads int
	// Check runs a cache of each plan.
	Check bool
	Tiers TiersConfig
}

// PlannedCodecs are those of a plan that names none, but of a table of pages, whose codec is theirs.
func PlannedCodecs() []string { return []string{registry.None, "ibp4", "ibp8"} }

// NewPlanConfig returns the default plan.
func NewPlanConfig() PlanConfig {
	return PlanConfig{Config: NewConfig(), Target: 0.9, Policies: []string{admission.Default, "static-freq", "static-optimal"}, HostThreads: gpu.HostThreads}
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
	// PredictedBatchMS is what a batch of BatchTimes.Rows is predicted to take with that cache, and PhaseMS the same for each of several phases. nil: no figures of this
	// codec, or several devices.
	PredictedBatchMS *float64  `json:"predicted_batch_ms,omitempty"`
	PhaseMS          []float64 `json:"phase_batch_ms,omitempty"`
	// GPU is there with PlanConfig.GPUMemory.
	GPU *GPUPlan `json:"gpu,omitempty"`
	// Resident is the table as a resident one with this codec, beside a cache.
	Resident *PlannedResident `json:"resident"`
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
	// SampledRows is how many rows were encoded or read to say what rows take. 0: all.
	SampledRows int `json:"sampled_rows,omitempty"`
	// Batch is there with one device, and Phases with several phases, of which it is the first.
	Batch  *BatchTimes  `json:"batch,omitempty"`
	Phases []BatchTimes `json:"phases,omitempty"`
	// Placements has an entry for each of TiersConfig.HostMemories, if there is GPUMemory and one device.
	Placements []Placement `json:"placements,omitempty"`
}

// Validate reports all faults at once.
func (p *PlanConfig) Validate() error {
	var f faults.List
	f.If(!(p.Target > 0 && p.Target <= 1), "--target-hit (%.6g %%) must be above 0 %% and at most 100 %%", 100*p.Target)
	f.If(p.GPUMemory < 0, "--gpu-memory (%d B) must not be negative", p.GPUMemory)
	f.If(!(p.SampleRate > 0), "--sample-rate (%v) must be above 0", p.SampleRate)
	f.If(!(p.RefreshChurn > 0), "--refresh-churn (%v) must be above 0", p.RefreshChurn)
	f.If(p.RefreshInterval != 0, "--refresh-interval (%v) must be 0: a plan goes by batches", p.RefreshInterval)
	f.If(p.HostThreads < 0 || p.HostThreads > maximumWorkers, "--host-threads (%d) must be 0 to %d", p.HostThreads, maximumWorkers)
	p.Tiers.validate(&f)
	f.Add(p.validatePhases())
	p.validateResident(&f)
	f.If(len(p.Policies) == 0, "--policy () must have at least one value")
	codecs := p.Codecs
	if len(codecs) == 0 {
		codecs = []string{registry.Auto}
	}
	for _, policy := range p.Policies {
		for _, codec := range codecs {
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
