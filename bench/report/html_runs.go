package report

import (
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
	chunks(with, func(title string, groups []*group) {
		c := &chart{title: title, x: byCount.named("batch"), y: byPercent.named("hit rate")}
		for i, x := range groups {
			c.lines = append(c.lines, series{name: g.name(x), points: batches(x), look: i})
		}
		charts = append(charts, c)
	}, "Hit rate over the batches")
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
