package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/serve/daemon"
)

// checked is what --check prints as JSON.
type checked struct {
	*daemon.Plan
	// Hits is there with --ids.
	Hits *experiment.PlanResult `json:"hits,omitempty"`
}

// planHits says what a cache of the configuration hits of the row numbers in ids, a file for each table: planned, and seen in a cache that is opened. It begins as the program does, without
// training, reads the first three quarters, and is judged by the others. Cycles of the program go by time, those of the plan come every 5 batches.
func planHits(ctx context.Context, c *daemon.Config, ids string) (*experiment.PlanResult, error) {
	p := experiment.NewPlanConfig()
	codecs := map[string]bool{}
	var files []string
	for _, t := range c.Tables {
		if t.File == "" || t.Capacity > 0 || t.Place.Cold != "" || t.Budget != "" {
			return nil, fmt.Errorf("--ids: table (%s) must be a file, without capacity=, gpu_memory= or cold=", cmp.Or(t.File, t.Name))
		}
		if resident := p.Slots != ""; len(files) > 0 && t.Resident != resident || t.DType != c.Tables[0].DType {
			return nil, fmt.Errorf("--ids: tables must be all resident or none, and of one dtype=")
		} else if t.Resident {
			p.Slots = experiment.AutoSlots
		}
		files = append(files, t.File)
		codecs[cmp.Or(t.Codec, c.Codec)] = true
		p.Codec, p.DType = cmp.Or(t.Codec, c.Codec), t.DType
	}
	if len(codecs) > 1 || strings.Contains(c.Budget, ",") {
		return nil, fmt.Errorf("--ids: tables must have one codec, and devices one --gpu-memory")
	}
	p.Features, p.IDs, p.Budget, p.AtBudget, p.Check = strings.Join(files, ","), ids, c.Budget, true, true
	p.Policy, p.HostTier, p.NoEqualRows, p.Device, p.GPUs, p.Seed, p.Workers = c.Policy, c.HostTier, c.NoEqualRows, c.Device, c.GPUs, c.Seed, c.Workers
	p.Devices, p.Placement, p.Rates, p.HostMemory, p.Force = max(1, c.Devices), c.Placement, c.Rates, c.HostMemory, c.Force
	if p.Link = c.Link; c.Link == "" && c.OnProcessors() {
		p.Link = "none"
	}
	if p.Slots == "" {
		p.Serve, p.Cold = true, c.Cold
		if c.RefreshInterval > 0 {
			p.RefreshBatches = refreshBatches
		}
		p.RefreshChurn, p.RefreshBytes = c.RefreshChurn, c.RefreshBytes
		p.SampleRate, p.Misses = c.Sampled()
	}
	return experiment.MakePlan(ctx, p, experiment.Quiet{})
}

// refreshBatches is how many batches are between refresh cycles of a plan.
const refreshBatches = 5

// writeHits prints what is planned beside what was seen.
func writeHits(w io.Writer, r *experiment.PlanResult) error {
	a := &r.Answers[0]
	_, err := fmt.Fprintf(w, "hit rate: %s\nplanned %.2f %% with codec %s, seen %.2f %%, of %d lookups behind %d that the cache follows\n",
		r.Verdict, 100*a.HitRatio, a.Codec, 100**a.SeenHit, r.Workload.Lookups, r.Workload.TrainingLookups)
	return err
}
