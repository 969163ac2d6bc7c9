package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// Plan prints the verdict, then what each policy and codec needs, and what budgets hit.
func Plan(w io.Writer, p *experiment.PlanResult) error {
	out := &printer{w: w}
	out.printf("%s\n\n", p.Verdict)
	out.line("table", "%s: %s rows%s", p.Table.Name, count(p.Table.Rows), tableForm(&p.Table))
	for _, t := range p.Tables {
		out.line("", "%s: %s rows%s", t.Name, count(t.Rows), tableForm(&t))
	}
	if p.SampledRows > 0 {
		out.line("in small", "%s of the rows, and a cache as much smaller, stand for all", count(p.SampledRows))
	}
	work := &p.Workload
	out.line("lookups", "%s: learned from %s in %s, judged by %s of %s rows in %s", work.Kind, count(work.TrainingLookups), plural(work.TrainingBatches, "batch", "batches"),
		count(work.Lookups), count(work.Rows), plural(work.Batches, "batch", "batches"))
	if g := work.Generated; g != nil {
		out.line("", "generated: %s", g.Distribution)
	}
	if work.RefreshBatches > 0 {
		out.line("refresh", "every %s", plural(work.RefreshBatches, "batch", "batches"))
	}
	out.printf("\n")
	out.planAnswers(p)
	out.planMemory(p)
	out.planCurve(p)
	out.planResident(p)
	if len(p.Plans) > 0 && len(p.Plans[0].Tiers) > 0 {
		out.planTiers(p)
	}
	for i := range p.Placements {
		out.placement(&p.Placements[i])
	}
	return out.err
}

// tableForm says how long the rows of a table are, unless it is several.
func tableForm(t *experiment.TableInfo) string {
	if t.RowBytes == 0 {
		return ""
	}
	return fmt.Sprintf(" of %s B (%s), %s", count(int64(t.RowBytes)), t.DType, bytesOf(t.Rows*int64(t.RowBytes)))
}

