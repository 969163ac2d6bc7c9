package gpu

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/internal/browsertest"
)

var update = flag.Bool("update", false, "rewrite documents, pictures and the golden file")

// chart is lines over an axis.
type chart struct {
	title, x, y string
	percent     bool // of x
	log         bool
	ticks       []float64
	lines       []line
}

// line is a line of a chart. kind says how it is drawn.
type line struct {
	name   string
	kind   string
	points []point
}

type point struct{ x, y float64 }

const (
	solid  = ""
	dashed = "dashed" // what others are compared with
	dotted = "dotted" // limits, without marks
)

// picture is charts beside each other for a document, in Vega-Lite.
type picture []byte

func pictureOf(title string, charts ...chart) picture {
	var all []map[string]any
	for _, c := range charts {
		all = append(all, c.spec())
	}
	text, err := json.Marshal(map[string]any{
		"title": map[string]any{"text": title, "anchor": "middle"}, "hconcat": all,
		"resolve": map[string]any{"scale": map[string]string{"color": "independent", "shape": "independent", "strokeDash": "independent"}},
		"config": map[string]any{
			"background": "#fff", "font": "Liberation Sans, Arial, sans-serif", "view": map[string]any{"stroke": nil},
			"axis":   map[string]any{"labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal", "labelFlush": false},
			"legend": map[string]any{"orient": "bottom", "columns": 2, "title": nil, "labelLimit": 290, "labelFontSize": 12, "symbolSize": 60},
		},
	})
	if err != nil {
		panic(err)
	}
	return text
}

func (c *chart) spec() map[string]any {
	type m = map[string]any
	var values []m
	var names []string
	var numbers []int
	var dashes [][]int
	for i, l := range c.lines {
		names, numbers = append(names, l.name), append(numbers, i)
		dashes = append(dashes, map[string][]int{solid: {1, 0}, dashed: {7, 3}, dotted: {2, 3}}[l.kind])
		for _, p := range l.points {
			values = append(values, m{"series": l.name, "line": i, "x": p.x, "y": p.y, "mark": l.kind != dotted})
		}
	}
	scale, axis := m{"type": "linear", "zero": false}, m{"values": c.ticks, "format": "d"}
	if c.log {
		scale = m{"type": "log", "nice": false}
	}
	if c.percent {
		axis = m{"values": c.ticks, "labelExpr": "format(100 * datum.value, '.4~g') + ' %'"}
	}
	y := m{"field": "y", "type": "quantitative", "title": c.y, "scale": m{"zero": true}, "axis": m{"format": ".4~g"}}
	series := m{"field": "series", "type": "nominal", "scale": m{"domain": names}}
	return m{
		"title": c.title, "width": 520, "height": 280, "data": m{"values": values},
		"encoding": m{"x": m{"field": "x", "type": "quantitative", "title": c.x, "scale": scale, "axis": axis}},
		"layer": []m{
			{"mark": m{"type": "line", "strokeWidth": 1.9, "strokeJoin": "round"}, "encoding": m{"y": y, "color": series,
				"strokeDash": m{"field": "line", "type": "nominal", "scale": m{"domain": numbers, "range": dashes}, "legend": nil}}},
			{"mark": m{"type": "point", "filled": true, "size": 45, "opacity": 1}, "encoding": m{"y": y, "color": series, "shape": series},
				"transform": []m{{"filter": "datum.mark"}}},
		},
	}
}

