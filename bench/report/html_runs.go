package report

import (
	"maps"
	"slices"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

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
			c.lines = append(c.lines, series{name: g.name(x, f.keys...), points: batches(x), look: i})
		}
		charts = append(charts, c)
	}
	s.charts = numbered("hit-rate", charts)
	return s
}

// batches is the median hit rate of each point that every cell with a series has, at its last batch.
func batches(x *group) (points []xy) {
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
		points = append(points, xy{X: float64((i + 1) * each), Y: experiment.Median(values)})
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
				c.lines = append(c.lines, series{name: g.name(x, f.keys...), points: cumulated(h, n), look: i})
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
func histogramOf(x *group) (sum experiment.Histogram, n int64) {
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
func cumulated(h experiment.Histogram, n int64) (points []xy) {
	below := int64(0)
	for i, b := range h.Bounds {
		below += h.Counts[i]
		p := xy{X: b, Y: float64(below) / float64(n)}
		if below == 0 && b > 0 {
			points = []xy{p}
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
