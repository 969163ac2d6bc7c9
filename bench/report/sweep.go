package report

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// Sweep prints the grid of a sweep: a row for each point, with medians over its seeds.
func Sweep(w io.Writer, cells []experiment.Cell) error {
	points, runs := experiment.GroupBy(cells, func(c *experiment.Cell) experiment.Point {
		p := c.Point()
		p.Seed = 0
		return p
	})
	seeds := 0
	for _, cells := range runs {
		seeds = max(seeds, len(cells))
	}
	header := []any{"policy", "budget", "codec", "host tier", "ratio", "rows cached", "hit rate"}
	if seeds > 1 {
		header = append(header, "over seeds")
	}
	results := map[experiment.Point][]*run{}
	t := newTable(append(header, "uncompressed", "host bytes moved", "uncompressed", "lookups/s", "batch p50")...)
	alignLeft(t, 4)
	for _, p := range points {
		var all []*run
		for _, c := range runs[p] {
			all = append(all, c.Result)
		}
		results[p] = all
		hits, codec := sortedFigures(all, hitRatio), p.Codec
		if chosen := all[0].Cache.Codec; chosen != codec {
			codec += " (" + chosen + ")"
		}
		of := func(figure func(*run) float64, text func(float64) string) string { return text(median(all, figure)) }
		row := table.Row{p.Policy, p.Budget, codec, p.HostTier, of(compression, decimals), of(rowsCached, wholeCount), of(hitRatio, percent)}
		if seeds > 1 {
			row = append(row, fmt.Sprintf("%.2f - %.2f", 100*hits[0], 100*hits[len(hits)-1]))
		}
		t.AppendRow(append(row, of(plainRatio, percent), of(moved, wholeBytes), of(plainMoved, wholeBytes), of(lookups, rate), of(p50, milliseconds)))
	}
	out := &printer{w: w}
	if seeds > 1 {
		out.printf("medians over %d seeds\n", seeds)
	}
	out.printf("%s\n", t.Render())
	for i, line := range sweepVerdict(points, results) {
		out.line([]string{"best", ""}[min(i, 1)], "%s", line)
	}
	return out.err
}
