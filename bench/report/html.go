package report

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"

	"gonum.org/v1/plot/plotter"
)

//go:embed html/page.tmpl html/style.css html/page.js
var parts embed.FS

// HTMLOptions say what a page has beside its results.
type HTMLOptions struct {
	// Title is "cachebench report" if empty.
	Title string
	// Date is shown as it is; without it the same results give the same page at any time.
	Date string
	// Plots is the folder of the plots as the page's links name it; "plots" if empty.
	Plots string
}

// HTML writes one page about the results, which needs no other file and no network; its links lead to WritePlots's files.
func HTML(w io.Writer, r *Results, o HTMLOptions) error {
	style, script := part("html/style.css"), part("html/page.js")
	page := struct {
		HTMLOptions
		*Results
		Policy   string
		Style    template.CSS
		Script   template.JS
		Sections []section
		LeftOut  []string
	}{HTMLOptions: o, Results: r, Style: template.CSS(style), Script: template.JS(script)}
	page.Title = cmp.Or(o.Title, "cachebench report")
	// The browser runs and loads what is in the page only.
	page.Policy = fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; script-src 'sha256-%s'; img-src data:; base-uri 'none'; form-action 'none'", digest(style), digest(script))
	for _, s := range sections(r) {
		if len(s.Tables)+len(s.charts) == 0 {
			page.LeftOut = append(page.LeftOut, s.Missing)
			continue
		}
		for _, c := range s.charts {
			v := c.view()
			folder := cmp.Or(o.Plots, "plots")
			v.PNG, v.SVG = folder+"/"+c.id+".png", folder+"/"+c.id+".svg"
			s.Figures = append(s.Figures, v)
		}
		page.Sections = append(page.Sections, s)
	}
	t, err := template.New("page.tmpl").ParseFS(parts, "html/page.tmpl")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := t.Execute(w, page); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

func part(name string) string {
	b, err := parts.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(b)
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// section is a part of the page.
type section struct {
	ID, Title, Lead string
	// Missing is the sentence that stands for the section without data.
	Missing string
	Tables  []tableView
	Figures []figureView
	charts  []*chart
}

// tableView is a table whose columns can be sorted.
type tableView struct {
	Caption string
	Header  []string
	// Texts is the number of leading columns that are no numbers.
	Texts int
	// Folded tables show their caption only until they are opened.
	Folded bool
	Rows   [][]entry
}

// entry is a cell of a table; Sort is what it is sorted by, its text if empty.
type entry struct {
	Text, Range, Sort string
	Bad               bool
}

func sections(r *Results) []section {
	g := newGrouping(r.Cells)
	return []section{
		configuration(g), summary(g), missRatios(r, g), overTime(g), bytesSaved(g), latencies(g), missReasons(g), codecTables(r), gpuResults(r),
	}
}

func configuration(g *grouping) section {
	s := section{ID: "configuration", Title: "Configuration", Missing: "Configuration: there is no run and no sweep."}
	if len(g.groups) == 0 {
		return s
	}
	t := tableView{Header: []string{"setting", "value"}, Texts: 2}
	for _, k := range g.keys {
		var values []string
		for _, x := range g.groups {
			if v := x.settings[k]; v != "" && !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
		text := strings.Join(values, ", ")
		if len(values) > 12 {
			text = fmt.Sprintf("%s, … (%d values)", strings.Join(values[:12], ", "), len(values))
		}
		if len(values) > 1 {
			text = "varies: " + text
		}
		t.Rows = append(t.Rows, []entry{{Text: strings.ReplaceAll(k, "_", " ")}, {Text: text}})
	}
	seeds := map[uint64]bool{}
	cells := 0
	for _, x := range g.groups {
		for _, c := range x.cells {
			cells++
			if c.Config != nil {
				seeds[c.Seed] = true
			}
		}
	}
	if len(seeds) > 0 {
		t.Rows = append(t.Rows, []entry{{Text: "seeds"}, {Text: strings.Trim(fmt.Sprint(slices.Sorted(maps.Keys(seeds))), "[]")}})
	}
	s.Lead = plural(cells, "run", "runs") + " of " + plural(len(g.groups), "configuration", "configurations") + "."
	s.Tables = []tableView{t}
	return s
}

// Figures of a cell.
var (
	hitRatio     = func(c *Cell) float64 { return c.Result.Results.HitRatio }
	missRatio    = func(c *Cell) float64 { return 1 - c.Result.Results.HitRatio }
	plainRatio   = func(c *Cell) float64 { return c.Result.Uncompressed.HitRatio }
	gain         = func(c *Cell) float64 { return 100 * (hitRatio(c) - plainRatio(c)) }
	moved        = func(c *Cell) float64 { return float64(c.Result.Results.HostBytesMoved) }
	plainMoved   = func(c *Cell) float64 { return float64(c.Result.Uncompressed.HostBytesMoved) }
	budget       = func(c *Cell) float64 { return float64(c.Result.Cache.BudgetBytes) }
	rowsCached   = func(c *Cell) float64 { return float64(c.Result.Cache.RowsCached) }
	metadata     = func(c *Cell) float64 { return float64(c.Result.Cache.MetadataBytes) }
	compression  = func(c *Cell) float64 { return c.Result.Cache.CompressionRatio }
	lookups      = func(c *Cell) float64 { return c.Result.Results.LookupsPerSecond }
	outputGB     = func(c *Cell) float64 { return c.Result.Results.OutputGBPerSecond }
	mismatches   = func(c *Cell) float64 { return float64(c.Result.Mismatches) }
	milliseconds = func(x float64) string { return micros(1000 * x) }
	wholeBytes   = func(x float64) string { return bytesOf(int64(x)) }
	wholeCount   = func(x float64) string { return count(int64(x)) }
)

// saved is the part of the host bytes that the codec saves.
func saved(c *Cell) float64 {
	if plainMoved(c) == 0 {
		return 0
	}
	return 1 - moved(c)/plainMoved(c)
}

// signedPercent has no negative zero.
func signedPercent(x float64) string {
	if s := percent(x); s != "-0.00 %" {
		return s
	}
	return percent(0)
}

func summary(g *grouping) section {
	s := section{ID: "summary", Title: "Summary", Missing: "Summary: there is no run and no sweep."}
	if len(g.groups) == 0 {
		return s
	}
	columns := []struct {
		name string
		of   func(*Cell) float64
		text func(float64) string
	}{
		{"hit rate", hitRatio, percent},
		{"uncompressed", plainRatio, percent},
		{"points won", gain, func(x float64) string { return strings.Replace(fmt.Sprintf("%+.2f", x), "-0.00", "+0.00", 1) }},
		{"host bytes moved", moved, wholeBytes},
		{"saved", saved, signedPercent},
		{"p50", func(c *Cell) float64 { return c.Result.Results.BatchLatency.P50 }, milliseconds},
		{"p99", func(c *Cell) float64 { return c.Result.Results.BatchLatency.P99 }, milliseconds},
		{"lookups/s", lookups, rate},
		{"output GB/s", outputGB, figure},
		{"rows cached", rowsCached, wholeCount},
		{"budget, bytes", budget, wholeBytes},
		{"metadata", metadata, wholeBytes},
		{"compression", compression, figure},
	}
	var names []string
	for _, k := range g.keys {
		if k == "policy" || k == "budget" || k == "codec" || slices.Contains(g.varying, k) {
			names = append(names, k)
		}
	}
	t := tableView{Texts: len(names)}
	several, chosen, differ := false, false, false
	for _, x := range g.groups {
		several = several || len(x.cells) > 1
		for _, c := range x.cells {
			chosen = chosen || c.Result.Cache.Codec != x.settings["codec"]
			differ = differ || c.Result.Mismatches > 0
		}
	}
	for _, k := range names {
		t.Header = append(t.Header, strings.ReplaceAll(k, "_", " "))
	}
	if chosen {
		t.Header, t.Texts = append(t.Header, "codec chosen"), t.Texts+1
	}
	if several {
		t.Header = append(t.Header, "runs")
	}
	for _, c := range columns {
		t.Header = append(t.Header, c.name)
	}
	if differ {
		t.Header = append(t.Header, "rows that differ")
	}
	for _, x := range g.groups {
		var row []entry
		for _, k := range names {
			e := entry{Text: x.setting(k)}
			if k == "budget" {
				e.Sort = fmt.Sprintf("%g", x.median(budget))
			}
			row = append(row, e)
		}
		if chosen {
			var codecs []string
			for _, c := range x.cells {
				if !slices.Contains(codecs, c.Result.Cache.Codec) {
					codecs = append(codecs, c.Result.Cache.Codec)
				}
			}
			row = append(row, entry{Text: strings.Join(codecs, ", ")})
		}
		if several {
			row = append(row, entry{Text: fmt.Sprint(len(x.cells))})
		}
		for _, c := range columns {
			row = append(row, x.written(c.of, c.text))
		}
		if differ {
			e := x.written(mismatches, wholeCount)
			e.Bad = x.median(mismatches) > 0 || e.Range != ""
			row = append(row, e)
		}
		t.Rows = append(t.Rows, row)
	}
	s.Lead = "“Uncompressed” is a cache of the same budget, policy, seed and batches without a codec; “saved” is how much fewer bytes leave the host than with it. Headings sort."
	if several {
		s.Lead += " Figures are medians of the runs, with their range below."
	}
	s.Tables = []tableView{t}
	return s
}

// titled joins what a chart shows with its facet.
func titled(title string, f facet) string {
	if f.title == "" {
		return title
	}
	return title + ": " + f.title
}

// numbered gives charts IDs.
func numbered(id string, charts []*chart) []*chart {
	for i, c := range charts {
		c.id = id
		if len(charts) > 1 {
			c.id = fmt.Sprintf("%s-%d", id, i+1)
		}
	}
	return charts
}

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
				s.points = append(s.points, plotter.XY{X: x.median(budget), Y: x.median(missRatio)})
			}
			sortPoints(s.points)
			c.lines = append(c.lines, s)
		}
		c.x = byBytes.named("budget of the cache").logIf(xsOf(c.lines)...)
		charts = append(charts, c)
	}
	return charts
}

