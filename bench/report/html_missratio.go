package report

import (
	"cmp"
	"fmt"
	"slices"
)

func missRatios(r *Results, g *grouping) section {
	s := section{
		ID: "miss-ratio", Title: "Miss-ratio curves", Missing: "Miss-ratio curves: there is no output of simulate --json, with --mrc or without, and no runs of several budgets.",
		Lead: "The share of lookups that miss over the size of the cache. Lower is better.",
	}
	s.charts = append(s.charts, numbered("measured-miss-ratio", measuredCurves(g))...)
	curves := slices.Clone(r.Curves)
	for i := range r.Simulations {
		f := &r.Simulations[i]
		s.Tables = append(s.Tables, simulatedTable(f))
		curves = append(curves, f.curves()...)
	}
	s.charts = append(s.charts, numbered("miss-ratio-curve", curveCharts(curves))...)
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
	chunks(first, func(title string, groups []*group) {
		c := &chart{title: title, y: byPercent.named("miss ratio").zero()}
		for i, x := range groups {
			s := series{name: g.name(x, "budget"), look: i}
			for _, x := range of[x].groups {
				s.points = append(s.points, xy{X: x.median(budget), Y: x.median(missRatio)})
			}
			sortPoints(s.points)
			c.lines = append(c.lines, s)
		}
		c.x = byBytes.named("budget of the cache").logIf(xsOf(c.lines)...)
		charts = append(charts, c)
	}, "Miss ratio over the budget, measured")
	return charts
}

func sortPoints(p []xy) {
	slices.SortStableFunc(p, func(a, b xy) int { return cmp.Compare(a.X, b.X) })
}

// curves returns the miss ratios of each policy over the sizes.
func (s *SimulationFile) curves() (curves []MissRatioCurve) {
	for _, p := range s.Points {
		i := slices.IndexFunc(curves, func(m MissRatioCurve) bool { return m.Method == p.Policy })
		if i < 0 {
			curves, i = append(curves, MissRatioCurve{File: s.File, Method: p.Policy}), len(curves)
		}
		curves[i].Points = append(curves[i].Points, CurvePoint{float64(p.CacheBytes), float64(p.CacheObjects), p.MissRatio, p.ByteMissRatio})
	}
	return curves
}

func simulatedTable(s *SimulationFile) tableView {
	t := tableView{Caption: "Simulation " + s.File, Header: []string{"policy", "objects", "size", "requests", "misses", "miss ratio", "byte miss ratio", "requests/s"}, Texts: 1}
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

// curveCharts have the curves of one trace beside each other, and those of bytes after them where they differ. A curve of one
// point is left to its table.
func curveCharts(curves []MissRatioCurve) (charts []*chart) {
	for _, k := range []struct {
		title, name string
		of          func(CurvePoint) float64
		has         func(CurvePoint) bool
	}{
		{"Miss-ratio curve: ", "miss ratio", func(p CurvePoint) float64 { return p.MissRatio }, func(CurvePoint) bool { return true }},
		{"Byte miss-ratio curve: ", "byte miss ratio", func(p CurvePoint) float64 { return p.ByteMissRatio }, func(p CurvePoint) bool { return p.ByteMissRatio != 0 && p.ByteMissRatio != p.MissRatio }},
	} {
		of := map[string]*chart{}
		for i := range curves {
			m := &curves[i]
			if len(m.Points) < 2 || !slices.ContainsFunc(m.Points, k.has) {
				continue
			}
			name := cmp.Or(m.Trace, m.File)
			key := fmt.Sprint(m.inObjects(), name)
			c := of[key]
			if c == nil || len(c.lines) == looks {
				c = &chart{title: k.title + name, y: byPercent.named(k.name).zero()}
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
		c.caption = "Some of the points are drawn."
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
