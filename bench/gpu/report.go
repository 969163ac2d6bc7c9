package gpu

import (
	"encoding/json"
	"fmt"
	"io"
)

// Report is what Run measured.
type Report struct {
	Device  string   `json:"device"`
	Driver  string   `json:"driver"`
	Commit  string   `json:"commit"`
	Results []Result `json:"results"`
}

// Result is one case.
type Result struct {
	Case       string  `json:"case"`
	RowBytes   int     `json:"row_bytes"`
	Codec      string  `json:"codec"`
	TableBytes int64   `json:"table_bytes"`
	Batch      int     `json:"batch"`
	Value      float64 `json:"value"`
	Unit       string  `json:"unit"`
	// Baseline is what the value is compared with; Ratio is how many times better the value is.
	Baseline      string  `json:"baseline"`
	BaselineValue float64 `json:"baseline_value"`
	Ratio         float64 `json:"ratio"`
}

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) {
	fmt.Fprintf(w, "%s, %s, commit %s\n", r.Device, r.Driver, r.Commit)
	fmt.Fprintf(w, "%-14s %9s %-6s %10s %9s %10s %-8s %10s %7s  %s\n", "case", "row bytes", "codec", "table MiB", "batch", "value", "unit", "baseline", "ratio", "of")
	for _, x := range r.Results {
		x.write(w)
	}
}

func (x Result) write(w io.Writer) {
	fmt.Fprintf(w, "%-14s %9d %-6s %10d %9d %10.2f %-8s %10.2f %7.2f  %s\n",
		x.Case, x.RowBytes, x.Codec, x.TableBytes>>20, x.Batch, x.Value, x.Unit, x.BaselineValue, x.Ratio, x.Baseline)
}

// WriteJSON writes the report for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// commit is set by the linker.
var commit = "unknown"