// answersTable has the budget of each target.
func answersTable(r *experiment.PlanResult) tableView {
	t := tableView{Header: []string{"policy", "codec", "ratio", "target", "GPU memory", "rows", "planned", "low", "high"}, Texts: 2}
	for i := range r.Plans {
		plan := &r.Plans[i]
		target := number(wholePercent, plan.TargetHit)
		if !plan.Reached {
			target.Text = "< " + target.Text
		}
		row := []entry{
			{Text: plan.Policy}, {Text: cut(plan.ChosenCodec, 12)}, number(hundredths, plan.CompressionRatio), target, number(wholeBytes, float64(plan.BudgetBytes)), number(wholeCount, float64(plan.Rows)),
			number(percent, plan.PredictedHitRatio), number(percent, plan.HitLow), number(percent, plan.HitHigh),
		}
		if m := plan.MeasuredHitRatio; m != nil {
			if row = append(row, number(percent, *m)); len(t.Header) < len(row) {
				t.Header = append(t.Header, "seen")
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (p *printer) planAnswers(r *experiment.PlanResult) {
	t := answersTable(r)
	unreached := slices.ContainsFunc(r.Plans, func(plan experiment.Plan) bool { return !plan.Reached })
	checked := slices.Contains(t.Header, "seen")
	p.table(t)
	p.printf("planned: of all the lookups judged by; low, high: of the worst and the best eighth of them\n")
	if checked {
		p.printf("seen: a cache of that budget was opened, over the whole table\n")
	}
	if unreached {
		p.printf("<: no budget reaches the target; this one hits most\n")
	}
	if r.Devices > 1 {
		p.printf("GPU memory is of each of %d devices\n", r.Devices)
	}
}

// cut shortens a text to so many letters.
func cut(text string, n int) string {
	if len(text) > n {
		return text[:n-1] + "…"
	}
	return text
}

func wholePercent(share float64) string { return fmt.Sprintf("%.4g %%", 100*share) }

// planBatches are those whose times are predicted.
func planBatches(r *experiment.PlanResult) []experiment.BatchTimes {
	if len(r.Phases) == 0 && r.Batch != nil {
		return []experiment.BatchTimes{*r.Batch}
	}
	return r.Phases
}

// memoryTable has what the caches take beside their budgets, and how long their batches take on a GPU.
func memoryTable(r *experiment.PlanResult) tableView {
	t := tableView{Header: []string{"policy", "codec", "target", "in all", "ns/row"}, Texts: 2}
	batches := planBatches(r)
	for _, b := range batches {
		t.Header = append(t.Header, "ms/"+cmp.Or(b.Phase, "batch"))
	}
	if r.GPUMemory > 0 {
		t.Header = append(t.Header, "fits", "all of it")
	}
	for i := range r.Plans {
		plan := &r.Plans[i]
		row := []entry{
			{Text: plan.Policy}, {Text: cut(plan.ChosenCodec, 12)}, number(wholePercent, plan.TargetHit), number(wholeBytes, float64(plan.TotalBytes)), {Text: fmt.Sprintf("%.1f", plan.PredictedRowNS)},
		}
		for i := range batches {
			row = append(row, entry{Text: phaseMS(plan, i)})
		}
		if g := plan.GPU; g != nil {
			row = append(row, entry{Text: yesOrNo(g.Fits)}, number(percent, g.HitRatio))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// planMemory prints it.
func (p *printer) planMemory(r *experiment.PlanResult) {
	batches := planBatches(r)
	p.printf("\n")
	p.table(memoryTable(r))
	if len(r.Plans) > 0 {
		p.printf("in all: GPU memory, codec tables and index (first: %s), and %s for batches under way\n", bytesOf(r.Plans[0].BesideBytes), bytesOf(r.Plans[0].ReserveBytes))
	}
	p.printf("ns/row: predicted time of hits and misses on a GPU, which policies minimise\n")
	for _, b := range batches {
		p.printf("%s: predicted for %s rows on an %s;\n", "ms/"+cmp.Or(b.Phase, "batch"), count(int64(b.Rows+0.5)), b.Device)
		p.printf("  without a cache %.3f, %.3f in the order of addresses; whole table on the GPU %.3f\n", b.UnsortedMS, b.UncachedMS, b.ResidentMS)
	}
	if r.GPUMemory > 0 {
		p.printf("all of it: what a cache hits that takes what %s a device leave\n", bytesOf(r.GPUMemory))
	}
}

// planCurve draws the hit rate over the budget.
func (p *printer) planCurve(r *experiment.PlanResult) {
	if len(r.Curve) < 2 {
		return
	}
	const width = 50
	p.printf("\nhit rate by GPU memory, %s\n", r.Answers[0].Policy)
	last := int64(0)
	for i, point := range r.Curve {
		if point.BudgetBytes < last+last/8 && i < len(r.Curve)-1 {
			continue
		}
		last = point.BudgetBytes
		bar := strings.Repeat("█", int(math.Round(width*point.HitRatio)))
		p.printf("%10s  %-*s %9s  %s\n", bytesOf(point.BudgetBytes), width, bar, percent(point.HitRatio), cut(point.Codec, 12))
	}
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

// planResident prints the table as a resident one with each codec, beside a cache of the first policy.
func (p *printer) planResident(r *experiment.PlanResult) {
	t := newTable("resident", "slot", "longer", "gain", "budget", "host", "ns/row", "cached ns/row", "faster")
	alignLeft(t, 1)
	seen := map[string]bool{}
	var why []string
	for i := range r.Plans {
		plan := &r.Plans[i]
		one := plan.Resident
		if one == nil || seen[plan.Codec] {
			continue
		}
		seen[plan.Codec] = true
		t.AppendRow(table.Row{
			plan.Codec, fmt.Sprintf("%d B", one.TargetBytes), percent(one.OverflowRatio), fmt.Sprintf("%.2f", one.CapacityGain), bytesOf(one.BudgetBytes), bytesOf(one.BuddyBytes),
			fmt.Sprintf("%.2f", one.PredictedRowNS), fmt.Sprintf("%.2f", one.CachedRowNS), one.Faster,
		})
		why = append(why, plan.Codec+": "+one.Why)
	}
	if len(seen) > 0 {
		p.printf("\n%s\n%s\n", t.Render(), strings.Join(why, "\n"))
	}
}

// slots names the length of slots, the mean of several.
func slots(target, ranges int) string {
	if ranges > 1 {
		return fmt.Sprintf("%s B in %d ranges", count(int64(target)), ranges)
	}
	return count(int64(target)) + " B"
}
