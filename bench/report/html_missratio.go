package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/bench/sim"
)

func missRatios(r *Results, g *grouping) section {
	s := section{
		ID: "miss-ratio", Title: "Miss-ratio curves", Missing: "Miss-ratio curves: there is no output of simulate --json, with --mrc or without, and no runs of several budgets.",
		Lead: "The share of lookups that miss over the size of the cache. Lower is better.",
	}
	s.charts = append(s.charts, numbered("measured-miss-ratio", measuredCurves(g))...)
	var simulated []*chart
	for i := range r.Simulations {
		simulated = append(simulated, simulatedCharts(&r.Simulations[i])...)
		s.Tables = append(s.Tables, simulatedTable(&r.Simulations[i]))
	}
	s.charts = append(s.charts, numbered("simulated-miss-ratio", simulated)...)
	s.charts = append(s.charts, numbered("miss-ratio-curve", curveCharts(r.Curves))...)
	return s
}

// measuredCurves are runs that differ in their budgets, and maybe in more.
func measuredCurves(g *grouping) (charts []*chart) {
	if !slices.Contains(g.varying, "budget") {
		return nil
	}
	type line struct {
		name   string
		groups []*group
	}
	var lines []*line
	for _, x := range g.groups {
		name := g.name(x, "budget")
		i := slices.IndexFunc(lines, func(l *line) bool { return l.name == name })
		if i < 0 {
			lines, i = append(lines, &line{name: name}), len(lines)
		}
		lines[i].groups = append(lines[i].groups, x)
	}
	var first []*group
	of := map[*group]*line{}
	for _, l := range lines {
		if len(l.groups) > 1 {
			first = append(first, l.groups[0])
			of[l.groups[0]] = l
		}
	}
	if len(first) == 0 {
		return nil
	}
	for _, f := range g.facets(first, looks, "budget") {
		c := &chart{title: titled("Miss ratio over the budget, measured", f), y: byPercent.named("miss ratio").zero()}
		for i, x := range f.groups {
			s := series{name: g.name(x, append(f.keys, "budget")...), look: i}
			for _, x := range of[x].groups {
				s.points = append(s.points, xy{X: x.median(budget), Y: x.median(missRatio)})
			}
			sortPoints(s.points)
			c.lines = append(c.lines, s)
		}
		c.x = byBytes.named("budget of the cache").logIf(xsOf(c.lines)...)
		charts = append(charts, c)
	}
	return charts
}

func sortPoints(p []xy) {
	slices.SortStableFunc(p, func(a, b xy) int { return cmp.Compare(a.X, b.X) })
}

// simulatedCharts show the policies of a simulation: as curves, or as bars if there is one size; bytes too if they differ.
func simulatedCharts(s *SimulationFile) (charts []*chart) {
	ratios := []struct {
		name string
		of   func(*sim.Result) float64
	}{{"miss ratio", func(p *sim.Result) float64 { return p.MissRatio }}, {"byte miss ratio", func(p *sim.Result) float64 { return p.ByteMissRatio }}}
	if !slices.ContainsFunc(s.Points, func(p sim.Result) bool { return p.ByteMissRatio != p.MissRatio && p.ByteMissRatio != 0 }) {
		ratios = ratios[:1]
	}
	size, x := sizeAxis(s)
	var policies []string
	sizes := map[float64]bool{}
	for i := range s.Points {
		sizes[size(&s.Points[i])] = true
		if !slices.Contains(policies, s.Points[i].Policy) {
			policies = append(policies, s.Points[i].Policy)
		}
	}
	for _, ratio := range ratios {
		title := strings.ToUpper(ratio.name[:1]) + ratio.name[1:] + ", simulated: " + s.File
		if len(sizes) == 1 {
			c := &chart{title: title, x: byPercent.named(ratio.name).zero(), y: axis{label: "policy"}, bars: []barSeries{{name: ratio.name}}}
			for i := range s.Points {
				c.categories = append(c.categories, s.Points[i].Policy)
				c.bars[0].values = append(c.bars[0].values, ratio.of(&s.Points[i]))
			}
			charts = append(charts, c)
			continue
		}
		chunks := slices.Collect(slices.Chunk(policies, looks))
		for part, names := range chunks {
			c := &chart{title: title, y: byPercent.named(ratio.name).zero()}
			if len(chunks) > 1 {
				c.title = fmt.Sprintf("%s, part %d of %d", title, part+1, len(chunks))
			}
			for i, name := range names {
				l := series{name: name, look: i}
				for k := range s.Points {
					if p := &s.Points[k]; p.Policy == name {
						l.points = append(l.points, xy{X: size(p), Y: ratio.of(p)})
					}
				}
				sortPoints(l.points)
				c.lines = append(c.lines, l)
			}
			c.x = x.logIf(xsOf(c.lines)...)
			charts = append(charts, c)
		}
		if len(chunks) > 1 { // parts of one picture have the same height
			var all []series
			for _, c := range charts[len(charts)-len(chunks):] {
				all = append(all, c.lines...)
			}
			y := byPercent.zero()
			lo, hi := y.span(ysOf(all))
			for _, c := range charts[len(charts)-len(chunks):] {
				c.y = c.y.within(lo, hi)
			}
		}
	}
	return charts
}

