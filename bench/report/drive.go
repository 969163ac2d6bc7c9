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
	return out.err
}
