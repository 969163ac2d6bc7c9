package report

import (
	"cmp"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/tensorcache/tensorcache/bench/gpu"
)

// ErrPlotFormat is returned by GPUPlot for a format that it does not draw.
var ErrPlotFormat = errors.New("report: plots are drawn as svg or png")

// Colours that are told apart with any colour vision (Okabe and Ito), and grey for limits.
var (
	blue      = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	orange    = color.RGBA{0xe6, 0x9f, 0x00, 0xff}
	green     = color.RGBA{0x00, 0x9e, 0x73, 0xff}
	vermilion = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	purple    = color.RGBA{0xcc, 0x79, 0xa7, 0xff}
	sky       = color.RGBA{0x56, 0xb4, 0xe9, 0xff}
	black     = color.RGBA{0x00, 0x00, 0x00, 0xff}
	grey      = color.RGBA{0x80, 0x80, 0x80, 0xff}
)

// How lines look: ours are solid, baselines dashed, limits dotted and without marks.
var (
	dashed = []vg.Length{vg.Points(6), vg.Points(3)}
	dotted = []vg.Length{vg.Points(1.5), vg.Points(2.5)}
)

// curve is GB/s of output over row bytes.
type curve struct {
	name   string
	points plotter.XYs
	colour color.Color
	dashes []vg.Length
	mark   draw.GlyphDrawer // nil for none
}

// GPUPlot draws GB/s of output over row bytes as "svg" or "png": hits against the device's memory, misses against the link.
func GPUPlot(w io.Writer, r *gpu.Report, format string) error {
	panels, err := newPanels(r)
	if err != nil {
		return err
	}
	const inch, each, legend, title = vg.Inch, 5.8 * vg.Inch, 1.05 * vg.Inch, 0.45 * vg.Inch
	width, height := vg.Length(len(panels))*each, 5.2*inch
	canvas, all, err := newCanvas(format, width, height)
	if err != nil {
		return err
	}
	all.FillText(textStyle(13, draw.XCenter), vg.Point{X: all.Center().X, Y: all.Max.Y - 0.3*inch}, "tensorcache gpu-bench: "+machine(r))
	for i, p := range panels {
		left := all.Min.X + vg.Length(i)*each
		part := draw.Canvas{Canvas: all.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: left + 0.15*inch, Y: all.Min.Y + legend}, Max: vg.Point{X: left + each - 0.15*inch, Y: all.Max.Y - title},
		}}
		p.plot.Draw(part)
		below := part
		below.Min.Y, below.Max.Y = all.Min.Y, all.Min.Y+legend-0.1*inch
		p.drawLegends(below)
	}
	_, err = canvas.WriteTo(w)
	return err
}

// newCanvas returns a white canvas and how to draw on it.
func newCanvas(format string, width, height vg.Length) (canvas vg.CanvasWriterTo, all draw.Canvas, err error) {
	switch format {
	case "svg":
		canvas = vgsvg.New(width, height)
	case "png":
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(144))}
	default:
		return nil, all, fmt.Errorf("%w, not as %q", ErrPlotFormat, format)
	}
	all = draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	return canvas, all, nil
}

// panel is a plot and its legend, in two columns below it.
type panel struct {
	plot    *plot.Plot
	legends [2]plot.Legend
}

func (p *panel) drawLegends(c draw.Canvas) {
	half := (c.Max.X - c.Min.X) / 2
	for i := range p.legends {
		part := c
		part.Min.X += vg.Length(i)*half + 0.2*vg.Inch
		p.legends[i].Draw(part)
	}
}

func newPanels(r *gpu.Report) ([]*panel, error) {
	var panels []*panel
	for _, c := range []struct {
		title  string
		curves []curve
	}{{"Hits: rows from device memory", hitCurves(r)}, {"Misses: rows from host memory", missCurves(r)}} {
		curves := slices.DeleteFunc(c.curves, func(c curve) bool { return len(c.points) == 0 })
		if len(curves) == 0 {
			continue
		}
		p, err := newPanel(c.title, curves)
		if err != nil {
			return nil, err
		}
		panels = append(panels, p)
	}
	if len(panels) == 0 {
		return nil, errors.New("report: nothing to plot: no result of hit-decode, gather-hits, gather-misses or gather-misses-large")
	}
	return panels, nil
}

