package report

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// lookOf is how plots draw a series; the page's style sheet has about the same.
var lookOf = [looks]struct {
	colour color.RGBA
	dashes []vg.Length
	mark   draw.GlyphDrawer
}{
	{blue, nil, draw.CircleGlyph{}},
	{vermilion, nil, draw.BoxGlyph{}},
	{green, nil, draw.PyramidGlyph{}},
	{purple, nil, draw.CrossGlyph{}},
	{orange, dashed, draw.CircleGlyph{}},
	{sky, dotted, draw.BoxGlyph{}},
	{black, dashed, draw.PyramidGlyph{}},
	{grey, dotted, draw.CrossGlyph{}},
}

// plotName is the number of characters that a name in a plot may have.
const plotName = 45

// WritePlots draws every plot of the page into a folder, each as .svg and as .png.
func WritePlots(dir string, r *Results) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for _, s := range sections(r) {
		for _, c := range s.charts {
			for _, format := range []string{"svg", "png"} {
				if err := c.write(filepath.Join(dir, c.id+"."+format), format); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c *chart) write(path, format string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err = errors.Join(c.plot(f, format), f.Close()); err != nil {
		return fmt.Errorf("report: %s: %w", path, err)
	}
	return nil
}

// plot draws a chart with its title above and its legend below.
func (c *chart) plot(w io.Writer, format string) error {
	p := plot.New()
	p.Title.Text, p.Title.Padding = shorten(c.title, 80), vg.Points(8)
	p.Title.TextStyle.Font = textFont(12)
	var legends [2]plot.Legend
	area := 4 * vg.Inch
	var names int
	var err error
	if len(c.lines) > 0 {
		names, err = len(c.lines), c.plotLines(p, &legends)
	} else {
		names, err = len(c.bars), c.plotBars(p, &legends)
		area = vg.Points(float64(90 + c.rows()*14 + len(c.categories)*8))
	}
	if err != nil {
		return err
	}
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle.Font, a.Tick.Label.Font = textFont(11), textFont(9.5)
	}
	legend := vg.Points(float64((names+1)/2)*14 + 8)
	width, height := 8*vg.Inch, area+legend+0.3*vg.Inch
	canvas, all, err := newCanvas(format, width, height)
	if err != nil {
		return err
	}
	part, below := all, all
	part.Min.X, part.Max.X = all.Min.X+0.15*vg.Inch, all.Max.X-0.3*vg.Inch
	part.Min.Y, part.Max.Y = all.Min.Y+legend+0.1*vg.Inch, all.Max.Y-0.12*vg.Inch
	p.Draw(part)
	below.Max.Y = all.Min.Y + legend
	for i := range legends {
		half := below
		half.Min.X += 0.3*vg.Inch + vg.Length(i)*width/2
		legends[i] = withStyle(legends[i])
		legends[i].Draw(half)
	}
	_, err = canvas.WriteTo(w)
	return err
}

// rows is the number of bars beside each other, of all categories.
func (c *chart) rows() int {
	if c.style == grouped {
		return len(c.bars) * len(c.categories)
	}
	return len(c.categories)
}

func (a *axis) onto(to *plot.Axis, values []float64) {
	lo, hi := a.span(values)
	var ticks plot.ConstantTicks
	for _, t := range a.tickValues(lo, hi) {
		ticks = append(ticks, plot.Tick{Value: t, Label: a.tick(t)})
	}
	to.Min, to.Max, to.Tick.Marker, to.Label.Text = lo, hi, ticks, a.label
	if a.log && lo > 0 {
		to.Scale = plot.LogScale{}
	}
}

func newGrid(horizontal bool) *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = color.Gray{0xe4}, color.Gray{0xe4}
	if !horizontal {
		g.Horizontal.Color = nil
	}
	return g
}

func (c *chart) plotLines(p *plot.Plot, legends *[2]plot.Legend) error {
	p.Add(newGrid(true))
	for i, s := range c.lines {
		if len(s.points) == 0 {
			continue
		}
		line, marks, err := plotter.NewLinePoints(s.points)
		if err != nil {
			return err
		}
		look := lookOf[s.look%looks]
		line.Color, line.Dashes, line.Width = look.colour, look.dashes, vg.Points(1.4)
		marks.Color, marks.Shape, marks.Radius = look.colour, look.mark, vg.Points(3)
		l := &legends[i*2/len(c.lines)]
		p.Add(line)
		if len(s.points) > manyPoints {
			l.Add(shorten(s.name, plotName), line)
			continue
		}
		p.Add(marks)
		l.Add(shorten(s.name, plotName), line, marks)
	}
	c.x.onto(&p.X, xsOf(c.lines))
	c.y.onto(&p.Y, ysOf(c.lines))
	return nil
}

// plotBars has the first category on top: at the height of its number from below.
func (c *chart) plotBars(p *plot.Plot, legends *[2]plot.Legend) error {
	p.Add(newGrid(false))
	const wide = 12
	var below *plotter.BarChart
	last := len(c.categories) - 1
	if c.style == dots {
		for k := range c.categories {
			y := float64(last - k)
			stem, err := plotter.NewLine(plotter.XYs{{X: c.bars[0].values[k], Y: y}, {X: c.bars[len(c.bars)-1].values[k], Y: y}})
			if err != nil {
				return err
			}
			stem.Color = grey
			p.Add(stem)
		}
	}
	for i, s := range c.bars {
		values := slices.Clone(s.values)
		slices.Reverse(values)
		look := lookOf[s.look%looks]
		l := &legends[i*2/len(c.bars)]
		if c.style == dots {
			var points plotter.XYs
			for y, x := range values {
				points = append(points, plotter.XY{X: x, Y: float64(y)})
			}
			marks, err := plotter.NewScatter(points)
			if err != nil {
				return err
			}
			marks.Color, marks.Shape, marks.Radius = look.colour, look.mark, vg.Points(3.5)
			p.Add(marks)
			l.Add(shorten(s.name, plotName), marks)
			continue
		}
		bars, err := plotter.NewBarChart(plotter.Values(values), vg.Points(wide))
		if err != nil {
			return err
		}
		bars.Horizontal, bars.Color, bars.LineStyle.Width = true, look.colour, 0
		if c.style == stacked {
			if below != nil {
				bars.StackOn(below)
			}
			below = bars
		} else {
			bars.Offset = vg.Points(wide * (float64(len(c.bars)-1)/2 - float64(i)))
		}
		p.Add(bars)
		l.Add(shorten(s.name, plotName), bars)
	}
	var names []string
	for _, name := range slices.Backward(c.categories) {
		names = append(names, shorten(name, plotName))
	}
	p.NominalY(names...)
	c.x.onto(&p.X, c.extent())
	p.Y.Min, p.Y.Max = -0.6, float64(last)+0.6
	return nil
}
