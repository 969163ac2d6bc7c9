package report

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tensorcache/tensorcache/bench/gpu"
)

// GPU prints what gpu.Run measured.
func GPU(w io.Writer, r *gpu.Report) error {
	t := newTable("case", "row bytes", "codec", "table", "batch", "value", "unit", "baseline", "ratio", "baseline is")
	for _, x := range r.Results {
		t.AppendRow(table.Row{
			x.Case, x.RowBytes, x.Codec, bytesOf(x.TableBytes), count(int64(x.Batch)), fmt.Sprintf("%.2f", x.Value), x.Unit,
			fmt.Sprintf("%.2f", x.BaselineValue), fmt.Sprintf("%.2f", x.Ratio), x.Baseline,
		})
	}
	_, err := fmt.Fprintf(w, "%s, %s, commit %s\n%s\n", r.Device, r.Driver, r.Commit, t.Render())
	return err
}
