// Package report prints results as tables for people, and makes one HTML page, with plots, of a folder of them.
package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/internal/statjson"
	"github.com/tensorcache/tensorcache/slab"
)

// Run prints what a run found.
func Run(w io.Writer, r *experiment.Result) error {
	c, q, u := &r.Cache, &r.Results, &r.Uncompressed
	rows := []table.Row{
		{"codec", c.Codec, "none"},
		{"compression ratio", fmt.Sprintf("%.3f", c.CompressionRatio), "1.000"},
		{"rows cached", count(c.RowsCached) + times(c.RowsCached, u.RowsCached, ""), count(u.RowsCached)},
		{"hit rate", percent(q.HitRatio), percent(u.HitRatio)},
		{"host bytes moved", bytesOf(q.HostBytesMoved) + lessOrMore(u.HostBytesMoved, q.HostBytesMoved), bytesOf(u.HostBytesMoved)},
		{"batch latency p50 / p95 / p99", latency(q.BatchLatency), latency(u.BatchLatency)},
		{"lookups/s", rate(q.LookupsPerSecond), rate(u.LookupsPerSecond)},
		{"output GB/s", fmt.Sprintf("%.2f", q.OutputGBPerSecond), fmt.Sprintf("%.2f", u.OutputGBPerSecond)},
	}
	t := newTable("", "this cache", "uncompressed, same budget")
	if !r.Compares() {
		t = newTable("", "this cache")
		rows[2][1], rows[4][1] = count(c.RowsCached), bytesOf(q.HostBytesMoved)
		for i := range rows {
			rows[i] = rows[i][:2]
		}
	}
	t.AppendRows(rows)

	out := &printer{w: w}
	partial(out, r.Partial, &r.Workload)
	attached(out, &r.Attachment)
	out.line("table", "%s: %s rows of %s B (%s), %s", r.Table.Name, count(r.Table.Rows), count(int64(r.Table.RowBytes)), r.Table.DType, bytesOf(r.Table.Rows*int64(r.Table.RowBytes)))
	out.line("device", "%d × %s (%s)", r.Device.Count, r.Device.Kind, r.Device.Name)
	lookedUp(out, &r.Workload)
	if r.Attached == "" {
		out.line("admission", "%s%s", c.Policy, training(r))
	}
	out.line("codec", "%s", chosen(r))
	out.line("budget", "%s: payload %s, metadata %s; beside it %s", bytesOf(c.BudgetBytes), bytesOf(c.PayloadBytes), bytesOf(c.MetadataBytes), beside(r))
	if h := r.HostMemory; h != nil {
		out.line("host nodes", "%s", onNodes(h))
	}
	out.printf("\n%s\n\n", t.Render())
	out.line("misses", "%s of %s lookups:%s", count(q.Misses), count(q.Lookups), reasons(r))
	resident(out, r.Resident)
	tiers(out, r.Tiers, "", r.Workload.Prefetch)
	if r.Device.Count > 1 {
		share := func(n int64) string { return percent(float64(n) / float64(max(1, q.Lookups))) }
		out.line("read", "%s from the own slab, %s from a peer's, %s from the host", share(q.HitsBySlab.Local), share(q.HitsBySlab.Peer), share(q.Misses))
		out.line("placement", "%s", placed(r.Placement))
	}
	online(out, r.Online)
	verified(out, &r.Verification)
	codecs(out, c.CodecChoice)
	if r.Compares() {
		onGPU(out, r.PredictedGPU)
		out.line("verdict", "%s", verdict(r))
	}
	return out.err
}

// partial says how much an interrupted run measured.
func partial(out *printer, is bool, w *experiment.WorkloadInfo) {
	if is {
		out.line("partial", "interrupted after %s of %s; no uncompressed cache to compare with", count(int64(w.Batches)), plural(w.PlannedBatches, "batch", "batches"))
	}
}

// lookedUp says what was looked up, and, of generated lookups, how they were made.
func lookedUp(out *printer, w *experiment.WorkloadInfo) {
	out.line("workload", "%s, %s, %s", w.Kind, plural(w.Batches, "batch", "batches"), plural(int(w.IDs), "ID", "IDs"))
	g := w.Generated
	switch {
	case g == nil:
	case g.From != "":
		out.line("lookups", "generated with seed %d from %s: %s", g.Seed, g.From, g.Distribution)
	default:
		own := "--ids"
		if w.Kind == "neighbor-sampling" {
			own = "--ids or --graph"
		}
		out.line("lookups", "generated with seed %d: %s. Hit rates say nothing about yours, which %s reads", g.Seed, g.Distribution, own)
	}
}

