package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// figureView is a chart as the page's template draws it. All lengths are in the SVG's units.
type figureView struct {
	ID, Title, Caption       string
	Label                    string // for those who do not see it
	Width, Height            float64
	Left, Right, Top, Bottom float64 // of the area of the values
	MiddleX, MiddleY         float64
	X, Y                     []tickView
	XLabel, YLabel           string
	Curves                   []curveView
	Legend                   []legendView
	Header                   []string
	Rows                     []rowView
}

type (
	tickView   struct{ At, Label string }
	legendView struct {
		Name, Kind string
		Look       int
		Mark       string
	}
	// curveView is a path and its marks.
	curveView struct {
		Index, Look       int
		Kind, Path, Marks string
	}
	// rowView is a line of the data table. The page's script finds a tooltip's contents and places here.
	rowView struct {
		At    string
		Name  string
		Cells []cellView
	}
	cellView struct{ At, Text string }
)

const (
	chartWidth  = 640.0
	chartHeight = 330.0
	// perCharacter is the width of a character of 11 units' text, about.
	perCharacter = 6.4
	// manyPoints have no marks.
	manyPoints = 40
	// drawnPoints are enough for every second unit of the width.
	drawnPoints = 240
)

// shorten returns at most that many characters of a name, none that a picture cannot have.
func shorten(name string, most int) string {
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, name)
	if r := []rune(name); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return name
}

func px(x float64) string { return strconv.FormatFloat(math.Round(10*x)/10, 'f', -1, 64) }

func (c *chart) View() figureView {
	v := figureView{ID: c.id, Title: c.title, Caption: c.caption, Width: chartWidth, XLabel: c.x.label, YLabel: c.y.label}
	xs, ys := coordinates(c.lines)
	alongX, xticks := c.x.scaled(xs)
	alongY, yticks := c.y.scaled(ys)
	widest := 0
	for _, t := range yticks {
		widest = max(widest, utf8.RuneCountInString(c.y.tick(t)))
	}
	v.Height = chartHeight
	v.Left, v.Right, v.Top, v.Bottom = 32+perCharacter*float64(widest), chartWidth-22, 12, chartHeight-46
	v.MiddleX, v.MiddleY = (v.Left+v.Right)/2, (v.Top+v.Bottom)/2
	atX := func(x float64) float64 { return v.Left + alongX.Map(x)*(v.Right-v.Left) }
	atY := func(y float64) float64 { return v.Bottom - alongY.Map(y)*(v.Bottom-v.Top) }
	for _, t := range xticks {
		v.X = append(v.X, tickView{px(atX(t)), c.x.tick(t)})
	}
	for _, t := range yticks {
		v.Y = append(v.Y, tickView{px(atY(t)), c.y.tick(t)})
	}
	v.Header = []string{c.x.label}
	var at []float64                // every x of a point
	var drawn []map[float64]float64 // points of each line, y by x
	for i, s := range c.lines {
		points := thin(s.points, alongX, drawnPoints)
		ys := map[float64]float64{}
		drawn = append(drawn, ys)
		curve := curveView{Index: i, Look: s.look % looks, Kind: s.kind}
		marked := len(points) <= manyPoints && s.kind != dotted
		var path, marks strings.Builder
		for k, p := range points {
			fmt.Fprintf(&path, "%c%s %s", "ML"[min(k, 1)], px(atX(p.X)), px(atY(p.Y)))
			if marked {
				marks.WriteString(mark(s.look, atX(p.X), atY(p.Y), 3.6))
			}
			at, ys[p.X] = append(at, p.X), p.Y
		}
		curve.Path, curve.Marks = path.String(), marks.String()
		v.Curves = append(v.Curves, curve)
		l := legendView{Name: s.name, Kind: s.kind, Look: curve.Look}
		if marked {
			l.Mark = mark(s.look, 13, 6, 3.6)
		}
		v.Legend = append(v.Legend, l)
		v.Header = append(v.Header, s.name)
	}
	slices.Sort(at)
	for _, x := range slices.Compact(at) {
		row := rowView{At: px(atX(x)), Name: c.x.value(x)}
		for _, points := range drawn {
			cell := cellView{}
			if y, ok := points[x]; ok {
				cell = cellView{px(atY(y)), c.y.value(y)}
			}
			row.Cells = append(row.Cells, cell)
		}
		v.Rows = append(v.Rows, row)
	}
	v.Label = fmt.Sprintf("%s. Line chart of %s over %s: %s. Arrow keys read the values.", c.title, c.y.label, c.x.label, strings.Join(v.Header[1:], ", "))
	return v
}

// mark is the outline of a look's shape around a point.
func mark(look int, x, y, r float64) string {
	switch look % 4 {
	case 1: // square
		return fmt.Sprintf("M%s %sh%sv%sh-%sz", px(x-r*.9), px(y-r*.9), px(1.8*r), px(1.8*r), px(1.8*r))
	case 2: // triangle
		return fmt.Sprintf("M%s %sl%s %sh-%sz", px(x), px(y-1.2*r), px(1.15*r), px(2*r), px(2.3*r))
	case 3: // diamond
		return fmt.Sprintf("M%s %sl%s %sl-%s %sl-%s -%sz", px(x), px(y-1.3*r), px(1.3*r), px(1.3*r), px(1.3*r), px(1.3*r), px(1.3*r), px(1.3*r))
	}
	return fmt.Sprintf("M%s %sa%s %s 0 1 0 %s 0a%s %s 0 1 0 -%s 0z", px(x-r), px(y), px(r), px(r), px(2*r), px(r), px(r), px(2*r))
}
