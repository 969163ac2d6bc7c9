package report

import (
	"cmp"
	"fmt"
	"io"
	"math"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// Plan prints how many bytes each policy and codec need.
func Plan(w io.Writer, p *experiment.PlanResult) error {
	out := &printer{w: w}
	out.line("table", "%s: %s rows of %s B, %s", p.Table.Name, count(p.Table.Rows), count(int64(p.Table.RowBytes)), bytesOf(p.Table.Rows*int64(p.Table.RowBytes)))
	out.line("workload", "%s, %s, %s lookups of %s rows; trained on %s", p.Workload.Kind, plural(p.Workload.Batches, "batch", "batches"),
		count(p.Workload.Lookups), count(p.Workload.Rows), plural(p.Workload.TrainingBatches, "batch", "batches"))
	if p.SampledRows > 0 {
		out.line("lengths", "of %s rows", count(int64(p.SampledRows)))
	}
	out.line("target", "hit rate %s\n", percent(p.Target))

	header := []any{"policy", "codec", "ratio", "rows", "budget", "metadata", "beside", "reserve", "total", "predicted", "ns/row"}
	batches := p.Phases
	for _, b := range batches {
		header = append(header, "ms/"+b.Phase)
	}
	if len(batches) == 0 {
		header = append(header, "ms/batch")
		if p.Batch != nil {
			batches = []experiment.BatchTimes{*p.Batch}
		}
	}
	checked, unreached, simulated := false, false, false
	for _, plan := range p.Plans {
		checked = checked || plan.MeasuredHitRatio != nil
	}
	if checked {
		header = append(header, "measured", "difference")
	}
	if p.GPUMemory > 0 {
		header = append(header, "fits", "all memory")
	}
	header = append(header, "")
	t := newTable(header...)
	alignLeft(t, 2)
	for _, plan := range p.Plans {
		codec := plan.Codec
		if plan.ChosenCodec != codec {
			codec += " (" + plan.ChosenCodec + ")"
		}
		note := ""
		if plan.Method == experiment.Simulated {
			note, simulated = "simulated", true
		}
		predicted := percent(plan.PredictedHitRatio)
		if !plan.Reached {
			predicted, unreached = "≤ "+predicted, true
		}
		row := table.Row{
			plan.Policy, codec, fmt.Sprintf("%.3f", plan.CompressionRatio), count(plan.Rows), bytesOf(plan.BudgetBytes), bytesOf(plan.MetadataBytes),
			bytesOf(plan.BesideBytes), bytesOf(plan.ReserveBytes), bytesOf(plan.TotalBytes), predicted, fmt.Sprintf("%.1f", plan.PredictedRowNS),
		}
		for i := range max(1, len(p.Phases)) {
			row = append(row, phaseMS(&plan, i))
		}
		if m := plan.MeasuredHitRatio; m != nil {
			row = append(row, percent(*m), fmt.Sprintf("%+.2f", math.Round(1e4*(plan.PredictedHitRatio-*m))/100+0))
		}
		if g := plan.GPU; g != nil {
			fits := "no"
			if g.Fits {
				fits = "yes"
			}
			row = append(row, fits, percent(g.HitRatio))
		}
		t.AppendRow(append(row, note))
	}
	out.printf("%s\n", t.Render())
	out.planResident(p)
	if len(p.Plans) > 0 && len(p.Plans[0].Tiers) > 0 {
		out.planTiers(p)
	}
	for i := range p.Placements {
		out.placement(&p.Placements[i])
	}
	out.printf("total = budget + beside (codec tables, index) + reserve (for batches under way)\n")
	out.printf("ns/row: predicted time of hits and misses on a GPU, which policies minimise\n")
	for _, b := range batches {
		out.printf("%s: predicted for %s rows on an %s; without a cache %.3f, %.3f with the rows in the order of their addresses; with the whole table on the GPU %.3f\n",
			"ms/"+cmp.Or(b.Phase, "batch"), count(int64(b.Rows+0.5)), b.Device, b.UnsortedMS, b.UncachedMS, b.ResidentMS)
	}
	if p.Devices > 1 {
		out.printf("budget, beside and reserve are of each of %d devices, the others of all\n", p.Devices)
	}
	if simulated {
		out.printf("simulated: begins empty and follows the accesses, as run --cold\n")
	}
	if unreached {
		out.printf("≤: no size reaches the target; this is the best\n")
	}
	if p.GPUMemory > 0 {
		out.printf("all memory: predicted with what %s a device leave for the budget\n", humanize.IBytes(uint64(p.GPUMemory)))
	}
	return out.err
}

// phaseMS prints the time of a plan's batches in a phase.
func phaseMS(p *experiment.Plan, phase int) string {
	switch {
	case phase < len(p.PhaseMS):
		return fmt.Sprintf("%.3f", p.PhaseMS[phase])
	case p.PredictedBatchMS != nil:
		return fmt.Sprintf("%.3f", *p.PredictedBatchMS)
	}
	return ""
}

// slots names the length of slots, the mean of several.
func slots(target, ranges int) string {
	if ranges > 1 {
		return fmt.Sprintf("%s B in %d ranges", count(int64(target)), ranges)
	}
	return count(int64(target)) + " B"
}

// skewOf prints the exponent from which on a cache is the faster one.
func skewOf(border *float64) string {
	switch {
	case border == nil:
		return "none"
	case *border == 0:
		return "any"
	}
	return fmt.Sprintf("%.2f", *border)
}

// planResident prints the table as a resident one with each codec, beside a cache of the first policy.
func (p *printer) planResident(r *experiment.PlanResult) {
	t := newTable("resident (run --layout buddy)", "slot", "longer", "gain", "budget", "host", "within", "ns/row", "cached ns/row", "faster", "cached from skew", "because")
	alignLeft(t, 1)
	seen := map[string]bool{}
	for _, plan := range r.Plans {
		one := plan.Resident
		if one == nil || seen[plan.Codec] {
			continue
		}
		seen[plan.Codec] = true
		budget := bytesOf(one.BudgetBytes)
		if !one.Fits {
			budget += " (does not fit)"
		}
		t.AppendRow(table.Row{
			plan.Codec, slots(one.TargetBytes, len(one.Ranges)), percent(one.OverflowRatio), fmt.Sprintf("%.2f", one.CapacityGain), budget, bytesOf(one.BuddyBytes), bytesOf(one.Within),
			fmt.Sprintf("%.2f", one.PredictedRowNS), fmt.Sprintf("%.2f", one.CachedRowNS), one.Faster, skewOf(one.BorderSkew), one.Why,
		})
	}
	if len(seen) > 0 {
		p.printf("%s\n", t.Render())
	}
}