// resident says how a resident table lies.
func resident(out *printer, r *experiment.ResidentInfo) {
	if r == nil {
		return
	}
	beside := "in host memory"
	if r.PeerBytes > 0 {
		beside = "on peers"
	}
	out.line("resident", "slots of %s hold %s of rows a byte; %s on the devices, %s beside %s", slots(r.TargetBytes, len(r.Ranges)), fmt.Sprintf("%.2f B", r.CapacityGain), bytesOf(r.DeviceBytes),
		bytesOf(r.BuddyBytes), beside)
	out.line("overflow", "%s are longer, by %s together; %s lookups read %s from overflow places", plural(int(r.OverflowRows), "row", "rows"), bytesOf(r.OverflowBytes), count(r.OverflowReads), bytesOf(r.OverflowBytesRead))
}

// tiers says what of a table in pages host memory held when the run ended, and what was read from the pages, and what became of rows that were prefetched so many batches
// ahead. of, "" of a run of one table, begins each line.
func tiers(out *printer, t *statjson.Tiers, of string, ahead int) {
	if t == nil {
		return
	}
	h, c := &t.Host, &t.Cold
	out.line("host tier", "%s%s rows in %s of %s; index and rows take %s", of, count(h.HostRows), bytesOf(h.HostBytes), bytesOf(h.HostCapacity), bytesOf(h.HostMemory))
	out.line("pages", "%s%s lookups of rows that were not in memory; %s rows read, from %s pages, %s together; a read took %.2f ms",
		of, count(c.AbsentRows), count(c.RowsRead), count(c.PagesRead), bytesOf(c.BytesRead), c.MeanMillis)
	if p := &t.Prefetch; ahead > 0 {
		out.line("prefetch", "%s%s, %s ahead: %s in memory when a batch asked (%s), %s still being read, %s dropped for want of room, %s given up before a batch asked",
			of, plural(int(p.PrefetchedRows), "row", "rows"), plural(ahead, "batch", "batches"), count(p.UsedRows), percent(float64(p.UsedRows)/float64(max(1, p.PrefetchedRows))), count(p.FlightRows), count(p.DroppedRows), count(p.UnusedRows))
	}
	for _, s := range c.Stores {
		if s.FailedPages > 0 {
			out.line("failed", "%s%s: missing or damaged when %s asked for; the next store has been asked", of, s.Name, plural(int(s.FailedPages), "page was", "pages were"))
		}
	}
}

// attached says whose cache was measured.
func attached(out *printer, a *experiment.Attachment) {
	if a.Attached == "" {
		return
	}
	out.line("attached", "%s; budget and rows cached are of the whole cache, all else is of this process", a.Attached)
	if a.OwnerError != "" {
		out.line("owner", "not there when the run ended: %s", a.OwnerError)
	}
}

// verified says how many rows were compared with their source.
func verified(out *printer, v *experiment.Verification) {
	if v.VerifiedRows == 0 {
		return
	}
	bound := ""
	if v.VerifiedBound > 0 {
		bound = fmt.Sprintf(" by more than %g, the codec's bound", v.VerifiedBound)
	}
	out.line("verified", "%s rows compared with their source, %s differ%s", count(v.VerifiedRows), count(v.Mismatches), bound)
}

// codecs prints what was predicted of each codec that was considered.
func codecs(out *printer, c *registry.Choice) {
	if c == nil {
		return
	}
	var names, rows, unfit []string
	for _, k := range c.Candidates {
		switch {
		case k.Unfit:
			unfit = append(unfit, k.Codec)
		case k.Skipped == "":
			rows = append(rows, fmt.Sprintf("%s %.2f/%.2f", k.Codec, k.HitNanoseconds, k.MissNanoseconds))
			names = append(names, fmt.Sprintf("%s %.0f", k.Codec, k.BatchMicroseconds))
		}
	}
	out.line("codecs", "predicted µs a batch of %.0f rows: %s", c.BatchRows, strings.Join(names, ", "))
	out.line("", "ns a hit/a miss: %s", strings.Join(rows, ", "))
	if len(unfit) > 0 {
		out.line("", "the table does not fit by %s", strings.Join(unfit, ", "))
	}
	out.line("", "(%s)", c.Basis)
}

