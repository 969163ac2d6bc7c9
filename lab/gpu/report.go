package gpu

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/bench/predict"
)

// Figures are those that package predict reads.
type (
	Report  = predict.Report
	Result  = predict.Result
	Skipped = predict.Skipped
	Further = predict.Further
	Took    = predict.Took
	GoalOf  = predict.GoalOf
)

const (
	RatioAtLeast     = predict.RatioAtLeast
	ValueAtLeast     = predict.ValueAtLeast
	ValueAtMost      = predict.ValueAtMost
	SortedZeroCopy   = predict.SortedZeroCopy
	UnsortedZeroCopy = predict.UnsortedZeroCopy
	SparseCodec      = predict.SparseCodec
	BFloat16Suffix   = predict.BFloat16Suffix
	Float16Suffix    = predict.Float16Suffix
	OnesSuffix       = predict.OnesSuffix
)

// Variants of the figures of resident tables over two GPUs.
const (
	TenPercent    = "10 %"  // of a batch's rows have bytes on the other GPU
	ThirtyPercent = "30 %"  //
	SlotsOnPeer   = "slots" // the slots, not the overflow places, on the other GPU
)

// Whole returns an error that names the incomplete cases.
func Whole(r *Report) error {
	if len(r.Incomplete) == 0 {
		return nil
	}
	names := make([]string, len(r.Incomplete))
	for i, s := range r.Incomplete {
		names[i] = s.Case + ": " + s.Reason
	}
	return fmt.Errorf("report (%d cases incomplete) must be whole: %s", len(names), strings.Join(names, "; "))
}

// lessIsBetter are the units of figures that are better if they are smaller.
var lessIsBetter = []string{"us", "ms", "MiB", "allocations", "points", "%"}

// complete fills in the ratio, and whether the goal is reached.
func complete(x *Result) {
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

// ReadReports reads a report of a file, or of several, which are merged.
func ReadReports(paths []string) (*Report, error) {
	var all []*Report
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		r, err := predict.Parse(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, r)
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return Merge(all...)
}