// check compares a committed SVG file with the charts by the specification's digest, which is in its last line: browsers differ in how wide text is.
// -update draws the file anew in Chromium.
func (p picture) check(t *testing.T, path string) {
	t.Helper()
	made := "<!-- made by make gpu-docs of a Vega-Lite specification with SHA-256 " + fmt.Sprintf("%x", sha256.Sum256(p)) + " -->\n"
	if *update {
		if err := os.WriteFile(path, []byte(p.draw(t)+"\n"+made), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(path); err != nil || !strings.HasSuffix(string(have), made) {
		t.Errorf("%s is not of the figures in docs/results; make gpu-docs rewrites it (%v)", path, err)
	}
}

func (p picture) draw(t *testing.T) string {
	t.Helper()
	page := "<meta charset=utf-8>"
	for _, name := range []string{"vega.min.js", "vega-lite.min.js"} {
		script, err := os.ReadFile("../../bench/report/html/vega/" + name)
		if err != nil {
			t.Fatal(err)
		}
		page += "<script>" + string(script) + "</script>\n"
	}
	path := filepath.Join(t.TempDir(), "vega.html")
	if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	b := browsertest.New(t)
	b.Open("file://" + path)
	return browsertest.Eval[string](b, fmt.Sprintf(`new vega.View(vega.parse(vegaLite.compile(%s).spec), {renderer: "none"}).toSVG()`, p))
}

// charts draw GB/s of output over row bytes: hits against the device's memory, and misses against the link.
func charts(r *Report) (all []chart) {
	for _, p := range []struct {
		title string
		lines []line
	}{{"Hits: rows from device memory", hitLines(r)}, {"Misses: rows from host memory", missLines(r)}} {
		c := chart{title: p.title, x: "row bytes", y: "GB/s of output", log: true}
		for _, l := range p.lines {
			if len(l.points) > 0 {
				c.lines = append(c.lines, l)
			}
			for _, at := range l.points {
				c.ticks = append(c.ticks, at.x)
			}
		}
		slices.Sort(c.ticks)
		c.ticks = slices.Compact(c.ticks)
		if len(c.lines) > 0 {
			all = append(all, c)
		}
	}
	return all
}

// lineOf is what results say, in the order of their rows, as far as they say it.
func lineOf(r *Report, is func(*Result) bool, value func(*Result) float64) (points []point) {
	for i := range r.Results {
		if x := &r.Results[i]; is(x) && x.RowBytes > 0 && value(x) > 0 && !math.IsInf(value(x), 0) {
			points = append(points, point{float64(x.RowBytes), value(x)})
		}
	}
	slices.SortStableFunc(points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
	return points
}

func ofCase(name string) func(*Result) bool { return func(x *Result) bool { return x.Case == name } }

func valueOf(x *Result) float64    { return x.Value }
func baselineOf(x *Result) float64 { return x.BaselineValue }
func furtherOf(name string) func(*Result) float64 {
	return func(x *Result) float64 { return x.FurtherValue(name) }
}

// limitOf returns the value of a limit, 0 if it was not measured.
func limitOf(r *Report, name, codec string) float64 {
	for _, x := range r.Results {
		if x.Case == name && x.Codec == codec {
			return x.Value
		}
	}
	return 0
}

func hitLines(r *Report) []line {
	dense := func(x *Result) bool { return x.Case == "hit-decode" && x.Codec != SparseCodec }
	sparse := func(x *Result) bool { return x.Case == "hit-decode" && x.Codec == SparseCodec }
	copied := limitOf(r, "device-copy", "")
	return []line{
		{name: "hit-decode, N(0,1)", points: lineOf(r, dense, valueOf)},
		{name: "hit-decode, sparse", points: lineOf(r, sparse, valueOf)},
		{name: "gather-hits, N(0,1)", points: lineOf(r, ofCase("gather-hits"), valueOf)},
		{name: "plain gather, uncompressed", points: lineOf(r, dense, baselineOf), kind: dashed},
		{name: "limit: read and write uncompressed", points: lineOf(r, dense, func(*Result) float64 { return copied / 2 }), kind: dotted},
		{name: "limit: read sparse, write", points: lineOf(r, sparse, func(x *Result) float64 { return copied / (1 + 1/cmp.Or(x.Compression, 1)) }), kind: dotted},
	}
}

func missLines(r *Report) []line {
	misses, link := ofCase("gather-misses"), limitOf(r, "link", "to device")
	lines := []line{
		{name: "gather-misses, N(0,1)", points: lineOf(r, misses, valueOf)},
		{name: "zero-copy, sorted", points: lineOf(r, misses, furtherOf(SortedZeroCopy)), kind: dashed},
		{name: "zero-copy, unsorted", points: lineOf(r, misses, furtherOf(UnsortedZeroCopy)), kind: dashed},
		{name: "limit: link, sectors of stored rows", points: lineOf(r, misses, baselineOf), kind: dotted},
		{name: "limit: link, uncompressed", points: lineOf(r, misses, func(*Result) float64 { return link }), kind: dotted},
	}
	var threads []int
	for _, x := range r.Results {
		if x.Case != "gather-misses-large" || slices.Contains(threads, x.HostThreads) {
			continue
		}
		is := func(y *Result) bool { return y.Case == x.Case && y.HostThreads == x.HostThreads }
		size := fmt.Sprintf("%.3g GiB", float64(x.TableBytes)/(1<<30))
		lines = append(lines, line{name: fmt.Sprintf("gather-misses, %s, %d threads", size, x.HostThreads), points: lineOf(r, is, valueOf)})
		if len(threads) == 0 {
			lines = append(lines, line{name: "zero-copy, sorted, " + size, points: lineOf(r, is, baselineOf), kind: dashed})
		}
		threads = append(threads, x.HostThreads)
	}
	return lines
}