// onNodes says on which memory nodes the host tier lies, and why.
func onNodes(h *cache.HostMemory) string {
	if len(h.Nodes) == 0 {
		return "wherever the system puts it: " + h.Why
	}
	s := indices(h.Nodes) + ": " + h.Why
	for i, held := range h.Held {
		s += fmt.Sprintf("%s %s on %d", map[bool]string{true: ";", false: ","}[i == 0], bytesOf(held.Bytes), held.Node)
	}
	return s
}

// placed says how rows lie in the slabs, and how evenly.
func placed(p *experiment.Placed) string {
	if p == nil {
		return "unknown"
	}
	s := p.Why
	if p.CopiedRows > 0 {
		s += fmt.Sprintf("; %s have several slots", plural(int(p.CopiedRows), "row", "rows"))
	}
	least, most := 1.0, 0.0
	for _, d := range p.Slabs {
		least, most = min(least, d.Load), max(most, d.Load)
	}
	if most > 0 {
		s += fmt.Sprintf("; the slabs serve %s to %s of the hits", percent(least), percent(most))
	}
	return s
}

// online prints how the cache changed.
func online(out *printer, o *experiment.OnlineResult) {
	if o == nil {
		return
	}
	out.line("refreshed", "%s: %s admitted, %s evicted, %s written; %s observed, %s lost",
		plural(int(o.Cycles), "cycle", "cycles"), plural(int(o.AdmittedRows), "row", "rows"), count(o.EvictedRows), bytesOf(o.RefreshedBytes),
		plural(int(o.SampledAccesses), "access", "accesses"), count(o.LostAccesses))
	if d := o.Drift; d != nil {
		out.line("drift", "%s: a static cache hits %s, the best of each phase %s; this one reaches %.3f of that",
			plural(d.Phases, "phase", "phases"), percent(d.StaticHitRatio), percent(d.OptimalHitRatio), d.Share)
	}
}

func training(r *experiment.Result) string {
	w := &r.Workload
	switch {
	case w.Cold:
		return ", learning from " + plural(w.TrainingBatches, "warm-up batch", "warm-up batches") + " on"
	case r.Cache.Policy == "static-degree":
		return ", by the graph"
	case w.TrainingBatches == 0:
		return ", without training"
	case w.TrainingMeasured:
		return ", trained on " + plural(w.TrainingBatches, "batch that is", "batches that are") + " measured too"
	case w.Kind == "ids" || w.Kind == "ngram":
		return ", trained on the " + plural(w.TrainingBatches, "batch", "batches") + " before the measured ones"
	default:
		return ", trained on " + plural(w.TrainingBatches, "pre-sampled batch", "pre-sampled batches")
	}
}

// reasonText names a reason of misses for a person: the tiers below the host's are called cold, too.
func reasonText(reason string) string {
	if reason == slab.Cold.String() {
		return "never cached"
	}
	return reason
}

func reasons(r *experiment.Result) string {
	s := ""
	for reason := range slab.Reason(slab.NumReasons) {
		if n := r.MissesByReason[reason.String()]; n != 0 {
			s += fmt.Sprintf(", %s %s", count(n), reasonText(reason.String()))
		}
	}
	if s == "" {
		return " none"
	}
	return s[1:]
}

// chosen says which codec there is and, if it was picked, why.
func chosen(r *experiment.Result) string {
	if c := r.Cache.CodecChoice; c != nil {
		machine := c.Machine
		if r.Device.Kind == "host" && machine != registry.ForProcessors {
			machine += ", not for the processors that serve here"
		}
		return c.Codec + ", picked by auto for " + machine + ": " + c.Reason
	}
	return r.Cache.Codec
}

// beside is the device memory outside the budget.
func beside(r *experiment.Result) string {
	s := "codec tables " + bytesOf(r.Cache.CodecBytes)
	if n := r.Cache.IndexBytes; n != 0 {
		s += ", host tier index " + bytesOf(n)
	}
	return s
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(int64(n)) + " " + many
}

