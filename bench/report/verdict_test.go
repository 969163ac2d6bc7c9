package report

import (
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// resultOf returns one of 1,000 rows, of which the cache and the uncompressed one hold some.
func resultOf(codec string, rows, plainRows int64, hits, plainHits float64, moved, plainMoved int64) *experiment.Result {
	r := &experiment.Result{}
	r.Table.Rows = 1000
	r.Cache.Codec, r.Cache.Policy, r.Cache.RowsCached, r.Cache.BudgetBytes = codec, "freq", rows, 50_000
	r.Results.HitRatio, r.Results.HostBytesMoved = hits, moved
	r.Uncompressed.RowsCached, r.Uncompressed.HitRatio, r.Uncompressed.HostBytesMoved = plainRows, plainHits, plainMoved
	return r
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	more := resultOf("rank", 120, 100, 0.349, 0.329, 80, 100)
	more.OtherBudgets = []experiment.BudgetHits{{Times: 0.5, BudgetBytes: 25_000, Rows: 60, HitRatio: 0.25}, {Times: 2, BudgetBytes: 100_000, Rows: 240, HitRatio: 0.481}, {Times: 4, HitRatio: 0.9}}
	predicted := func(cached, uncompressed, uncached float64) *experiment.Result {
		r := resultOf("rank", 120, 100, 0.1, 0.05, 80, 100)
		r.PredictedGPU = &experiment.PredictedGPU{Device: "NVIDIA H200", BatchMS: cached, UncompressedMS: uncompressed, UncachedMS: uncached}
		return r
	}
	for want, r := range map[string]*experiment.Result{
		"rank with freq: 120 rows in 50 kB hit 10.0 %, uncompressed rows 5.0 %; an NVIDIA H200 is predicted to be faster without a cache, with 0.100 ms a batch instead of 0.110 ms": predicted(0.12, 0.11, 0.1),
		"rank with freq: 120 rows in 50 kB hit 10.0 %, uncompressed rows 5.0 %":                                                                                                      predicted(0.12, 0.09, 0.1),
		"rank with freq: 120 rows in 50 kB hit 34.9 %, uncompressed rows 32.9 %; 25 kB less would hit 25.0 %; 50 kB more would hit 48.1 %":                                           more,
		"none with freq: 100 rows in 50 kB hit 32.9 %":                                                                    resultOf("none", 100, 100, 0.329, 0.329, 100, 100),
		"ndzip with freq: 90 rows in 50 kB hit 30.0 %; take none, by which uncompressed rows hit 32.9 %":                  resultOf("ndzip", 90, 100, 0.3, 0.329, 110, 100),
		"ibp4 with freq: 1 row in 50 kB hit 0.1 %; take none, by which uncompressed rows hit 0.1 %":                       resultOf("ibp4", 1, 1, 0.001, 0.001, 100, 100),
		"zipnn with freq: 49 rows in 50 kB hit 9.6 %, uncompressed rows 9.8 %, but misses move 30.0 % fewer bytes in all": resultOf("zipnn", 49, 50, 0.096, 0.098, 70, 100),
		"ibp4: all 1,000 rows fit in 50 kB":                                                                               resultOf("ibp4", 1000, 100, 1, 0.3, 0, 100),
		"ibp4: all 1,000 rows fit in 50 kB, uncompressed too: take none":                                                  resultOf("ibp4", 1000, 1000, 1, 1, 0, 0),
		"none: all 1,000 rows fit in 50 kB":                                                                               resultOf("none", 1000, 1000, 1, 1, 0, 0),
	} {
		if got := verdict(r); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestSweepVerdict_BestOfEachBudget: of each budget the point that moves the fewest bytes over its seeds, budgets from the smallest on.
func TestSweepVerdict_BestOfEachBudget(t *testing.T) {
	t.Parallel()
	at := func(budget, codec string) experiment.Point {
		return experiment.Point{Policy: "freq", Budget: budget, Codec: codec, HostTier: "inplace"}
	}
	large := resultOf("rank", 240, 200, 0.5, 0.4, 40, 60)
	large.Cache.BudgetBytes = 100_000
	large.OtherBudgets = []experiment.BudgetHits{{Times: 2, BudgetBytes: 200_000, HitRatio: 0.7}}
	runs := map[experiment.Point][]*experiment.Result{
		at("10%", "auto"): {large},
		at("5%", "none"):  {resultOf("none", 100, 100, 0.3, 0.3, 100, 100), resultOf("none", 100, 100, 0.3, 0.3, 10, 10), resultOf("none", 100, 100, 0.3, 0.3, 100, 100)},
		at("5%", "ibp4"):  {resultOf("ibp4", 120, 100, 0.34, 0.3, 90, 100), resultOf("ibp4", 120, 100, 0.35, 0.3, 90, 100), resultOf("ibp4", 120, 100, 0.36, 0.3, 90, 100)},
	}
	got := strings.Join(sweepVerdict([]experiment.Point{at("10%", "auto"), at("5%", "none"), at("5%", "ibp4")}, runs), "\n")
	want := "5%: ibp4 with freq, inplace, hits 35.0 %\n10%: rank with freq, inplace, hits 50.0 %, +15.0 points for 50 kB more; 100 kB more would hit 70.0 %"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if none := sweepVerdict(nil, nil); none != nil {
		t.Errorf("a sweep without cells: %q", none)
	}
}
