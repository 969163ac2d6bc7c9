package report

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tensorcache/tensorcache/bench/drive"
)

// Drive prints how fast a drive was read.
func Drive(w io.Writer, r *drive.Result) error {
	t := newTable("reader", "GB/s", "of plain", "CPU s/GB", "rows/s")
	for _, x := range r.Readers {
		rows := ""
		if x.RowsPerSecond > 0 {
			rows = rate(x.RowsPerSecond)
		}
		t.AppendRow(table.Row{x.Name, fmt.Sprintf("%.2f", x.GBPerSecond), fmt.Sprintf("%.3f", x.OfPlain), fmt.Sprintf("%.2f", x.CPUSecondsPerGB), rows})
	}
	out := &printer{w: w}
	how := "past the page cache"
	if !r.Direct {
		how = "through the page cache: the file system knows no direct reads"
	}
	out.line("drive", "%s: %s in pages of %s, one row of %d B read of each, %s", r.Dir, bytesOf(r.Bytes), bytesOf(int64(r.PageBytes)), r.RowBytes, how)
	out.line("depth", "%d reads at once; medians of %d rounds", r.Depth, r.Rounds)
	out.line("written", "%.2f GB/s, with the making of the rows", r.WriteGBPerSecond)
	out.printf("\n%s\n", t.Render())
	if g := r.Gathers; g != nil {
		out.line("batches", "%d of %d power-law rows (exponent %g) on %s, with %s of host memory and %s of slab, which hold %d rows: %.3f of the room", g.Batches, g.Rows, g.Skew, g.Device,
			bytesOf(g.HostMemory), bytesOf(g.Budget), g.HeldRows, g.HeldShare)
		out.line("", "%.1f ms, %.1f ms where all rows have come to the host tier; a plain reader takes %.1f ms for the pages: %.3f of the longer", g.BatchSeconds*1e3, g.ResidentSeconds*1e3,
			g.PlainSeconds*1e3, g.OfLonger)
		out.line("", "%.0f absent rows, %.0f pages and %s read a batch, %.3f of a page of 64 KiB for each; %.0f absent rows when it is repeated", g.AbsentRows, g.PagesRead,
			bytesOf(int64(g.BytesRead)), g.OfPageARow, g.LeftAbsent)
		out.line("prefetch", "two batches ahead: %.1f ms a batch with %.0f pages read, %.0f absent rows; the longer of reading and gathering is %.3f of that", g.PrefetchSeconds*1e3, g.PrefetchPages,
			g.PrefetchAbsent, g.PrefetchOfLonger)
	}
	if x := r.Steps; x != nil {
		out.line("text", "%d tokens, the first %d learnt; steps of %d tokens, %d rows; milliseconds until the rows are there, and until Wait returns", x.Tokens, x.Trained, x.StepTokens, x.Rows)
		out.printf("\n%s\n", waits(x.Waits).Render())
	}
	return out.err
}

// waits is the table of what the steps of a text waited.
func waits(all []drive.Wait) table.Writer {
	t := newTable("rows known", "steps", "p50", "p99", "max", "Wait p99", "hits", "absent rows", "read rows", "pages", "read")
	ms := func(seconds float64) string { return fmt.Sprintf("%.3f", seconds*1e3) }
	for _, w := range all {
		known := fmt.Sprintf("%g ms ahead", w.Lead*1e3)
		switch {
		case w.InMemory:
			known = "in memory"
		case w.Lead == 0:
			known = "not ahead"
		}
		t.AppendRow(table.Row{known, w.Steps, ms(w.Ready.P50), ms(w.Ready.P99), ms(w.Ready.Max), ms(w.Returned.P99), fmt.Sprintf("%.3f", w.Hits), fmt.Sprintf("%.0f", w.AbsentRows),
			fmt.Sprintf("%.0f", w.ReadRows), fmt.Sprintf("%.0f", w.PagesRead), bytesOf(int64(w.BytesRead))})
	}
	return t
}
