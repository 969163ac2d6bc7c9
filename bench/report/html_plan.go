package report

import (
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/sim"
)

// Planned is what plan --json printed.
type Planned struct {
	experiment.PlanResult
	File string
}

func validPlan(p *experiment.PlanResult) error {
	if len(p.Plans) == 0 {
		return errors.New("plans (none) must be at least one")
	}
	for i := range p.Plans {
		one := &p.Plans[i]
		err := experiment.CheckRanges(experiment.Positive("budget_bytes", one.BudgetBytes), experiment.Share("predicted_hit_ratio", one.PredictedHitRatio))
		if err != nil {
			return fmt.Errorf("plan %d: %w", i, err)
		}
	}
	for i := range p.Placements {
		for _, l := range p.Placements[i].Layouts {
			err := experiment.CheckRanges(experiment.Share("device_ratio", l.DeviceRatio), experiment.Share("host_ratio", l.HostRatio), experiment.Share("cold_ratio", l.ColdRatio))
			if err != nil {
				return fmt.Errorf("placement %d, %s: %w", i, l.Layout, err)
			}
		}
	}
	return nil
}

// planTables has for each plan what the hit rate takes, what lies on which tier, and the layouts of each machine, with the chosen one in the caption.
func planTables(r *Results) section {
	s := section{
		ID: "plans", Title: "Plans", Missing: "Plans: there is no output of plan --json.",
		Lead: "What a hit rate takes, and which layout a machine is to have: cached (a cache over host memory that holds every row), resident (all rows on the GPU), or tiers (a cache over host memory over pages). Times are predicted.",
	}
	var curves []curve
	for i := range r.Plans {
		p := &r.Plans[i]
		for k := range p.Placements {
			s.Tables = append(s.Tables, placementTable(p.File, &p.Placements[k]))
		}
		t := newTableView(fmt.Sprintf("%s: %s rows%s. %s", p.File, count(p.Table.Rows), tableForm(&p.Table), p.Verdict), "policy", planColumns)
		t.Header = append(t.Header[:1], append([]string{"codec"}, t.Header[1:]...)...)
		t.Texts = 2
		for j := range p.Plans {
			one := &p.Plans[j]
			row := rowOf(one.Policy, one, planColumns)
			t.Rows = append(t.Rows, append([]entry{row[0], {Text: one.ChosenCodec}}, row[1:]...))
		}
		s.Tables = append(s.Tables, t)
		if len(p.Answers) > 0 {
			c := curve{id: "plan-curve", chart: p.File, name: p.Answers[0].Policy, file: p.File, size: byBytes.named("GPU memory")}
			for _, point := range p.Curve {
				c.points = append(c.points, sim.CurvePoint{CacheBytes: point.BudgetBytes, MissRatio: 1 - point.HitRatio})
			}
			curves = append(curves, c)
		}
		if tiers := tierTable(p); len(tiers.Rows) > 0 {
			s.Tables = append(s.Tables, tiers)
		}
	}
	s.Charts = curveCharts(curves)
	return s
}

func placementTable(file string, p *experiment.Placement) tableView {
	t := tableView{Caption: fmt.Sprintf("%s, %s. %s", file, machineOf(p), verdictOf(p)), Header: placementHeader(p), Texts: 3}
	for i := range p.Layouts {
		var row []entry
		for _, text := range placementRow(p, &p.Layouts[i]) {
			row = append(row, entry{Text: text})
		}
		row[len(row)-2].Bad = !p.Layouts[i].Fits
		t.Rows = append(t.Rows, row)
	}
	return t
}

func tierTable(p *Planned) tableView {
	t := newTableView(p.File+": tiers", "policy", tierColumns)
	t.Header = append(t.Header[:1], append([]string{"codec", "phase"}, t.Header[1:]...)...)
	t.Texts, t.Folded = 3, true
	for i := range p.Plans {
		for j := range p.Plans[i].Tiers {
			one := &p.Plans[i].Tiers[j]
			row := rowOf(p.Plans[i].Policy, one, tierColumns)
			t.Rows = append(t.Rows, append([]entry{row[0], {Text: p.Plans[i].ChosenCodec}, {Text: one.Phase}}, row[1:]...))
		}
	}
	return t
}

var planColumns = []column[experiment.Plan]{
	{"target", func(x *experiment.Plan) float64 { return x.TargetHit }, percent},
	{"ratio", func(x *experiment.Plan) float64 { return x.CompressionRatio }, decimals},
	{"rows", func(x *experiment.Plan) float64 { return float64(x.Rows) }, wholeCount},
	{"budget", func(x *experiment.Plan) float64 { return float64(x.BudgetBytes) }, wholeBytes},
	{"total", func(x *experiment.Plan) float64 { return float64(x.TotalBytes) }, wholeBytes},
	{"planned hits", func(x *experiment.Plan) float64 { return x.PredictedHitRatio }, percent},
	{"low", func(x *experiment.Plan) float64 { return x.HitLow }, percent},
	{"high", func(x *experiment.Plan) float64 { return x.HitHigh }, percent},
	{"ns/row", func(x *experiment.Plan) float64 { return x.PredictedRowNS }, decimals},
}

var tierColumns = []column[experiment.PlannedTiers]{
	{"host memory", func(x *experiment.PlannedTiers) float64 { return float64(x.HostMemory) }, wholeBytes},
	{"slab", func(x *experiment.PlannedTiers) float64 { return x.SlabRatio }, percent},
	{"host", func(x *experiment.PlannedTiers) float64 { return x.HostRatio }, percent},
	{"pages", func(x *experiment.PlannedTiers) float64 { return x.ColdRatio }, percent},
	{"slab/batch", func(x *experiment.PlannedTiers) float64 { return x.SlabBytesRead }, wholeBytes},
	{"host/batch", func(x *experiment.PlannedTiers) float64 { return x.HostBytesRead }, wholeBytes},
	{"pages/batch", func(x *experiment.PlannedTiers) float64 { return x.PagesRead }, wholeCount},
	{"read/batch", func(x *experiment.PlannedTiers) float64 { return x.BytesRead }, wholeBytes},
	{"resident ms", func(x *experiment.PlannedTiers) float64 { return x.ResidentMS }, decimals},
	{"cold ms", func(x *experiment.PlannedTiers) float64 { return x.ColdMS }, decimals},
}
