package report

import (
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// Sweep prints a sweep's grid, medians over seeds.
func Sweep(w io.Writer, cells []experiment.Summary) error {
	seeds := 0
	for _, c := range cells {
		seeds = max(seeds, c.Seeds)
	}
	header := []any{"policy", "budget", "codec", "host tier", "ratio", "rows cached", "hit rate"}
	if seeds > 1 {
		header = append(header, "over seeds")
	}
	t := newTable(append(header, "uncompressed", "host bytes moved", "uncompressed", "lookups/s", "batch p50")...)
	alignLeft(t, 4)
	for _, c := range cells {
		codec := c.Codec
		if c.ChosenCodec != codec {
			codec += " (" + c.ChosenCodec + ")"
		}
		row := table.Row{c.Policy, c.Budget, codec, c.HostTier, fmt.Sprintf("%.3f", c.CompressionRatio), count(int64(c.RowsCached)), percent(c.HitRatio)}
		if seeds > 1 {
			row = append(row, fmt.Sprintf("%.2f - %.2f", 100*c.LeastHitRatio, 100*c.MostHitRatio))
		}
		t.AppendRow(append(row,
			percent(c.UncompressedHitRatio), bytesOf(int64(c.HostBytesMoved)), bytesOf(int64(c.UncompressedHostBytesMoved)),
			rate(c.LookupsPerSecond), time.Duration(c.LatencyP50*float64(time.Millisecond)).Round(10*time.Microsecond).String()))
	}
	out := &printer{w: w}
	if seeds > 1 {
		out.printf("medians over %d seeds\n", seeds)
	}
	out.printf("%s\n", t.Render())
	return out.err
}
