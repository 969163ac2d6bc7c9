package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// chart is curves over an axis. The page draws it with Vega-Lite, from the specification that spec returns.
type chart struct {
	id, title, caption string
	x, y               axis
	lines              []series
}

// axis says how values are placed and written.
type axis struct {
	label string
	log   bool
	// fromZero widens what the values span.
	fromZero bool
	// format and expr write a tick: a number format of D3, and a Vega expression of the formatted text, datum.label, or the number, datum.value.
	format, expr string
	// value writes any value.
	value func(float64) string
}

type xy struct{ X, Y float64 }

// series is a curve. look numbers its colour, dashes and mark.
type series struct {
	name   string
	points []xy
	look   int
}

// looks is the number of series that are told apart; charts of more are split.
const looks = 8

// The units of axes.
var (
	byPercent = axis{expr: "format(100 * datum.value, '.4~g') + ' %'", value: percent}
	byBytes   = axis{format: "~s", expr: "datum.label === '' ? '' : replace(datum.label, /[a-zA-Z]?$/, ' $&B')", value: func(x float64) string { return bytesOf(int64(x)) }}
	byCount   = axis{format: ",", value: func(x float64) string { return count(int64(x)) }}
)

func (a axis) named(label string) axis { a.label = label; return a }
func (a axis) zero() axis              { a.fromZero = true; return a }

// logIfWide makes an axis logarithmic if only a logarithm shows the small ones of these values.
func (a axis) logIfWide(values []float64) axis {
	a.log = len(values) > 0 && slices.Min(values) > 0 && slices.Max(values) >= 10*slices.Min(values)
	return a
}

