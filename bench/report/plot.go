package report

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/tensorcache/tensorcache/bench/gpu"
)

// GPUPlot writes a page with GB/s of output over row bytes: hits against the device's memory, misses against the link.
func GPUPlot(w io.Writer, r *gpu.Report) error {
	charts := gpuCharts(r)
	if len(charts) == 0 {
		return errors.New("report: nothing to plot: no result of hit-decode, gather-hits, gather-misses or gather-misses-large")
	}
	p := pageView{HTMLOptions: HTMLOptions{Title: "tensorcache gpu-bench"}, Results: &Results{}, Sections: []section{{ID: "figures", Title: "Figures", Lead: machine(r), Charts: charts}}}
	return p.write(w)
}

// gpuCharts draw GB/s of output over row bytes: hits, and misses.
func gpuCharts(r *gpu.Report) (charts []*chart) {
	for _, p := range []struct {
		id, title string
		lines     []series
	}{{"hits", "Hits: rows from device memory", hitLines(r)}, {"misses", "Misses: rows from host memory", missLines(r)}} {
		c := &chart{id: p.id, title: p.title, y: byNumber.named("GB/s of output").zero()}
		for _, l := range p.lines {
			if len(l.points) > 0 {
				l.look = len(c.lines)
				c.lines = append(c.lines, l)
			}
		}
		rows, _ := coordinates(c.lines)
		c.x = byCount.named("row bytes").logIfWide(rows)
		c.x.format = "d"
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