func newPanel(title string, curves []curve) (*panel, error) {
	p := &panel{plot: plot.New()}
	p.plot.Title.Text, p.plot.X.Label.Text, p.plot.Y.Label.Text = title, "row bytes", "GB/s of output"
	p.plot.Title.TextStyle.Font, p.plot.Title.Padding = textFont(12), vg.Points(8)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{0xe4}, color.Gray{0xe4}
	p.plot.Add(grid)
	var rows []float64
	for i, c := range curves {
		line, points, err := plotter.NewLinePoints(c.points)
		if err != nil {
			return nil, fmt.Errorf("report: %s: %w", c.name, err)
		}
		line.Color, line.Dashes, line.Width = c.colour, c.dashes, vg.Points(1.4)
		points.Color, points.Shape, points.Radius = c.colour, c.mark, vg.Points(3)
		l := &p.legends[i*2/len(curves)]
		p.plot.Add(line)
		if c.mark == nil {
			l.Add(c.name, line)
		} else {
			p.plot.Add(points)
			l.Add(c.name, line, points)
		}
		for _, xy := range c.points {
			rows = append(rows, xy.X)
		}
	}
	slices.Sort(rows)
	rows = slices.Compact(rows)
	var ticks plot.ConstantTicks
	for _, x := range rows {
		ticks = append(ticks, plot.Tick{Value: x, Label: fmt.Sprintf("%.0f", x)})
	}
	p.plot.X.Scale, p.plot.X.Tick.Marker = plot.LogScale{}, ticks
	// Room beside the first and last rows; a single one would have no width.
	p.plot.X.Min, p.plot.X.Max = rows[0]/1.1, rows[len(rows)-1]*1.1
	p.plot.Y.Min, p.plot.Y.Max = 0, 1.05*p.plot.Y.Max
	p.plot.Y.Tick.Marker = plot.TickerFunc(roundTicks)
	for _, a := range []*plot.Axis{&p.plot.X, &p.plot.Y} {
		a.Label.TextStyle.Font, a.Tick.Label.Font = textFont(11), textFont(10)
	}
	for i := range p.legends {
		l := &p.legends[i]
		*l = withStyle(*l)
	}
	return p, nil
}

// roundTicks are at most eight ticks at multiples of 1, 2 or 5 times a power of ten.
func roundTicks(lo, hi float64) (ticks []plot.Tick) {
	power := math.Pow(10, math.Floor(math.Log10((hi-lo)/8)))
	step := 10 * power
	for _, s := range []float64{1, 2, 5} {
		if (hi-lo)/(s*power) <= 8 {
			step = s * power
			break
		}
	}
	for k := math.Ceil(lo / step); k*step <= hi; k++ {
		ticks = append(ticks, plot.Tick{Value: k * step, Label: fmt.Sprintf("%g", k*step)})
	}
	return ticks
}

func withStyle(l plot.Legend) plot.Legend {
	l.TextStyle = textStyle(9.5, draw.XLeft)
	l.Top, l.Left, l.ThumbnailWidth, l.Padding = true, true, vg.Points(28), vg.Points(3)
	return l
}

func textFont(points float64) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(points)}
}

func textStyle(points float64, x text.XAlignment) text.Style {
	return text.Style{Color: color.Black, Font: textFont(points), XAlign: x, Handler: plot.DefaultTextHandler}
}

