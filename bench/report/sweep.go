package report

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// Sweep prints the grid of a sweep: a row for each point, with medians over its seeds.
func Sweep(w io.Writer, cells []experiment.Cell) error {
	var points []experiment.Point // without seeds, in the order of their first cells
	runs := map[experiment.Point][]*experiment.Result{}
	seeds := 0
	for _, c := range cells {
		p := c.Point()
		p.Seed = 0
		if runs[p] == nil {
			points = append(points, p)
		}
		runs[p] = append(runs[p], c.Result)
		seeds = max(seeds, len(runs[p]))
	}
	header := []any{"policy", "budget", "codec", "host tier", "ratio", "rows cached", "hit rate"}
	if seeds > 1 {
		header = append(header, "over seeds")
	}
	t := newTable(append(header, "uncompressed", "host bytes moved", "uncompressed", "lookups/s", "batch p50")...)
	alignLeft(t, 4)
	for _, p := range points {
		values := func(of func(r *experiment.Result) float64) (v []float64) {
			for _, r := range runs[p] {
				v = append(v, of(r))
			}
			return v
		}
		median := func(of func(r *experiment.Result) float64) float64 { return experiment.Median(values(of)) }
		hits := values(func(r *experiment.Result) float64 { return r.Results.HitRatio })
		codec := p.Codec
		if chosen := runs[p][0].Cache.Codec; chosen != codec {
			codec += " (" + chosen + ")"
		}
		row := table.Row{
			p.Policy, p.Budget, codec, p.HostTier,
			fmt.Sprintf("%.3f", median(func(r *experiment.Result) float64 { return r.Cache.CompressionRatio })),
			count(int64(median(func(r *experiment.Result) float64 { return float64(r.Cache.RowsCached) }))),
			percent(experiment.Median(hits)),
		}
		if seeds > 1 {
			row = append(row, fmt.Sprintf("%.2f - %.2f", 100*slices.Min(hits), 100*slices.Max(hits)))
		}
		p50 := median(func(r *experiment.Result) float64 { return r.Results.BatchLatency.P50 })
		t.AppendRow(append(row,
			percent(median(func(r *experiment.Result) float64 { return r.Uncompressed.HitRatio })),
			bytesOf(int64(median(func(r *experiment.Result) float64 { return float64(r.Results.HostBytesMoved) }))),
			bytesOf(int64(median(func(r *experiment.Result) float64 { return float64(r.Uncompressed.HostBytesMoved) }))),
			rate(median(func(r *experiment.Result) float64 { return r.Results.LookupsPerSecond })),
			time.Duration(p50*float64(time.Millisecond)).Round(10*time.Microsecond).String()))
	}
	out := &printer{w: w}
	if seeds > 1 {
		out.printf("medians over %d seeds\n", seeds)
	}
	out.printf("%s\n", t.Render())
	for i, line := range sweepVerdict(points, runs) {
		out.line([]string{"best", ""}[min(i, 1)], "%s", line)
	}
	return out.err
}
