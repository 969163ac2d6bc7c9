package report

import (
	"cmp"
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
	Vertical                 bool // the pointer chooses by y, not by x
	Curves                   []curveView
	Bars                     []barView
	Legend                   []legendView
	Header                   []string
	Rows                     []rowView
	SVG                      string // the file beside the page
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
	// barView is a bar, or a mark (Path) of a dot chart, and the text beside it.
	barView struct {
		Index, Look         int
		X, Y, Width, Height string
		Path, Text          string
		TextX, TextY        string
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

func (c *chart) view() figureView {
	if len(c.lines) > 0 {
		return c.lineView()
	}
	return c.barView()
}

func (c *chart) newView() figureView {
	return figureView{
		ID: c.id, Title: c.title, Caption: c.caption, Width: chartWidth, XLabel: c.x.label, YLabel: c.y.label,
	}
}

func (c *chart) lineView() figureView {
	v := c.newView()
	xlo, xhi := c.x.span(xsOf(c.lines))
	ylo, yhi := c.y.span(ysOf(c.lines))
	yticks := c.y.tickValues(ylo, yhi)
	widest := 0
	for _, t := range yticks {
		widest = max(widest, utf8.RuneCountInString(c.y.tick(t)))
	}
	v.Height = chartHeight
	v.Left, v.Right, v.Top, v.Bottom = 32+perCharacter*float64(widest), chartWidth-22, 12, chartHeight-46
	v.MiddleX, v.MiddleY = (v.Left+v.Right)/2, (v.Top+v.Bottom)/2
	atX := func(x float64) float64 { return v.Left + c.x.place(x, xlo, xhi)*(v.Right-v.Left) }
	atY := func(y float64) float64 { return v.Bottom - c.y.place(y, ylo, yhi)*(v.Bottom-v.Top) }
	for _, t := range c.x.tickValues(xlo, xhi) {
		v.X = append(v.X, tickView{px(atX(t)), c.x.tick(t)})
	}
	for _, t := range yticks {
		v.Y = append(v.Y, tickView{px(atY(t)), c.y.tick(t)})
	}
	v.Header = []string{c.x.label}
	var at []float64 // every x of a point
	var drawn [][]xy
	for i, s := range c.lines {
		points := thin(s.points, c.x, drawnPoints)
		drawn = append(drawn, points)
		curve := curveView{Index: i, Look: s.look % looks, Kind: s.kind}
		marked := len(points) <= manyPoints && s.kind != dotted
		var path, marks strings.Builder
		for k, p := range points {
			fmt.Fprintf(&path, "%c%s %s", "ML"[min(k, 1)], px(atX(p.X)), px(atY(p.Y)))
			if marked {
				marks.WriteString(mark(s.look, atX(p.X), atY(p.Y), 3.6))
			}
			at = append(at, p.X)
		}
		curve.Path, curve.Marks = path.String(), marks.String()
		v.Curves = append(v.Curves, curve)
		v.Legend = append(v.Legend, legendOf(s.name, s.look, marked))
		v.Legend[i].Kind = s.kind
		v.Header = append(v.Header, s.name)
	}
	slices.Sort(at)
	next := make([]int, len(drawn))
	for _, x := range slices.Compact(at) {
		row := rowView{At: px(atX(x)), Name: c.x.value(x)}
		for i, points := range drawn {
			cell := cellView{}
			for ; next[i] < len(points) && points[next[i]].X <= x; next[i]++ {
				if points[next[i]].X == x {
					cell = cellView{px(atY(points[next[i]].Y)), c.y.value(points[next[i]].Y)}
				}
			}
			row.Cells = append(row.Cells, cell)
		}
		v.Rows = append(v.Rows, row)
	}
	v.Label = fmt.Sprintf("%s. Line chart of %s over %s: %s. Arrow keys read the values.", c.title, c.y.label, c.x.label, strings.Join(v.Header[1:], ", "))
	return v
}

func legendOf(name string, look int, marked bool) legendView {
	l := legendView{Name: name, Look: look % looks}
	if marked {
		l.Mark = mark(look, 13, 6, 3.6)
	}
	return l
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

func (c *chart) barView() figureView {
	v := c.newView()
	const barHeight, gap = 13.0, 9.0
	rows := 1
	if c.style == grouped {
		rows = len(c.bars)
	}
	each := float64(rows)*barHeight + gap
	longest := 0
	for _, name := range c.categories {
		longest = max(longest, utf8.RuneCountInString(name))
	}
	v.Top, v.Bottom = 6, 6+each*float64(len(c.categories))
	v.Height = v.Bottom + 42
	v.Left = min(16+perCharacter*float64(longest), 280)
	v.Right = chartWidth - 22
	if c.style == grouped { // room for the values
		v.Right -= 52
	}
	v.MiddleX, v.MiddleY, v.Vertical = (v.Left+v.Right)/2, (v.Top+v.Bottom)/2, true
	lo, hi := c.x.span(c.extent())
	at := func(x float64) float64 { return v.Left + c.x.place(x, lo, hi)*(v.Right-v.Left) }
	for _, t := range c.x.tickValues(lo, hi) {
		v.X = append(v.X, tickView{px(at(t)), c.x.tick(t)})
	}
	v.Header = []string{c.y.label}
	for _, s := range c.bars {
		v.Header = append(v.Header, s.name)
		v.Legend = append(v.Legend, legendOf(s.name, s.look, c.style == dots))
	}
	for k, name := range c.categories {
		top := v.Top + each*float64(k) + gap/2
		row := rowView{At: px(top + (each-gap)/2), Name: name}
		v.Y = append(v.Y, tickView{row.At, shorten(name, int((v.Left-16)/perCharacter+0.5))})
		sum := 0.0
		if c.style == dots {
			first, last := at(c.bars[0].values[k]), at(c.bars[len(c.bars)-1].values[k])
			v.Bars = append(v.Bars, barView{Index: -1, Look: -1, X: px(min(first, last)), Y: px(top + barHeight/2 - .75), Width: px(math.Abs(last - first)), Height: "1.5"})
		}
		for i, s := range c.bars {
			x := s.values[k]
			b := barView{Index: i, Look: s.look}
			switch c.style {
			case dots:
				b.Path = mark(s.look, at(x), top+barHeight/2, 4.2)
			case stacked:
				b.X, b.Y, b.Width, b.Height = px(at(sum)), px(top), px(at(sum+x)-at(sum)), px(barHeight)
				sum += x
			default:
				y := top + barHeight*float64(i)
				b.X, b.Y, b.Width, b.Height = px(v.Left), px(y+.5), px(at(x)-v.Left), px(barHeight-1)
				b.Text, b.TextX, b.TextY = c.x.value(x), px(at(x)+5), px(y+barHeight-3)
			}
			v.Bars = append(v.Bars, b)
			row.Cells = append(row.Cells, cellView{"", c.x.value(x)})
		}
		v.Rows = append(v.Rows, row)
	}
	v.Label = fmt.Sprintf("%s. Bar chart of %s for each of %s. Arrow keys read the values.", c.title, cmp.Or(c.x.label, "values"), plural(len(c.categories), "line", "lines"))
	return v
}

// extent is every value that the axis of the bars must show.
func (c *chart) extent() (values []float64) {
	sums := make([]float64, len(c.categories))
	for _, s := range c.bars {
		for i, x := range s.values {
			if sums[i] += x; c.style == stacked {
				values = append(values, sums[i])
			} else {
				values = append(values, x)
			}
		}
	}
	return values
}