// sizeAxis is how a simulation's sizes are read: as bytes, or as objects if it was run at unit size.
func sizeAxis(s *SimulationFile) (func(*sim.Result) float64, axis) {
	for i := range s.Points {
		if p := &s.Points[i]; p.CacheBytes != 0 && p.CacheBytes != p.CacheObjects {
			return func(p *sim.Result) float64 { return float64(p.CacheBytes) }, byBytes.named("size of the cache")
		}
	}
	return func(p *sim.Result) float64 { return float64(p.CacheObjects) }, byCount.named("objects in the cache")
}

func simulatedTable(s *SimulationFile) tableView {
	t := tableView{Caption: "Simulation " + s.File, Header: []string{"policy", "objects", "size", "requests", "misses", "miss ratio", "byte miss ratio", "requests/s"}, Texts: 1, Folded: true}
	number := func(x float64, text string) entry { return entry{Text: text, Sort: fmt.Sprintf("%g", x)} }
	for _, p := range s.Points {
		t.Rows = append(t.Rows, []entry{
			{Text: p.Policy}, number(float64(p.CacheObjects), count(p.CacheObjects)), number(float64(p.CacheBytes), bytesOf(p.CacheBytes)),
			number(float64(p.Requests), count(p.Requests)), number(float64(p.Misses), count(p.Misses)),
			number(p.MissRatio, percent(p.MissRatio)), number(p.ByteMissRatio, percent(p.ByteMissRatio)), number(p.RequestsPerSecond, rate(p.RequestsPerSecond)),
		})
	}
	return t
}

// curveCharts have the curves of one trace beside each other, and those of bytes after them if they differ.
func curveCharts(curves []MissRatioCurve) (charts []*chart) {
	differ := slices.ContainsFunc(curves, func(m MissRatioCurve) bool {
		return slices.ContainsFunc(m.Points, func(p CurvePoint) bool { return p.ByteMissRatio != 0 && p.ByteMissRatio != p.MissRatio })
	})
	type kind struct {
		title, name string
		of          func(CurvePoint) float64
	}
	kinds := []kind{{"Miss-ratio curve: ", "miss ratio", func(p CurvePoint) float64 { return p.MissRatio }}}
	if differ {
		kinds = append(kinds, kind{"Byte miss-ratio curve: ", "byte miss ratio", func(p CurvePoint) float64 { return p.ByteMissRatio }})
	}
	for _, k := range kinds {
		of := map[string]*chart{}
		for i := range curves {
			m := &curves[i]
			key := fmt.Sprint(m.inObjects(), m.Trace)
			c := of[key]
			if c == nil || len(c.lines) == looks {
				c = &chart{title: k.title + cmp.Or(m.Trace, m.File), y: byPercent.named(k.name).zero()}
				of[key], charts = c, append(charts, c)
			}
			c.addCurve(m, k.of)
		}
	}
	return slices.DeleteFunc(charts, func(c *chart) bool { return len(xsOf(c.lines)) == 0 })
}

func (c *chart) addCurve(m *MissRatioCurve, of func(CurvePoint) float64) {
	l := series{name: cmp.Or(m.Method, m.File), look: len(c.lines)}
	if text := settingText(errorOf(m)); text != "" {
		l.name += " (error " + text + ")"
	}
	if slices.ContainsFunc(c.lines, func(other series) bool { return other.name == l.name }) {
		l.name += ", " + m.File
	}
	for _, p := range m.Points {
		if x := m.size(p); x > 0 { // a logarithm has no place for none, of which everything misses
			l.points = append(l.points, xy{X: x, Y: of(p)})
		}
	}
	sortPoints(l.points)
	if len(l.points) > drawnPoints {
		c.caption = "The page has some of the points, the plots all."
	}
	c.lines = append(c.lines, l)
	c.x = byBytes.named("size of the cache")
	if m.inObjects() {
		c.x = byCount.named("objects in the cache")
	}
	c.x = c.x.logIf(xsOf(c.lines)...)
}

func errorOf(m *MissRatioCurve) (v any) {
	if decodeOne(m.Error, &v) != nil {
		return nil
	}
	if x, ok := v.(float64); ok && x != 0 {
		return fmt.Sprintf("%.2f points", 100*x)
	} else if ok {
		return nil
	}
	return v
}