// coordinates returns all points' coordinates.
func coordinates(all []series) (xs, ys []float64) {
	for _, s := range all {
		for _, p := range s.points {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
	}
	return xs, ys
}

const (
	// manyPoints have no marks.
	manyPoints = 40
	// drawnPoints are enough for every second unit of a chart's width.
	drawnPoints = 240
)

// thin keeps about n points at most, the first and last among them, evenly spread along the axis.
func (a *axis) thin(points []xy, n int) []xy {
	if len(points) <= n {
		return points
	}
	place := func(p xy) float64 {
		if a.log {
			return math.Log(p.X)
		}
		return p.X
	}
	first, last := place(points[0]), place(points[len(points)-1])
	kept, before := []xy{}, -1
	for i, p := range points {
		if slot := int((place(p) - first) / (last - first) * float64(n-1)); slot != before || i == len(points)-1 {
			kept, before = append(kept, p), slot
		}
	}
	return kept
}

func (a *axis) encoding(field string) map[string]any {
	scale, ticks := map[string]any{"type": "linear", "zero": a.fromZero}, map[string]any{"labelExpr": cmp.Or(a.expr, "datum.label")}
	if a.log {
		scale = map[string]any{"type": "log", "nice": false}
	}
	if a.format != "" {
		ticks["format"] = a.format
	}
	return map[string]any{"field": field, "type": "quantitative", "title": a.label, "scale": scale, "axis": ticks}
}

var (
	shapes = []string{"circle", "square", "triangle-up", "diamond"}
	// dashes are those of the second half of the looks; the first half is solid.
	dashes = [][]int{{7, 3}, {2, 3}, {7, 3, 2, 3}, {12, 4}}
)

func (s *series) dashes() []int {
	if s.look%looks < looks/2 {
		return []int{1, 0}
	}
	return dashes[s.look%looks-looks/2]
}

// drawn returns the points of each line that are drawn.
func (c *chart) drawn() [][]xy {
	lines := make([][]xy, len(c.lines))
	for i := range c.lines {
		lines[i] = c.x.thin(c.lines[i].points, drawnPoints)
	}
	return lines
}

// spec is the chart in Vega-Lite, with colours by the names of style.css. Parameter hidden lists the series that are not drawn, parameter at is the place
// along the axis whose values are marked.
func (c *chart) spec() map[string]any {
	type m = map[string]any
	var values []m
	var names, colours, marks []string
	var numbers []int
	var lines [][]int
	for i, points := range c.drawn() {
		s := &c.lines[i]
		names, colours = append(names, s.name), append(colours, fmt.Sprintf("var(--c%d)", s.look%looks))
		marks, numbers, lines = append(marks, shapes[s.look%len(shapes)]), append(numbers, i), append(lines, s.dashes())
		for _, p := range points {
			values = append(values, m{"series": s.name, "line": i, "x": p.X, "y": p.Y, "mark": len(points) <= manyPoints})
		}
	}
	y := c.y.encoding("y")
	by := func(scale any) m {
		return m{"field": "series", "type": "nominal", "scale": m{"domain": names, "range": scale}}
	}
	at := m{"filter": "datum.x === at"}
	colour, shape := by(colours), by(marks)
	dash := m{"field": "line", "type": "nominal", "scale": m{"domain": numbers, "range": lines}, "legend": nil} // a legend of the series would draw its symbols with dashes
	layer := func(mark m, encoding m, filters ...m) m {
		return m{"mark": mark, "encoding": encoding, "transform": append(filters, m{"filter": "indexof(hidden, datum.series) < 0"})}
	}
	return m{
		"width": 640, "height": 330, "autosize": m{"type": "fit", "contains": "padding"}, "description": c.label(), "title": c.title,
		"data":     m{"values": values},
		"params":   []m{{"name": "hidden", "value": []string{}}, {"name": "at", "value": nil}},
		"encoding": m{"x": c.x.encoding("x")},
		"layer": []m{
			layer(m{"type": "line", "strokeWidth": 1.9, "strokeJoin": "round"}, m{"y": y, "color": colour, "strokeDash": dash}),
			layer(m{"type": "point", "filled": true, "size": 45, "opacity": 1}, m{"y": y, "color": colour, "shape": shape}, m{"filter": "datum.mark"}),
			layer(m{"type": "rule", "color": "var(--soft)"}, m{}, at),
			layer(m{"type": "point", "filled": true, "size": 90, "opacity": 1, "stroke": "var(--back)"}, m{"y": y, "color": colour, "shape": shape}, at),
		},
		"config": chartConfig,
	}
}

// chartConfig is what all charts look like. The page shows legends of its own, whose entries hide a series, and turns this one on in pictures.
var chartConfig = map[string]any{
	"background": "var(--back)", "font": "Liberation Sans, Arial, sans-serif", "view": map[string]any{"stroke": nil},
	"axis": map[string]any{
		"gridColor": "var(--rule)", "domainColor": "var(--soft)", "tickColor": "var(--soft)", "labelColor": "var(--soft)", "titleColor": "var(--text)",
		"labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal", "labelFlush": false,
	},
	"title":  map[string]any{"color": "var(--text)", "fontSize": 13},
	"legend": map[string]any{"disable": true, "orient": "bottom", "columns": 2, "title": nil, "labelColor": "var(--text)", "labelLimit": 290, "labelFontSize": 12, "symbolSize": 60},
}

// label is for those who do not see the chart.
func (c *chart) label() string {
	var names []string
	for _, s := range c.lines {
		names = append(names, s.name)
	}
	return fmt.Sprintf("%s. Line chart of %s over %s: %s. Arrow keys read the values.", c.title, c.y.label, c.x.label, strings.Join(names, ", "))
}

// figureView is a chart as the page's template needs it.
type figureView struct {
	ID, Title, Caption string
	Spec               map[string]any
	Legend             []legendView
	Header             []string
	Rows               []valuesView
}

type (
	legendView struct {
		Name string
		Look int
	}
	// valuesView is a line of the table of values, which the page's script also shows beside the pointer.
	valuesView struct {
		X     string // the number
		Cells []string
	}
)

func (c *chart) View() figureView {
	v := figureView{ID: c.id, Title: c.title, Caption: c.caption, Spec: c.spec(), Header: []string{c.x.label}}
	rows := map[float64][]string{}
	for i, points := range c.drawn() {
		s := &c.lines[i]
		v.Legend = append(v.Legend, legendView{Name: s.name, Look: s.look % looks})
		v.Header = append(v.Header, s.name)
		for _, p := range points {
			if rows[p.X] == nil {
				rows[p.X] = make([]string, 1+len(c.lines))
				rows[p.X][0] = c.x.value(p.X)
			}
			rows[p.X][1+i] = c.y.value(p.Y)
		}
	}
	for _, x := range slices.Sorted(maps.Keys(rows)) {
		v.Rows = append(v.Rows, valuesView{strconv.FormatFloat(x, 'g', -1, 64), rows[x]})
	}
	return v
}
