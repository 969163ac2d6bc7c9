package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// Demo prints what the demonstration found: a pair of columns for each table.
func Demo(w io.Writer, d *experiment.DemoResult, program string) error {
	t := newTable()
	t.ResetHeaders()
	merged := table.RowConfig{AutoMerge: true, AutoMergeAlign: text.AlignLeft}
	wide := func(name string, of func(*experiment.DemoTable) string) table.Row { // a cell for both columns of a table
		row := table.Row{name}
		for i := range d.Tables {
			cell := of(&d.Tables[i])
			if text.StringWidthWithoutEscSequences(cell)%2 == 0 {
				cell += " " // go-pretty 6.8 divides by zero if both columns are as wide as half of an even width, rounded down
			}
			row = append(row, cell, cell)
		}
		return row
	}
	pair := func(name string, of func(*experiment.Result) (cache, uncompressed string)) table.Row {
		row := table.Row{name}
		for i := range d.Tables {
			a, b := of(d.Tables[i].Result)
			row = append(row, a, b)
		}
		return row
	}
	predicted := func(of func(p *experiment.PredictedGPU) float64) func(r *experiment.Result) string {
		return func(r *experiment.Result) string {
			if r.PredictedGPU == nil {
				return "–"
			}
			return batchTime(of(r.PredictedGPU))
		}
	}
	cached := predicted(func(p *experiment.PredictedGPU) float64 { return p.BatchMS })
	plain := predicted(func(p *experiment.PredictedGPU) float64 { return p.UncompressedMS })
	uncached := predicted(func(p *experiment.PredictedGPU) float64 { return p.UncachedMS })

	t.AppendHeader(wide("", func(t *experiment.DemoTable) string { return t.Name }), merged)
	t.AppendRow(wide("rows", func(t *experiment.DemoTable) string {
		r := &t.Result.Table
		return fmt.Sprintf("%s × %s B %s", count(r.Rows), count(int64(r.RowBytes)), r.DType)
	}), merged)
	t.AppendRow(wide("rows a batch", func(t *experiment.DemoTable) string {
		w := &t.Result.Workload
		return fmt.Sprintf("%s, %s", count(w.IDs/int64(max(1, w.Batches))), t.Lookups)
	}), merged)
	t.AppendRow(wide("cache", func(t *experiment.DemoTable) string {
		return fmt.Sprintf("%s, %s of the table", bytesOf(t.Result.Cache.BudgetBytes), strings.Replace(t.Budget, "%", " %", 1))
	}), merged)
	t.AppendSeparator()
	t.AppendRow(pair("", func(*experiment.Result) (string, string) { return "compressed", "uncompressed" }))
	t.AppendRow(pair("codec", func(r *experiment.Result) (string, string) {
		return fmt.Sprintf("%s, %.2f×", r.Cache.Codec, r.Cache.CompressionRatio), "none"
	}))
	t.AppendRow(pair("rows cached", func(r *experiment.Result) (string, string) {
		return count(r.Cache.RowsCached), count(r.Uncompressed.RowsCached)
	}))
	t.AppendRow(pair("hit rate", func(r *experiment.Result) (string, string) {
		return percent(r.Results.HitRatio), percent(r.Uncompressed.HitRatio)
	}))
	t.AppendRow(pair("host bytes moved", func(r *experiment.Result) (string, string) {
		return bytesOf(r.Results.HostBytesMoved), bytesOf(r.Uncompressed.HostBytesMoved)
	}))
	first := d.Tables[0].Result
	if first.Device.Kind == "cuda" {
		t.AppendRow(pair("batch to the host, p50", func(r *experiment.Result) (string, string) {
			return batchTime(r.Results.BatchLatency.P50), batchTime(r.Uncompressed.BatchLatency.P50)
		}))
	}
	t.AppendRow(pair("GPU batch, predicted", func(r *experiment.Result) (string, string) { return cached(r), plain(r) }))
	t.AppendRow(wide("the same, no cache", func(t *experiment.DemoTable) string { return uncached(t.Result) }), table.RowConfig{AutoMerge: true, AutoMergeAlign: text.AlignRight})

	out := &printer{w: w}
	out.printf("%s\n", t.Render())
	out.line("measured", "on %s (%s): rows, hit rates, and bytes of %s, which a GPU would have too", first.Device.Kind, first.Device.Name, plural(first.Workload.Batches, "batch", "batches"))
	if p := first.PredictedGPU; p != nil {
		out.line("predicted", "the time of a batch on an %s, from the committed figures of one: docs/performance.md", p.Device)
		out.line("", "has the formula and its error. On a GPU, cachebench demo --device cuda runs these batches.")
	}
	out.line("your data", "%s run FILE.npy --graph FILE.npz --gpu-memory 5%%, or with --ids FILE for rows that a model looks up", program)
	return out.err
}
