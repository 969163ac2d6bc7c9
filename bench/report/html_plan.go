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
			t := placementTable(&p.Placements[k])
			t.Caption = fmt.Sprintf("%s, %s. %s", p.File, machineOf(&p.Placements[k]), verdictOf(&p.Placements[k]))
			s.Tables = append(s.Tables, t)
		}
		t := answersTable(&p.PlanResult)
		t.Caption = fmt.Sprintf("%s: %s rows%s. %s", p.File, count(p.Table.Rows), tableForm(&p.Table), p.Verdict)
		s.Tables = append(s.Tables, t, memoryTable(&p.PlanResult))
		if len(p.Answers) > 0 {
			c := curve{id: "plan-curve", chart: p.File, name: p.Answers[0].Policy, file: p.File, size: byBytes.named("GPU memory")}
			for _, point := range p.Curve {
				c.points = append(c.points, sim.CurvePoint{CacheBytes: point.BudgetBytes, MissRatio: 1 - point.HitRatio})
			}
			curves = append(curves, c)
		}
		if tiers := tiersTable(&p.PlanResult); len(tiers.Rows) > 0 {
			tiers.Caption, tiers.Folded = p.File+": tiers", true
			s.Tables = append(s.Tables, tiers)
		}
	}
	s.Charts = curveCharts(curves)
	return s
}