// curveOf is what a case's results say, in the order of their rows, as far as they say it.
func curveOf(r *gpu.Report, is func(*gpu.Result) bool, value func(*gpu.Result) float64) (points plotter.XYs) {
	for i := range r.Results {
		if x := &r.Results[i]; is(x) && x.RowBytes > 0 && value(x) > 0 && !math.IsInf(value(x), 0) {
			points = append(points, plotter.XY{X: float64(x.RowBytes), Y: value(x)})
		}
	}
	slices.SortStableFunc(points, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
	return points
}

func ofCase(name string) func(*gpu.Result) bool {
	return func(x *gpu.Result) bool { return x.Case == name }
}

func valueOf(x *gpu.Result) float64    { return x.Value }
func baselineOf(x *gpu.Result) float64 { return x.BaselineValue }
func furtherOf(name string) func(*gpu.Result) float64 {
	return func(x *gpu.Result) float64 { return x.FurtherValue(name) }
}

// limitOf returns the value of a limit, 0 if it was not measured.
func limitOf(r *gpu.Report, name, codec string) float64 {
	for _, x := range r.Results {
		if x.Case == name && x.Codec == codec {
			return x.Value
		}
	}
	return 0
}

func hitCurves(r *gpu.Report) []curve {
	dense := func(x *gpu.Result) bool { return x.Case == "hit-decode" && x.Codec != gpu.SparseCodec }
	sparse := func(x *gpu.Result) bool { return x.Case == "hit-decode" && x.Codec == gpu.SparseCodec }
	copied := limitOf(r, "device-copy", "")
	return []curve{
		{"hit-decode, N(0,1)", curveOf(r, dense, valueOf), blue, nil, draw.CircleGlyph{}},
		{"hit-decode, sparse", curveOf(r, sparse, valueOf), green, nil, draw.PyramidGlyph{}},
		{"gather-hits, N(0,1)", curveOf(r, ofCase("gather-hits"), valueOf), orange, nil, draw.BoxGlyph{}},
		{"plain gather, uncompressed", curveOf(r, dense, baselineOf), black, dashed, draw.RingGlyph{}},
		{"limit: read and write uncompressed", curveOf(r, dense, func(*gpu.Result) float64 { return copied / 2 }), grey, dotted, nil},
		{"limit: read sparse, write", curveOf(r, sparse, func(x *gpu.Result) float64 {
			if x.Compression == 0 {
				return 0
			}
			return copied / (1 + 1/x.Compression)
		}), green, dotted, nil},
	}
}

func missCurves(r *gpu.Report) []curve {
	misses, link := ofCase("gather-misses"), limitOf(r, "link", "to device")
	curves := []curve{
		{"gather-misses, N(0,1)", curveOf(r, misses, valueOf), orange, nil, draw.BoxGlyph{}},
		{"zero-copy, sorted", curveOf(r, misses, furtherOf(gpu.SortedZeroCopy)), black, dashed, draw.RingGlyph{}},
		{"zero-copy, unsorted", curveOf(r, misses, furtherOf(gpu.UnsortedZeroCopy)), purple, dashed, draw.CrossGlyph{}},
		{"limit: link, sectors of stored rows", curveOf(r, misses, baselineOf), orange, dotted, nil},
		{"limit: link, uncompressed", curveOf(r, misses, func(*gpu.Result) float64 { return link }), grey, dotted, nil},
	}
	looks := []curve{{colour: blue, mark: draw.CircleGlyph{}}, {colour: green, mark: draw.PyramidGlyph{}}, {colour: vermilion, mark: draw.SquareGlyph{}}}
	var threads []int
	size := ""
	for _, x := range r.Results {
		if x.Case == "gather-misses-large" && !slices.Contains(threads, x.HostThreads) {
			threads, size = append(threads, x.HostThreads), gibibytes(x.TableBytes)
		}
	}
	for i, n := range threads {
		is := func(x *gpu.Result) bool { return x.Case == "gather-misses-large" && x.HostThreads == n }
		look := looks[i%len(looks)]
		name := fmt.Sprintf("gather-misses, %s, %d threads", size, n)
		if n == 0 {
			name = "gather-misses, " + size
		}
		curves = append(curves, curve{name, curveOf(r, is, valueOf), look.colour, nil, look.mark})
		if i == 0 {
			curves = append(curves, curve{"zero-copy, sorted, " + size, curveOf(r, is, baselineOf), sky, dashed, draw.RingGlyph{}})
		}
	}
	return curves
}

func gibibytes(n int64) string { return fmt.Sprintf("%.3g GiB", float64(n)/(1<<30)) }
