package report

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// Tables prints what a run of several tables found: a row for each, and their total.
func Tables(w io.Writer, r *experiment.TablesResult) error {
	out := &printer{w: w}
	var rows, raw int64
	t := newTable("table", "rows", "row", "codec", "ratio", "rows cached", "uncompressed", "hit rate", "uncompressed", "host bytes moved", "uncompressed")
	alignLeft(t, 1)
	line := func(name, rows, row, codec, ratio string, s, u *experiment.Served) table.Row {
		return table.Row{
			name, rows, row, codec, ratio, count(s.RowsCached), count(u.RowsCached), percent(s.HitRatio), percent(u.HitRatio),
			bytesOf(s.HostBytesMoved), bytesOf(u.HostBytesMoved),
		}
	}
	for i := range r.Tables {
		x := &r.Tables[i]
		rows, raw = rows+x.Rows, raw+x.Rows*int64(x.RowBytes)
		t.AppendRow(line(x.Name, count(x.Rows), fmt.Sprintf("%s B %s", count(int64(x.RowBytes)), x.DType), x.Codec, fmt.Sprintf("%.3f", x.CompressionRatio), &x.Served, &x.Uncompressed))
	}
	total := &r.Total
	t.AppendSeparator()
	t.AppendRow(line("total", count(rows), "", "", "", &total.Served, &total.Uncompressed.Served))

	out.line("tables", "%s, %s, %s, one cache", plural(len(r.Tables), "table", "tables"), plural(int(rows), "row", "rows"), bytesOf(raw))
	out.line("device", "%d × %s (%s)", r.Device.Count, r.Device.Kind, r.Device.Name)
	out.line("workload", "%s, %s, %s", r.Workload.Kind, plural(r.Workload.Batches, "batch", "batches"), plural(int(r.Workload.IDs), "ID", "IDs"))
	measured := ""
	if r.Workload.TrainingMeasured {
		measured = " that are measured too"
	}
	out.line("admission", "%s, trained on %s%s", r.Cache.Policy, plural(r.Workload.TrainingBatches, "batch", "batches"), measured)
	out.line("budget", "%s: payload %s, metadata %s; beside it codec tables %s", bytesOf(r.Cache.BudgetBytes), bytesOf(r.Cache.PayloadBytes), bytesOf(r.Cache.MetadataBytes), bytesOf(r.Cache.CodecBytes))
	out.printf("\n%s\n\n", t.Render())
	out.line("batches", "p50 / p95 / p99 %s, uncompressed %s", latency(total.BatchLatency), latency(total.Uncompressed.BatchLatency))
	if r.VerifiedRows > 0 {
		out.line("verified", "%s rows compared with their source, %s differ", count(r.VerifiedRows), count(r.Mismatches))
	}
	onGPU(out, total.PredictedGPU)
	out.line("verdict", "%s: %s in %s hit %s, uncompressed rows %s", r.Cache.Policy, plural(int(total.RowsCached), "row", "rows"), bytesOf(r.Cache.BudgetBytes),
		roughly(total.HitRatio), roughly(total.Uncompressed.HitRatio))
	return out.err
}

// onGPU prints the times of a batch that are predicted, if there are any.
func onGPU(out *printer, p *experiment.PredictedGPU) {
	if p != nil {
		out.line("on a GPU", "an %s is predicted to take %s for a batch, %s with the uncompressed cache, %s without a cache",
			p.Device, batchTime(p.BatchMS), batchTime(p.UncompressedMS), batchTime(p.UncachedMS))
	}
}
