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
		out.line("", "%.0f absent rows, %.0f pages and %s read a batch; %.0f absent rows when it is repeated", g.AbsentRows, g.PagesRead, bytesOf(int64(g.BytesRead)), g.LeftAbsent)
		out.line("prefetch", "two batches ahead: %.1f ms a batch with %.0f pages read, %.0f absent rows; the longer of reading and gathering is %.3f of that", g.PrefetchSeconds*1e3, g.PrefetchPages,
			g.PrefetchAbsent, g.PrefetchOfLonger)
	}
	return out.err
}
