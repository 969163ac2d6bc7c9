package report

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"

	"github.com/tensorcache/tensorcache/bench/gpu"
)

// GPUPlot draws GB/s of output over row bytes as SVG: hits against the device's memory, misses against the link.
func GPUPlot(w io.Writer, r *gpu.Report) error {
	charts := gpuCharts(r)
	if len(charts) == 0 {
		return errors.New("report: nothing to plot: no result of hit-decode, gather-hits, gather-misses or gather-misses-large")
	}
	return writeSVG(w, "tensorcache gpu-bench: "+machine(r), charts...)
}

// plotView is charts beside each other, each with its legend below, as the template plot.tmpl draws them.
type plotView struct {
	Title                 string
	Width, Height, Middle float64
	Style                 template.CSS
	Parts                 []plotPart
}

type plotPart struct {
	figureView
	AtX, AtY float64
	Keys     []plotKey
}

type plotKey struct {
	legendView
	AtX, AtY float64
}

// plotName is the number of characters that a name in a plot may have.
const plotName = 45

func writeSVG(w io.Writer, title string, charts ...*chart) error {
	p := plotView{Title: shorten(title, 160), Style: template.CSS("\n" + part("html/plot.css")), Width: chartWidth * float64(len(charts)), Middle: chartWidth * float64(len(charts)) / 2}
	top := 0.0
	if title != "" {
		top = 30
	}
	for i, c := range charts {
		part := plotPart{figureView: c.View(), AtX: chartWidth * float64(i), AtY: top}
		part.Title = shorten(part.Title, 80)
		y := 34 + part.Height
		half := (len(part.Legend) + 1) / 2
		for k, l := range part.Legend {
			l.Name = shorten(l.Name, plotName)
			part.Keys = append(part.Keys, plotKey{l, 24 + chartWidth/2*float64(k/half), y + 17*float64(k%half)})
		}
		p.Parts = append(p.Parts, part)
		p.Height = max(p.Height, top+y+17*float64(half)+6)
	}
	if _, err := io.WriteString(w, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return execute(w, "plot.tmpl", p)
}

// gpuCharts draw GB/s of output over row bytes: hits, and misses.
func gpuCharts(r *gpu.Report) (charts []*chart) {
	for _, p := range []struct {
		title string
		lines []series
	}{{"Hits: rows from device memory", hitLines(r)}, {"Misses: rows from host memory", missLines(r)}} {
		c := &chart{title: p.title, y: byNumber.named("GB/s of output").zero()}
		for _, l := range p.lines {
			if len(l.points) > 0 {
				l.look = len(c.lines)
				c.lines = append(c.lines, l)
			}
		}
		rows, _ := coordinates(c.lines)
		c.x = byCount.named("row bytes").logIfWide(rows)
		c.x.tick = func(x float64) string { return fmt.Sprintf("%.0f", x) }
		slices.Sort(rows)
		c.x.ticks = slices.Compact(rows)
		if len(c.lines) > 0 {
			charts = append(charts, c)
		}
	}
	return charts
}

// lineOf is what results say, in the order of their rows, as far as they say it.
func lineOf(r *gpu.Report, is func(*gpu.Result) bool, value func(*gpu.Result) float64) (points []xy) {
	for i := range r.Results {
		if x := &r.Results[i]; is(x) && x.RowBytes > 0 && value(x) > 0 && !math.IsInf(value(x), 0) {
			points = append(points, xy{float64(x.RowBytes), value(x)})
		}
	}
	slices.SortStableFunc(points, func(a, b xy) int { return cmp.Compare(a.X, b.X) })
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

func hitLines(r *gpu.Report) []series {
	dense := func(x *gpu.Result) bool { return x.Case == "hit-decode" && x.Codec != gpu.SparseCodec }
	sparse := func(x *gpu.Result) bool { return x.Case == "hit-decode" && x.Codec == gpu.SparseCodec }
	copied := limitOf(r, "device-copy", "")
	return []series{
		{name: "hit-decode, N(0,1)", points: lineOf(r, dense, valueOf)},
		{name: "hit-decode, sparse", points: lineOf(r, sparse, valueOf)},
		{name: "gather-hits, N(0,1)", points: lineOf(r, ofCase("gather-hits"), valueOf)},
		{name: "plain gather, uncompressed", points: lineOf(r, dense, baselineOf), kind: dashed},
		{name: "limit: read and write uncompressed", points: lineOf(r, dense, func(*gpu.Result) float64 { return copied / 2 }), kind: dotted},
		{name: "limit: read sparse, write", points: lineOf(r, sparse, func(x *gpu.Result) float64 {
			if x.Compression == 0 {
				return 0
			}
			return copied / (1 + 1/x.Compression)
		}), kind: dotted},
	}
}

func missLines(r *gpu.Report) []series {
	misses, link := ofCase("gather-misses"), limitOf(r, "link", "to device")
	lines := []series{
		{name: "gather-misses, N(0,1)", points: lineOf(r, misses, valueOf)},
		{name: "zero-copy, sorted", points: lineOf(r, misses, furtherOf(gpu.SortedZeroCopy)), kind: dashed},
		{name: "zero-copy, unsorted", points: lineOf(r, misses, furtherOf(gpu.UnsortedZeroCopy)), kind: dashed},
		{name: "limit: link, sectors of stored rows", points: lineOf(r, misses, baselineOf), kind: dotted},
		{name: "limit: link, uncompressed", points: lineOf(r, misses, func(*gpu.Result) float64 { return link }), kind: dotted},
	}
	var threads []int
	for _, x := range r.Results {
		if x.Case != "gather-misses-large" || slices.Contains(threads, x.HostThreads) {
			continue
		}
		is := func(y *gpu.Result) bool { return y.Case == x.Case && y.HostThreads == x.HostThreads }
		size := fmt.Sprintf("%.3g GiB", float64(x.TableBytes)/(1<<30))
		name := "gather-misses, " + size
		if x.HostThreads != 0 {
			name += fmt.Sprintf(", %d threads", x.HostThreads)
		}
		lines = append(lines, series{name: name, points: lineOf(r, is, valueOf), kind: solid})
		if len(threads) == 0 {
			lines = append(lines, series{name: "zero-copy, sorted, " + size, points: lineOf(r, is, baselineOf), kind: dashed})
		}
		threads = append(threads, x.HostThreads)
	}
	return lines
}
