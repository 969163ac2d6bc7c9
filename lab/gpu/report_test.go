package gpu

import (
	"math"
	"testing"
)

func TestResult_GoalsAndRatios(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		x       Result
		ratio   float64
		goal    float64
		of      GoalOf
		reached bool
	}{
		{Result{Case: "hit-decode", RowBytes: 400, Codec: "ibp4", Unit: "GB/s", Value: 85, BaselineValue: 100}, 0.85, 0.85, RatioAtLeast, true},
		{Result{Case: "hit-decode", RowBytes: 1024, Codec: "ibp4", Unit: "GB/s", Value: 85, BaselineValue: 100}, 0.85, 0.90, RatioAtLeast, false},
		{Result{Case: "hit-decode", RowBytes: 128, Codec: "ibp4", Unit: "GB/s", Value: 85, BaselineValue: 100}, 0.85, 0, "", false},
		{Result{Case: "hit-decode", RowBytes: 128, Codec: SparseCodec, Unit: "GB/s", Value: 101, BaselineValue: 100}, 1.01, 1, RatioAtLeast, true},
		{Result{Case: "gather-hits", RowBytes: 400, Unit: "GB/s", Value: 72, BaselineValue: 100}, 0.72, 0.70, RatioAtLeast, true},
		{Result{Case: "gather-misses", RowBytes: 2408, Unit: "GB/s", Value: 94, BaselineValue: 100}, 0.94, 0.95, RatioAtLeast, false},
		{Result{Case: "gather-misses", RowBytes: 256, Unit: "GB/s", Value: 94, BaselineValue: 100}, 0.94, 0, "", false},
		{Result{Case: "gather-misses-large", RowBytes: 256, HostThreads: 15, Unit: "GB/s", Value: 29, BaselineValue: 10}, 2.9, 3, RatioAtLeast, false},
		{Result{Case: "gather-misses-large", RowBytes: 512, HostThreads: 4, Unit: "GB/s", Value: 13, BaselineValue: 10}, 1.3, 1.3, RatioAtLeast, true},
		{Result{Case: "gather-misses-large", RowBytes: 512, HostThreads: 1, Unit: "GB/s", Value: 13, BaselineValue: 10}, 1.3, 0, "", false},
		{Result{Case: "gather-80", RowBytes: 256, Unit: "GB/s", Value: 90, BaselineValue: 100}, 0.9, 0.9, RatioAtLeast, true},
		{Result{Case: "lookup", RowBytes: 8, Unit: "Gkeys/s", Value: 19, BaselineValue: 38}, 0.5, 20, ValueAtLeast, false},
		{Result{Case: "load", RowBytes: 512, Unit: "GB/s", Value: 44, BaselineValue: 55}, 0.8, 0.8, RatioAtLeast, true},
		{Result{Case: "small-batch", RowBytes: 512, Codec: "hits", Batch: 4096, Unit: "us", Value: 25, BaselineValue: 5}, 0.2, 30, ValueAtMost, true},
		{Result{Case: "small-batch-caller", RowBytes: 512, Codec: "hits", Batch: 4096, Unit: "us", Value: 75, BaselineValue: 15}, 0.2, 60, ValueAtMost, false},
		{Result{Case: "small-batch", RowBytes: 512, Codec: "80 % hits", Batch: 1, Unit: "us", Value: 25, BaselineValue: 5}, 0.2, 0, "", false},
		{Result{Case: "caller", RowBytes: 512, Unit: "us", Value: 20}, 0, 20, ValueAtMost, true},
		{Result{Case: "caller", RowBytes: 512, Unit: "allocations", Value: 1}, 0, 0, ValueAtMost, false},
		{Result{Case: "caller", RowBytes: 512, Unit: "allocations"}, 0, 0, ValueAtMost, true},
		{Result{Case: "sampling", RowBytes: 512, Unit: "us", Value: 100, BaselineValue: 99}, 0.99, 0.99, RatioAtLeast, true},
		{Result{Case: "sampling", RowBytes: 512, Codec: "80 % hits, all misses", Unit: "us", Value: 100, BaselineValue: 98}, 0.98, 0.97, RatioAtLeast, true},
		{Result{Case: "refresh", RowBytes: 512, Unit: "us", Value: 116, BaselineValue: 100}, 100. / 116, 1 / 1.15, RatioAtLeast, false},
		{Result{Case: "refresh", RowBytes: 512, Unit: "us", Value: 114, BaselineValue: 100}, 100. / 114, 1 / 1.15, RatioAtLeast, true},
		{Result{Case: "link", Unit: "GB/s", Value: 55}, 0, 0, "", false},
		{Result{Case: "buddy-hits", RowBytes: 512, Codec: "rank", Unit: "GB/s", Value: 91, BaselineValue: 100}, 0.91, 0.9, RatioAtLeast, true},
		{Result{Case: "buddy-hits", RowBytes: 256, Codec: "none", Unit: "GB/s", Value: 79, BaselineValue: 100}, 0.79, 0.8, RatioAtLeast, false},
		{Result{Case: "pooled-hits", RowBytes: 512, Codec: "none", Variant: "bag 40", Batch: pooledLarge, Unit: "GB/s", Value: 84, BaselineValue: 100}, 0.84, 0.85, RatioAtLeast, false},
		{Result{Case: "pooled-hits", RowBytes: 512, Codec: "ibp4", Variant: "bag 40", Batch: pooledLarge, Unit: "GB/s", Value: 2400, BaselineValue: 3000}, 0.8, 2400, ValueAtLeast, true},
		{Result{Case: "pooled-hits", RowBytes: 256, Codec: "ibp4", Variant: "bag 40", Batch: pooledLarge, Unit: "GB/s", Value: 2400, BaselineValue: 3000}, 0.8, 2000, ValueAtLeast, true},
		{Result{Case: "pooled-hits", RowBytes: 256, Codec: "ibp4", Variant: "bag 40", Batch: 200_000, Unit: "GB/s", Value: 90, BaselineValue: 100}, 0.9, 0.85, RatioAtLeast, true},
		{Result{Case: "pooled-gather", RowBytes: 512, Codec: "rank", Variant: "bag 1", Unit: "GB/s", Value: 90, BaselineValue: 100}, 0.9, 0, "", false},
		{Result{Case: "pooled-gather", RowBytes: 512, Codec: "rank", Variant: "bag 10", Unit: "GB/s", Value: 190, BaselineValue: 100}, 1.9, 1.8, RatioAtLeast, true},
		{Result{Case: "pooled-80", RowBytes: 512, Codec: "ibp4", Variant: "bag 10", Unit: "GB/s", Value: 90, BaselineValue: 100}, 0.9, 1 / 1.1, RatioAtLeast, false},
		{Result{Case: "training-fetch", RowBytes: 512, Codec: "auto", Unit: "ms", Value: 1.2, BaselineValue: 3.6}, 3, 1.25, ValueAtMost, true},
		{Result{Case: "training-fetch", RowBytes: 256, Codec: "auto", Unit: "ms", Value: 1.2, BaselineValue: 3.6}, 3, 0.8, ValueAtMost, false},
		{Result{Case: "training-fetch", RowBytes: 256, Codec: "rank", Unit: "ms", Value: 1.2, BaselineValue: 3.6}, 3, 0, "", false},
		{Result{Case: "buddy-budget", RowBytes: 256, Codec: "rank", Variant: "skew 0", Unit: "GB/s", Value: 50, BaselineValue: 100}, 0.5, 0.6, RatioAtLeast, false},
		{Result{Case: "buddy-budget", RowBytes: 256, Codec: "rank", Variant: "skew 0.6", Unit: "GB/s", Value: 50, BaselineValue: 100}, 0.5, 0, "", false},
		{Result{Case: "pair-refresh", RowBytes: 512, Codec: "ibp4", Unit: "us", Value: 125, BaselineValue: 100}, 0.8, 1 / 1.2, RatioAtLeast, false},
	} {
		x := c.x
		setGoal(&x)
		complete(&x)
		if math.Abs(x.Ratio-c.ratio) > 1e-9 || x.Goal != c.goal || x.GoalOf != c.of || x.Reached != c.reached {
			t.Errorf("%s of %d B: ratio %g, goal %g %q, reached %v; want %g, %g %q, %v", x.Case, x.RowBytes, x.Ratio, x.Goal, x.GoalOf, x.Reached, c.ratio, c.goal, c.of, c.reached)
		}
	}
}