func sortPoints(p plotter.XYs) {
	slices.SortStableFunc(p, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
}

// simulatedCharts show the policies of a simulation: as curves, or as bars if there is one size; bytes too if they differ.
func simulatedCharts(s *Simulation) (charts []*chart) {
	ratios := []struct {
		name string
		of   func(*SimulatedPoint) float64
	}{{"miss ratio", func(p *SimulatedPoint) float64 { return p.MissRatio }}, {"byte miss ratio", func(p *SimulatedPoint) float64 { return p.ByteMissRatio }}}
	if !slices.ContainsFunc(s.Points, func(p SimulatedPoint) bool { return p.ByteMissRatio != p.MissRatio && p.ByteMissRatio != 0 }) {
		ratios = ratios[:1]
	}
	size, x := sizeOf(s)
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
						l.points = append(l.points, plotter.XY{X: size(p), Y: ratio.of(p)})
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

// sizeOf is how a simulation's sizes are read: as bytes, or as objects if it was run at unit size.
func sizeOf(s *Simulation) (func(*SimulatedPoint) float64, axis) {
	for i := range s.Points {
		if p := &s.Points[i]; p.CacheBytes != 0 && p.CacheBytes != p.CacheObjects {
			return func(p *SimulatedPoint) float64 { return float64(p.CacheBytes) }, byBytes.named("size of the cache")
		}
	}
	return func(p *SimulatedPoint) float64 { return float64(p.CacheObjects) }, byCount.named("objects in the cache")
}

func simulatedTable(s *Simulation) tableView {
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
	for _, ratio := range []struct {
		title, name string
		of          func(CurvePoint) float64
		drawn       bool
	}{
		{"Miss-ratio curve: ", "miss ratio", func(p CurvePoint) float64 { return p.MissRatio }, true},
		{"Byte miss-ratio curve: ", "byte miss ratio", func(p CurvePoint) float64 { return p.ByteMissRatio }, differ},
	} {
		of := map[string]*chart{}
		for i := range curves {
			m := &curves[i]
			key := fmt.Sprint(m.inObjects(), m.Trace)
			c := of[key]
			if c == nil || len(c.lines) == looks {
				c = &chart{title: ratio.title + cmp.Or(m.Trace, m.File), y: byPercent.named(ratio.name).zero()}
				if ratio.drawn {
					of[key], charts = c, append(charts, c)
				}
			}
			c.addCurve(m, ratio.of)
		}
	}
	return slices.DeleteFunc(charts, func(c *chart) bool { return len(xsOf(c.lines)) == 0 })
}

func (c *chart) addCurve(m *MissRatioCurve, of func(CurvePoint) float64) {
	l := series{name: cmp.Or(m.Method, m.File), look: len(c.lines)}
	if text := settingText(errorOf(m)); text != "" && text != "0" {
		l.name += " (error " + text + ")"
	}
	if slices.ContainsFunc(c.lines, func(other series) bool { return other.name == l.name }) {
		l.name += ", " + m.File
	}
	for _, p := range m.Points {
		if x := m.size(p); x > 0 { // a logarithm has no place for none, of which everything misses
			l.points = append(l.points, plotter.XY{X: x, Y: of(p)})
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
	if x, ok := v.(float64); ok {
		return short(x)
	}
	return v
}

func overTime(g *grouping) section {
	s := section{
		ID: "over-time", Title: "Hit rate over time", Missing: "Hit rate over time: there is no sweep with its series.",
		Lead: "The hit rate of the measured batches, in order.",
	}
	var with []*group
	several := false
	for _, x := range g.groups {
		if slices.ContainsFunc(x.cells, func(c *Cell) bool { return len(c.Series.HitRate) > 1 }) {
			with = append(with, x)
			several = several || len(x.cells) > 1
		}
	}
	if len(with) == 0 {
		return s
	}
	if several {
		s.Lead += " Where there are several seeds, the median of them."
	}
	var charts []*chart
	for _, f := range g.facets(with, looks) {
		c := &chart{title: titled("Hit rate over the batches", f), x: byCount.named("batch"), y: byPercent.named("hit rate")}
		for i, x := range f.groups {
			c.lines = append(c.lines, series{g.name(x, f.keys...), batches(x), i})
		}
		charts = append(charts, c)
	}
	s.charts = numbered("hit-rate", charts)
	return s
}

// batches is the median hit rate of each point that every cell with a series has, at its last batch.
func batches(x *group) (points plotter.XYs) {
	var all [][]float64
	n, each := 0, 1
	for _, c := range x.cells {
		each = max(each, c.Series.BatchesPerPoint)
		if h := c.Series.HitRate; len(h) > 1 {
			if len(all) == 0 || len(h) < n {
				n = len(h)
			}
			all = append(all, h)
		}
	}
	for i := range n {
		var values []float64
		for _, h := range all {
			values = append(values, h[i])
		}
		slices.Sort(values)
		points = append(points, plotter.XY{X: float64((i + 1) * each), Y: middle(values)})
	}
	return points
}

// manyBars is the number of lines of a bar chart above which it is split.
const manyBars = 32

// barCharts makes a chart of each facet of the groups.
func barCharts(id, title string, g *grouping, groups []*group, fill func(*chart, []*group)) []*chart {
	var charts []*chart
	for _, f := range g.facets(groups, manyBars) {
		c := &chart{title: titled(title, f), y: axis{label: "configuration"}}
		for _, x := range f.groups {
			c.categories = append(c.categories, g.name(x, f.keys...))
		}
		fill(c, f.groups)
		charts = append(charts, c)
	}
	return numbered(id, charts)
}

func medians(groups []*group, of func(*Cell) float64) (values []float64) {
	for _, x := range groups {
		values = append(values, x.median(of))
	}
	return values
}

func bytesSaved(g *grouping) section {
	s := section{
		ID: "bytes", Title: "Bytes saved", Missing: "Bytes saved: there is no run and no sweep.",
		Lead: "Bytes that left the host for misses. Fewer are better.",
	}
	if len(g.groups) > 0 {
		s.charts = barCharts("host-bytes", "Host bytes moved", g, g.groups, func(c *chart, groups []*group) {
			c.x = byBytes.named("bytes from the host").zero()
			c.bars = []barSeries{{"this cache", medians(groups, moved), 0}, {"uncompressed, same budget", medians(groups, plainMoved), 1}}
		})
	}
	return s
}

func latencies(g *grouping) section {
	s := section{
		ID: "latency", Title: "Latency distributions", Missing: "Latency distributions: there is no run and no sweep.",
		Lead: "The time of a batch by the caller's clock.",
	}
	var with []*group
	for _, x := range g.groups {
		if _, n := histogramOf(x); n > 0 {
			with = append(with, x)
		}
	}
	if len(with) > 0 {
		var charts []*chart
		for _, f := range g.facets(with, looks) {
			c := &chart{title: titled("Batches that took at most so long", f), y: byPercent.named("share of batches").within(0, 1)}
			for i, x := range f.groups {
				h, n := histogramOf(x)
				c.lines = append(c.lines, series{g.name(x, f.keys...), cumulated(h, n), i})
			}
			c.x = byTime.named("time of a batch").logIf(xsOf(c.lines)...)
			charts = append(charts, c)
		}
		s.charts = numbered("latency-distribution", charts)
	}
	timed := slices.DeleteFunc(slices.Clone(g.groups), func(x *group) bool {
		return x.median(func(c *Cell) float64 { return c.Result.Results.BatchLatency.P99 }) == 0
	})
	if len(timed) > 0 {
		s.charts = append(s.charts, barCharts("latency-percentiles", "Percentiles of the time of a batch", g, timed, func(c *chart, groups []*group) {
			c.style = dots
			c.bars = []barSeries{
				{"p50", medians(groups, func(c *Cell) float64 { return 1000 * c.Result.Results.BatchLatency.P50 }), 0},
				{"p95", medians(groups, func(c *Cell) float64 { return 1000 * c.Result.Results.BatchLatency.P95 }), 1},
				{"p99", medians(groups, func(c *Cell) float64 { return 1000 * c.Result.Results.BatchLatency.P99 }), 2},
			}
			c.x = byTime.named("time of a batch").logIf(c.extent()...)
			if !c.x.log {
				c.x = c.x.zero()
			}
		})...)
	}
	return s
}

// histogramOf adds up the histograms of a group's cells; n is what they count. Bounds may differ: a value counts at the
// upper bound of its own histogram.
func histogramOf(x *group) (sum Histogram, n int64) {
	at := map[float64]int64{}
	for _, c := range x.cells {
		h := &c.Series.Latency
		for i, k := range h.Counts {
			n += k
			if i < len(h.Bounds) {
				at[h.Bounds[i]] += k
			}
		}
	}
	sum.Bounds = slices.Sorted(maps.Keys(at))
	for _, b := range sum.Bounds {
		sum.Counts = append(sum.Counts, at[b])
	}
	return sum, n
}

// cumulated is the share of the values that are not above each bound, from the last bound that none is below to the first
// that all are.
func cumulated(h Histogram, n int64) (points plotter.XYs) {
	below := int64(0)
	for i, b := range h.Bounds {
		below += h.Counts[i]
		p := plotter.XY{X: b, Y: float64(below) / float64(n)}
		if below == 0 && b > 0 {
			points = plotter.XYs{p}
			continue
		}
		if b > 0 {
			points = append(points, p)
		}
		if below == n {
			break
		}
	}
	return points
}

// reasonNames are the reasons of misses in the order in which they are drawn; others follow by name.
var reasonNames = []string{"cold", "rejected", "evicted", "invalidated", "oversize"}

func missReasons(g *grouping) section {
	s := section{
		ID: "reasons", Title: "Miss reasons", Missing: "Miss reasons: there is no run and no sweep.",
		Lead: "Why lookups missed, as shares of all lookups.",
	}
	found := map[string]bool{}
	for _, x := range g.groups {
		for _, c := range x.cells {
			for k, n := range c.Result.MissesByReason {
				found[k] = found[k] || n > 0
			}
		}
	}
	var names []string
	for _, k := range append(slices.Clone(reasonNames), slices.Sorted(maps.Keys(found))...) {
		if found[k] && !slices.Contains(names, k) {
			names = append(names, k)
		}
	}
	if len(names) > 0 {
		s.charts = barCharts("miss-reasons", "Misses by reason", g, g.groups, func(c *chart, groups []*group) {
			c.style, c.x = stacked, byPercent.named("share of lookups").zero()
			for i, k := range names {
				c.bars = append(c.bars, barSeries{k, medians(groups, func(c *Cell) float64 {
					if c.Result.Results.Lookups == 0 {
						return 0
					}
					return float64(c.Result.MissesByReason[k]) / float64(c.Result.Results.Lookups)
				}), i})
			}
		})
	}
	return s
}

func codecTables(r *Results) section {
	s := section{
		ID: "codecs", Title: "Codecs", Missing: "Codecs: there is no output of compress --json.",
		Lead: "The whole table with each codec; speeds are of one core. Stored bytes exclude the codec's metadata.",
	}
	var charts []*chart
	for _, f := range r.Codecs {
		t := tableView{Caption: f.File, Header: []string{"codec", "ratio", "saving", "rows", "row bytes", "rows stored raw", "metadata", "encode GB/s", "decode GB/s", "round trip"}, Texts: 1}
		if len(f.Codecs) > 0 {
			t.Caption = fmt.Sprintf("%s: %s rows of %s B", f.File, count(int64(f.Codecs[0].Rows)), count(int64(f.Codecs[0].RowBytes)))
		}
		c := &chart{title: "Bytes saved by each codec: " + f.File, x: byPercent.named("saving").zero(), y: axis{label: "codec"}, bars: []barSeries{{name: "saving"}}}
		for _, x := range f.Codecs {
			n := func(v float64, text string) entry { return entry{Text: text, Sort: fmt.Sprintf("%g", v)} }
			t.Rows = append(t.Rows, []entry{
				{Text: x.Codec}, n(x.Ratio, fmt.Sprintf("%.3f", x.Ratio)), n(x.SavingPercent, fmt.Sprintf("%.2f %%", x.SavingPercent)),
				n(float64(x.Rows), count(int64(x.Rows))), n(float64(x.RowBytes), count(int64(x.RowBytes))), n(float64(x.RawRows), count(int64(x.RawRows))),
				n(float64(x.MetadataBytes), bytesOf(x.MetadataBytes)), n(x.EncodeGBPerSecond, figure(x.EncodeGBPerSecond)), n(x.DecodeGBPerSecond, figure(x.DecodeGBPerSecond)),
				{Text: x.RoundTrip, Bad: x.RoundTrip != "ok"},
			})
			c.categories, c.bars[0].values = append(c.categories, x.Codec), append(c.bars[0].values, x.SavingPercent/100)
		}
		s.Tables = append(s.Tables, t)
		charts = append(charts, c)
	}
	s.charts = numbered("codec-saving", charts)
	return s
}

func gpuResults(r *Results) section {
	s := section{
		ID: "gpu", Title: "GPU operations", Missing: "GPU operations: there is no output of gpu-bench --json.",
		Lead: "Each operation beside a plain kernel on the same rows in the same run.",
	}
	var charts []*chart
	for _, f := range r.GPUs {
		for _, p := range []struct {
			title  string
			curves []curve
		}{{"Hits: rows from device memory", hitCurves(f.Report)}, {"Misses: rows from host memory", missCurves(f.Report)}} {
			c := &chart{title: p.title, y: byNumber.named("GB/s of output").zero()}
			for _, l := range p.curves {
				if len(l.points) > 0 {
					c.lines = append(c.lines, series{l.name, l.points, len(c.lines)})
				}
			}
			if len(r.GPUs) > 1 {
				c.title += ": " + f.File
			}
			c.x = byCount.named("row bytes").logIf(xsOf(c.lines)...)
			if len(c.lines) > 0 {
				charts = append(charts, c)
			}
		}
		t := tableView{Caption: f.File + ": " + machine(f.Report), Header: []string{"case", "rows", "row bytes", "batch", "value", "unit", "baseline", "ratio", "goal", "reached"}, Texts: 2, Folded: true}
		for i := range f.Report.Results {
			x := &f.Report.Results[i]
			n := func(v float64, text string) entry { return entry{Text: text, Sort: fmt.Sprintf("%g", v)} }
			reached := reachedOf(x)
			t.Rows = append(t.Rows, []entry{
				{Text: x.Case}, {Text: strings.TrimPrefix(strings.TrimSuffix(x.Codec+"; "+x.Detail, "; "), "; ")}, n(float64(x.RowBytes), count(int64(x.RowBytes))), n(float64(x.Batch), count(int64(x.Batch))),
				n(x.Value, figure(x.Value)), {Text: unit(x.Unit)}, n(x.BaselineValue, ifAny(x.BaselineValue)), n(x.Ratio, ifAny(x.Ratio)), {Text: goalOf(x)}, {Text: reached, Bad: reached == "no"},
			})
		}
		s.Tables = append(s.Tables, t)
	}
	s.charts = numbered("gpu", charts)
	return s
}
