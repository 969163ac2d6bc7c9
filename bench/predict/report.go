package predict

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Report is what a GPU was measured with: docs/results/gpu-bench.json has that of an H200. Module lab measures and prints it.
type Report struct {
	Device string `json:"device"`
	// Driver is the driver's version and the newest CUDA that it supports.
	Driver  string   `json:"driver"`
	Commit  string   `json:"commit"`
	Results []Result `json:"results"`
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
	// Variant is what the value is of, or compared with, where a case has several figures of the same rows and batch.
	Variant string `json:"variant,omitempty"`
	// Detail is further text.
	Detail string `json:"detail,omitempty"`
	// Compression is the bytes of the table's rows ÷ their stored bytes; 0 if nothing was compressed.
	Compression float64 `json:"compression,omitempty"`
	// DType is the type of the rows' elements and QueueDepth the number of batches under way at once, if the case sets them.
	DType      string `json:"dtype,omitempty"`
	QueueDepth int    `json:"queue_depth,omitempty"`
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

// Names of further figures, and labels of rows, by which a model finds figures.
const (
	SortedZeroCopy   = "plain zero-copy, sorted"
	UnsortedZeroCopy = "plain zero-copy, unsorted"
	// SparseCodec labels 0/1 rows; rows of other labels are N(0,1).
	SparseCodec = "ibp4 sparse"
	// BFloat16Suffix and Float16Suffix follow the codec's name in labels of bfloat16 and float16 rows; others are float32.
	BFloat16Suffix = " bfloat16"
	Float16Suffix  = " float16"
	// OnesSuffix follows it in labels of 0/1 rows of which a twentieth are ones.
	OnesSuffix = " 0/1"
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

// Parse reads a report in JSON. Figures that no GPU has are an error.
func Parse(text []byte) (*Report, error) {
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("must hold one JSON object as lab bench writes it: %w", err)
	}
	if len(r.Results) == 0 && len(r.Incomplete) == 0 {
		return nil, errors.New("results (none) must be at least one")
	}
	for i := range r.Results {
		x := &r.Results[i]
		switch {
		case x.Case == "":
			return nil, fmt.Errorf("result %d: case must have a name", i)
		case x.RowBytes < 0:
			return nil, fmt.Errorf("result %d: row_bytes (%d) must not be negative", i, x.RowBytes)
		case !(x.Value >= 0 && x.Value <= math.MaxFloat32), !(x.BaselineValue >= 0 && x.BaselineValue <= math.MaxFloat32):
			return nil, fmt.Errorf("result %d: value (%g) and baseline_value (%g) must not be negative, nor larger than a float32", i, x.Value, x.BaselineValue)
		case !slices.Contains([]GoalOf{"", RatioAtLeast, ValueAtLeast, ValueAtMost}, x.GoalOf):
			return nil, fmt.Errorf("result %d: goal_of (%q) must be %q, %q or %q", i, x.GoalOf, RatioAtLeast, ValueAtLeast, ValueAtMost)
		}
	}
	return r, nil
}
