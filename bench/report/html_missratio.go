package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/sim"
)

// curve is a line of a chart of miss ratios.
type curve struct {
	id, chart  string // the chart's ID and title
	name, file string
	size       axis
	points     []sim.CurvePoint
}

func missRatios(r *Results, g *grouping) section {
	s := section{
		ID: "miss-ratio", Title: "Miss-ratio curves", Missing: "Miss-ratio curves: there is no output of simulate --json, with --mrc or without, and no runs of several budgets.",
		Lead: "The share of lookups that miss over the size of the cache. Lower is better.",
	}
	s.Tables = simulatedTables(r)
	s.Charts = curveCharts(slices.Concat(measuredCurves(g), simulatedCurves(r)))
	return s
}

// measuredCurves are runs that differ in their budgets, and maybe in more.
func measuredCurves(g *grouping) (curves []curve) {
	names, groups := experiment.GroupBy(g.groups, func(x *group) string { return g.name(x, "budget") })
	for _, name := range names {
		c := curve{id: "measured-miss-ratio", chart: "measured", name: name, size: byBytes.named("budget of the cache")}
		for _, x := range groups[name] {
			c.points = append(c.points, sim.CurvePoint{CacheBytes: int64(median(x.runs, budget)), MissRatio: median(x.runs, missRatio)})
		}
		curves = append(curves, c)
	}
	return curves
}

// simulatedCurves are the miss ratios of each policy over the sizes, and then the curves that simulate --mrc printed.
func simulatedCurves(r *Results) (curves []curve) {
	order, points := experiment.GroupBy(r.Simulated, func(p *SimulatedPoint) [2]string { return [2]string{p.File, p.Policy} })
	for _, k := range order {
		c := curve{chart: k[0], name: k[1], file: k[0]}
		for _, p := range points[k] {
			c.points = append(c.points, sim.CurvePoint{CacheBytes: p.CacheBytes, CacheObjects: p.CacheObjects, MissRatio: p.MissRatio, ByteMissRatio: p.ByteMissRatio})
		}
		curves = append(curves, c)
	}
	for _, m := range r.Curves {
		c := curve{chart: cmp.Or(m.Trace, m.File), name: cmp.Or(m.Method, m.File), file: m.File, points: m.Points}
		if m.Error != 0 {
			c.name += fmt.Sprintf(" (error %.2f points)", 100*m.Error)
		}
		curves = append(curves, c)
	}
	for i := range curves {
		c := &curves[i]
		c.id, c.size = "miss-ratio-curve", byBytes.named("size of the cache")
		if !slices.ContainsFunc(c.points, func(p sim.CurvePoint) bool { return p.CacheBytes != 0 && p.CacheBytes != p.CacheObjects }) { // of unit size
			c.size = byCount.named("objects in the cache")
			for k := range c.points {
				c.points[k].CacheBytes = c.points[k].CacheObjects
			}
		}
	}
	return curves
}

// curveCharts draws the curves of a trace into one chart, and their byte miss ratios, where they differ, into one of the charts behind.
// A curve of one point is left out: tables have it.
func curveCharts(curves []curve) (charts []*chart) {
	for _, k := range []struct {
		title, name string
		of          func(sim.CurvePoint) float64
		has         func(sim.CurvePoint) bool
	}{
		{"Miss-ratio curve: ", "miss ratio", func(p sim.CurvePoint) float64 { return p.MissRatio }, func(sim.CurvePoint) bool { return true }},
		{"Byte miss-ratio curve: ", "byte miss ratio", func(p sim.CurvePoint) float64 { return p.ByteMissRatio }, func(p sim.CurvePoint) bool { return p.ByteMissRatio != 0 && p.ByteMissRatio != p.MissRatio }},
	} {
		open := map[string]*chart{}
		for _, m := range curves {
			line := series{name: m.name}
			for _, p := range m.points {
				if p.CacheBytes > 0 { // a logarithm has no place for none, of which everything misses
					line.points = append(line.points, xy{X: float64(p.CacheBytes), Y: k.of(p)})
				}
			}
			if len(line.points) < 2 || !slices.ContainsFunc(m.points, k.has) {
				continue
			}
			slices.SortStableFunc(line.points, func(a, b xy) int { return cmp.Compare(a.X, b.X) })
			key := m.size.label + m.chart
			c := open[key]
			if c == nil || len(c.lines) == looks {
				c = &chart{id: m.id, title: k.title + m.chart, x: m.size, y: byPercent.named(k.name).zero()}
				open[key], charts = c, append(charts, c)
			}
			if slices.ContainsFunc(c.lines, func(other series) bool { return other.name == line.name }) {
				line.name += ", " + m.file
			}
			if len(line.points) > drawnPoints {
				c.caption = "Some of the points are drawn."
			}
			line.look = len(c.lines)
			c.lines = append(c.lines, line)
			xs, _ := coordinates(c.lines)
			c.x = c.x.logIfWide(xs)
		}
	}
	_, groups := experiment.GroupBy(charts, func(c **chart) string { return (*c).id })
	for id, same := range groups {
		for i, c := range same {
			if len(same) > 1 {
				(*c).id = fmt.Sprintf("%s-%d", id, i+1)
			}
		}
	}
	return charts
}
