package report

import (
	"fmt"
	"io"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// Tables prints what a run of several tables found: a row for each, and their total.
func Tables(w io.Writer, r *experiment.TablesResult) error {
	out := &printer{w: w}
	var rows, raw int64
	// each returns what the caches did, side by side, or what the one did of a partial run.
	each := func(of func(*experiment.Served) string, s, u *experiment.Served) []any {
		if !r.Compares() {
			return []any{of(s)}
		}
		return []any{of(s), of(u)}
	}
	header := []any{"table", "rows", "row", "codec", "ratio"}
	for _, name := range []string{"rows cached", "hit rate", "host bytes moved"} {
		if header = append(header, name); r.Compares() {
			header = append(header, "uncompressed")
		}
	}
	t := newTable(header...)
	line := func(name, rows, row, codec, ratio string, s, u *experiment.Served) table.Row {
		return slices.Concat(table.Row{name, rows, row, codec, ratio},
			each(func(s *experiment.Served) string { return count(s.RowsCached) }, s, u),
			each(func(s *experiment.Served) string { return percent(s.HitRatio) }, s, u),
			each(func(s *experiment.Served) string { return bytesOf(s.HostBytesMoved) }, s, u))
	}
	for i := range r.Tables {
		x := &r.Tables[i]
		rows, raw = rows+x.Rows, raw+x.Rows*int64(x.RowBytes)
		t.AppendRow(line(x.Name, count(x.Rows), fmt.Sprintf("%s B %s", count(int64(x.RowBytes)), x.DType), x.Codec, fmt.Sprintf("%.3f", x.CompressionRatio), &x.Served, &x.Uncompressed))
	}
	total := &r.Total
	t.AppendSeparator()
	t.AppendRow(line("total", count(rows), "", "", "", &total.Served, &total.Uncompressed.Served))

	partial(out, r.Partial, &r.Workload)
	attached(out, &r.Attachment)
	out.line("tables", "%s, %s, %s, one cache", plural(len(r.Tables), "table", "tables"), plural(int(rows), "row", "rows"), bytesOf(raw))
	out.line("device", "%d × %s (%s)", r.Device.Count, r.Device.Kind, r.Device.Name)
	lookedUp(out, &r.Workload)
	learned := plural(r.Workload.TrainingBatches, "batch", "batches")
	if r.Workload.TrainingMeasured {
		learned = plural(r.Workload.TrainingBatches, "batch that is", "batches that are") + " measured too"
	}
	if r.Attached == "" {
		out.line("admission", "%s, trained on %s", r.Cache.Policy, learned)
	}
	out.line("budget", "%s: payload %s, metadata %s; beside it codec tables %s", bytesOf(r.Cache.BudgetBytes), bytesOf(r.Cache.PayloadBytes), bytesOf(r.Cache.MetadataBytes), bytesOf(r.Cache.CodecBytes))
	out.printf("\n%s\n\n", t.Render())
	if !r.Compares() {
		out.line("batches", "p50 / p95 / p99 %s", latency(total.BatchLatency))
		for i := range r.Tables {
			tiers(out, r.Tables[i].Tiers, r.Tables[i].Name+": ", r.Workload.Prefetch)
		}
		verified(out, &r.Verification)
		return out.err
	}
	out.line("batches", "p50 / p95 / p99 %s, uncompressed %s", latency(total.BatchLatency), latency(total.Uncompressed.BatchLatency))
	verified(out, &r.Verification)
	onGPU(out, total.PredictedGPU)
	out.line("verdict", "%s: %s in %s hit %s, uncompressed rows %s%s", r.Cache.Policy, plural(int(total.RowsCached), "row", "rows"), bytesOf(r.Cache.BudgetBytes),
		roughly(total.HitRatio), roughly(total.Uncompressed.HitRatio), uncached(total.PredictedGPU))
	return out.err
}

// onGPU prints the times of a batch that are predicted, if there are any.
func onGPU(out *printer, p *experiment.PredictedGPU) {
	if p != nil {
		out.line("on a GPU", "an %s is predicted to take %s for a batch, %s with the uncompressed cache, %s without a cache",
			p.Device, batchTime(p.BatchMS), batchTime(p.UncompressedMS), batchTime(p.UncachedMS))
	}
}
