package gpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
)

// Report is what Run measured.
type Report struct {
	Device string `json:"device"`
	// Driver is the driver's version and the newest CUDA that it supports.
	Driver  string   `json:"driver"`
	Commit  string   `json:"commit"`
	Results []Result `json:"results"`
	// Borders are between resident tables and other ways to read a table. They follow from Results.
	Borders []Border `json:"borders,omitempty"`
	// Skipped are cases that this machine could not run.
	Skipped []Skipped `json:"skipped,omitempty"`
	// Incomplete are cases that are not measured, or not in whole, though they were to be. Results has what was measured of them.
	Incomplete []Skipped `json:"incomplete,omitempty"`
	// Took has the total time of each case, in the order of their first runs. "setup" makes what several cases use.
	Took []Took `json:"took,omitempty"`
}

// Took is how long a case took.
type Took struct {
	Case    string  `json:"case"`
	Seconds float64 `json:"seconds"`
}

// Whole returns an error that names the incomplete cases.
func (r *Report) Whole() error {
	if len(r.Incomplete) == 0 {
		return nil
	}
	names := make([]string, len(r.Incomplete))
	for i, s := range r.Incomplete {
		names[i] = s.Case + ": " + s.Reason
	}
	return fmt.Errorf("report (%d cases incomplete) must be whole: %s", len(names), strings.Join(names, "; "))
}

// Skipped is a case that was not measured.
type Skipped struct {
	Case   string `json:"case"`
	Reason string `json:"reason"`
}

// Result is a figure of a case.
type Result struct {
	Case       string  `json:"case"`
	RowBytes   int     `json:"row_bytes"`
	Codec      string  `json:"codec"`
	TableBytes int64   `json:"table_bytes"`
	Batch      int     `json:"batch"`
	Value      float64 `json:"value"`
	Unit       string  `json:"unit"`
	// Baseline is what the value is compared with, "" if it is a limit itself. Ratio is how many times better the value is.
	Baseline      string  `json:"baseline"`
	BaselineValue float64 `json:"baseline_value"`
	Ratio         float64 `json:"ratio"`
	// Goal is the bound that was set, and GoalOf says of what; 0 and "" if there is none.
	Goal   float64 `json:"goal"`
	GoalOf GoalOf  `json:"goal_of,omitempty"`
	// Reached says that there is a goal and the figure reaches it.
	Reached bool `json:"reached"`
	// Variant is what the value is of, or compared with, where a case has several figures of the same rows and batch; one of the constants below.
	Variant string `json:"variant,omitempty"`
	// Detail is further text.
	Detail string `json:"detail,omitempty"`
	// Compression is the bytes of the table's rows ÷ their stored bytes; 0 if nothing was compressed.
	Compression float64 `json:"compression,omitempty"`
	// DType is the type of the rows' elements and QueueDepth the number of batches under way at once, if the case sets them.
	DType      string `json:"dtype,omitempty"`
	QueueDepth int    `json:"queue_depth,omitempty"`
	// Bag is the number of rows that are added up, if the case does that.
	Bag int `json:"bag,omitempty"`
	// Skew is the exponent of the rows' frequencies, 0 if all are read as often, if the case sets it.
	Skew *float64 `json:"skew,omitempty"`
	// HostThreads is the number of threads that the host could use for misses, if the case sets it.
	HostThreads int `json:"host_threads,omitempty"`
	// Further are other figures of the same rows, in the unit of Value.
	Further []Further `json:"further,omitempty"`
	// Commit is what was measured, if it is not the report's.
	Commit string `json:"commit,omitempty"`
}

// Further is a figure beside a result's value and baseline.
type Further struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Names of further figures that reports look for.
const (
	SortedZeroCopy   = "plain zero-copy, sorted"
	UnsortedZeroCopy = "plain zero-copy, unsorted"
	Cached           = "cached, the same budget"
	HotZeroCopy      = "zero-copy, hot rows in device memory, uncompressed"
	Managed          = "managed memory, advised and prefetched"
)

