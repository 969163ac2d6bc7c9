//go:build cuda && linux

package gpu

import (
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/internal/gputest"
)

// TestRun_EveryCase runs all cases on tables so small that figures mean nothing: each gives results, whose outputs were compared
// with their sources, and says how long it took; and a few cases alone run what they need.
func TestRun_EveryCase(t *testing.T) {
	gputest.Require(t)
	tiny := Options{
		RowBytes: []int{256, 512}, TableBytes: 1 << 20, LargeTableBytes: 1 << 20, HostThreads: []int{2}, Batch: 500, Entries: 2000, Runs: 1,
		Log: t.Output(),
	}
	for _, cases := range [][]string{Cases, {"lookup"}, {"gather-80"}, {"caller"}, {"sampling"}} {
		o := tiny
		o.Cases = cases
		report, err := Run(o)
		if err != nil {
			t.Fatalf("%v: %v", cases, err)
		}
		var have []string
		for _, x := range report.Results {
			if have = append(have, x.Case); !(x.Value >= 0) || x.GoalOf == RatioAtLeast && !(x.Ratio > 0) {
				t.Errorf("%+v", x)
			}
		}
		for _, s := range report.Skipped {
			have = append(have, s.Case)
		}
		for _, c := range Cases {
			if slices.Contains(have, c) != slices.Contains(cases, c) {
				t.Errorf("%v: there are results of %q, or none", cases, c)
			}
		}
		if len(report.Took) == 0 {
			t.Errorf("%v took no time", cases)
		}
	}
}