// Compress prints what the codecs did to a table.
func Compress(w io.Writer, results []experiment.CodecResult) error {
	header := []any{"codec"}
	for _, c := range codecColumns {
		header = append(header, c.name)
	}
	t := newTable(append(header, "round trip")...)
	for i := range results {
		r := &results[i]
		row := table.Row{r.Codec}
		for _, c := range codecColumns {
			row = append(row, c.text(c.of(r)))
		}
		t.AppendRow(append(row, r.RoundTrip))
	}
	out := &printer{w: w}
	if len(results) > 0 {
		out.printf("%s rows of %s B, speeds on one core\n", count(int64(results[0].Rows)), count(int64(results[0].RowBytes)))
	}
	out.printf("%s\n", t.Render())
	if len(results) > 0 && results[0].Bounds != nil {
		b := results[0].Bounds
		out.printf("estimates, no limits, of codecs that code single elements: %.2f %% at the entropy of at most 13 leading bits, %.2f %% with statistics of each column (%.2f %% of rows that these are not of), %.2f %% by places and values of rare elements\n",
			b.Order0, b.Columns, b.HeldOut, b.Sparse)
		var passing []string
		for _, r := range results {
			if r.PassesBounds {
				passing = append(passing, fmt.Sprintf("%s (%.2f %%)", r.Codec, r.SavingPercent))
			}
		}
		if len(passing) > 0 {
			out.printf("above the highest of these estimates: %s. Such codecs code further bits, or what elements have in common\n", strings.Join(passing, ", "))
		}
	}
	out.printf("%s", repeats(results))
	return out.err
}

// repeatPoints is how many points a general compressor must save beyond the best codec for Compress to say so.
const repeatPoints = 5

// repeats is a line on a general compressor that saves much more, row by row, than every lossless codec: rows have repeats that no codec looks
// for. "" if there is none.
func repeats(results []experiment.CodecResult) string {
	var best, general *experiment.CodecResult
	for i := range results {
		r := &results[i]
		if r.RoundTrip != "ok" {
			continue
		}
		to := &best
		if experiment.Baseline(r.Codec) {
			to = &general
		}
		if *to == nil || r.SavingPercent > (*to).SavingPercent {
			*to = r
		}
	}
	if best == nil || general == nil || general.SavingPercent < best.SavingPercent+repeatPoints {
		return ""
	}
	return fmt.Sprintf("repeats within rows: %s saves %.1f points more than %s, the best codec, and decodes %.2f GB/s on one core (%s: %.2f); page files can have it as their second stage\n",
		general.Codec, general.SavingPercent-best.SavingPercent, best.Codec, general.DecodeGBPerSecond, best.Codec, best.DecodeGBPerSecond)
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// line prints a value with its name in front, in a column of its own.
func (p *printer) line(name, format string, args ...any) {
	p.printf("%-10s %s\n", name, fmt.Sprintf(format, args...))
}

// newTable returns a table whose columns but the first are aligned to the right.
func newTable(header ...any) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(header)
	alignLeft(t, 1)
	return t
}

// alignLeft aligns the first n columns to the left, and all others to the right.
func alignLeft(t table.Writer, n int) {
	var columns []table.ColumnConfig
	for i := n; i < 32; i++ {
		columns = append(columns, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
}

// table prints a table of the page.
func (p *printer) table(t tableView) {
	var header []any
	for _, h := range t.Header {
		header = append(header, h)
	}
	w := newTable(header...)
	alignLeft(w, t.Texts)
	for _, cells := range t.Rows {
		var row table.Row
		for _, c := range cells {
			row = append(row, c.Text)
		}
		w.AppendRow(row)
	}
	p.printf("%s\n", w.Render())
}

// figure prints three or more digits.
func figure(x float64) string {
	switch {
	case x >= 99.95:
		return fmt.Sprintf("%.0f", x)
	case x >= 9.995:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

func ifAny(x float64) string {
	if x == 0 {
		return "–"
	}
	return figure(x)
}

func count(n int64) string     { return humanize.Comma(n) }
func bytesOf(n int64) string   { return humanize.SIWithDigits(float64(n), 1, "B") }
func percent(f float64) string { return fmt.Sprintf("%.2f %%", 100*f) }
func rate(f float64) string    { return humanize.SIWithDigits(f, 2, "") }

func latency(l experiment.Latency) string {
	ms := func(x float64) string {
		return time.Duration(x * float64(time.Millisecond)).Round(10 * time.Microsecond).String()
	}
	return ms(l.P50) + " / " + ms(l.P95) + " / " + ms(l.P99)
}

// batchTime is a time of less than seconds, to three digits.
func batchTime(ms float64) string { return fmt.Sprintf("%.3f ms", ms) }

// lessOrMore says how many times fewer bytes than others there are, or how many times more.
func lessOrMore(others, bytes int64) string {
	switch {
	case others == 0:
		return ""
	case others < bytes:
		return times(bytes, others, " more")
	}
	return times(others, bytes, " less")
}

// times says how many times b goes into a, as " (1.23× what)".
func times(a, b int64, what string) string {
	if b == 0 {
		return ""
	}
	return fmt.Sprintf(" (%.2f×%s)", float64(a)/float64(b), what)
}