// Variants of the figures of resident tables. Of the first two the value is the usual kernel's, and the baseline's name the variant; of the others it is the
// variant's, and the baseline the usual one.
const (
	ThroughHashmap = "hashmap"   // the same rows, found through a hashmap
	Wide           = "wide"      // a block for each row
	Double         = "double"    // a warp for each row, two quads a lane
	TwoRanges      = "2 ranges"  // rows in ranges with targets of their own
	MostRanges     = "12 ranges" //
	TenPercent     = "10 %"      // of a batch's rows have bytes on the other GPU
	ThirtyPercent  = "30 %"      //
	SlotsOnPeer    = "slots"     // the slots, not the overflow places, on the other GPU
	Embedding      = "ncf_user"  // rows of Options.Embedding
)

// FurtherValue returns the further figure of that name, 0 if there is none.
func (x *Result) FurtherValue(name string) float64 {
	for _, f := range x.Further {
		if f.Name == name {
			return f.Value
		}
	}
	return 0
}

// GoalOf says what a goal is a bound of.
type GoalOf string

const (
	RatioAtLeast GoalOf = "ratio at least"
	ValueAtLeast GoalOf = "value at least"
	ValueAtMost  GoalOf = "value at most"
)

// lessIsBetter are the units of figures that are better if they are smaller.
var lessIsBetter = []string{"us", "ms", "MiB", "allocations", "points", "%"}

// complete fills in the ratio, and whether the goal is reached.
func (x *Result) complete() {
	if x.BaselineValue > 0 {
		x.Ratio = x.Value / x.BaselineValue
		if slices.Contains(lessIsBetter, x.Unit) {
			x.Ratio = 0 // of nothing: JSON has no infinity
			if x.Value > 0 {
				x.Ratio = x.BaselineValue / x.Value
			}
		}
	}
	switch x.GoalOf {
	case RatioAtLeast:
		x.Reached = x.Ratio >= x.Goal
	case ValueAtLeast:
		x.Reached = x.Value >= x.Goal
	case ValueAtMost:
		x.Reached = x.Value <= x.Goal
	}
}

// ReadReport reads a report as Run's caller wrote it in JSON.
func ReadReport(path string) (*Report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	r, err := decodeReport(b)
	if err != nil {
		return nil, fmt.Errorf("report %s: %w", path, err)
	}
	return r, nil
}

func decodeReport(b []byte) (*Report, error) {
	r := &Report{}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(r)
	if err == nil && d.More() {
		err = errors.New("more follows the object")
	}
	if err != nil {
		return nil, fmt.Errorf("must hold one JSON object as gpu-bench --json prints it: %w", err)
	}
	r.Borders = borders(r.Results)
	return r, r.validate()
}

func (r *Report) validate() error {
	if len(r.Results) == 0 && len(r.Incomplete) == 0 {
		return errors.New("results (none) must be at least one")
	}
	for _, s := range r.Incomplete {
		if !slices.Contains(Cases, s.Case) {
			return fmt.Errorf("incomplete case (%q) must be a case of gpu-bench", s.Case)
		}
	}
	for i := range r.Results {
		x := &r.Results[i]
		switch {
		case !slices.Contains(Cases, x.Case):
			return fmt.Errorf("result %d: case (%q) must be a case of gpu-bench", i, x.Case)
		case x.RowBytes < 0:
			return fmt.Errorf("result %d: row_bytes (%d) must not be negative", i, x.RowBytes)
		case !(x.Value >= 0 && x.Value <= math.MaxFloat32), !(x.BaselineValue >= 0 && x.BaselineValue <= math.MaxFloat32):
			return fmt.Errorf("result %d: value (%g) and baseline_value (%g) must not be negative, nor larger than a float32", i, x.Value, x.BaselineValue)
		case !slices.Contains([]GoalOf{"", RatioAtLeast, ValueAtLeast, ValueAtMost}, x.GoalOf):
			return fmt.Errorf("result %d: goal_of (%q) must be %q, %q or %q", i, x.GoalOf, RatioAtLeast, ValueAtLeast, ValueAtMost)
		}
	}
	return nil
}
