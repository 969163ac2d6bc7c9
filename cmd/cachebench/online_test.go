package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// TestRun_ColdLearns: an empty cache that follows the workload comes near the one that is filled beforehand, and equal seeds
// give equal results; with nothing observed it stays empty.
func TestRun_ColdLearns(t *testing.T) {
	t.Parallel()
	flags := []string{"--vertices", "3000", "--batches", "20", "--train-batches", "20", "--batch-size", "16", "--policy", "static-freq", "--codec", "ibp4"}
	filled := run(t, flags...)
	if filled.Online != nil {
		t.Errorf("a static cache: %+v", filled.Online)
	}
	cold := func(more ...string) *experiment.Result {
		r := run(t, slices.Concat(flags, []string{"--cold"}, more)...)
		if r.Online == nil || !r.Workload.Cold || r.Workload.TrainingBatches != 20 || r.Workload.Batches != 20 {
			t.Fatalf("%+v", r)
		}
		return r
	}
	r, again := cold("--sample-rate", "1"), cold("--sample-rate", "1")
	if r.Results.HitRatio < filled.Results.HitRatio-0.03 {
		t.Errorf("hits %.3f, a filled cache %.3f", r.Results.HitRatio, filled.Results.HitRatio)
	}
	if o := r.Online; o.Cycles != 4 || o.SampledAccesses != r.Results.Lookups || o.LostAccesses != 0 {
		t.Errorf("%+v, %d lookups", o, r.Results.Lookups)
	}
	// Batches after the last cycle count too.
	if r := cold("--sample-rate", "1", "--refresh-batches", "7"); r.Online.SampledAccesses != r.Results.Lookups {
		t.Errorf("%+v, %d lookups", r.Online, r.Results.Lookups)
	}
	r.Online.AdmittedAge, again.Online.AdmittedAge = 0, 0
	if a, b := timeless(r), timeless(again); fmt.Sprint(a.Results, *a.Online) != fmt.Sprint(b.Results, *b.Online) {
		t.Errorf("the same seed gave\n%+v %+v\nand\n%+v %+v", a.Results, *a.Online, b.Results, *b.Online)
	}
	if r := cold("--sample-rate", "0"); r.Cache.RowsCached != 0 || r.Results.Hits != 0 || r.MissesByReason["cold"] != r.Results.Misses {
		t.Errorf("%d rows cached, %d hits with nothing observed", r.Cache.RowsCached, r.Results.Hits)
	}
	if r := cold("--sample-rate", "1", "--refresh-bytes", "2000", "--refresh-batches", "1"); r.Online.Cycles != 20 || r.Online.RefreshedBytes > 40_000 || r.Online.RefreshedBytes == 0 {
		t.Errorf("%+v", r.Online)
	}
	if r := cold("--refresh-interval", "1ms", "--sample-rate", "1"); r.Results.Hits == 0 {
		t.Errorf("in the background: %+v", r.Online)
	}
}

// TestRun_Drift: the cache beside is filled once, the ceiling for each phase; with one phase the policy that is trained
// beforehand is the cache beside.
func TestRun_Drift(t *testing.T) {
	t.Parallel()
	flags := []string{"--vertices", "3000", "--batches", "24", "--train-batches", "20", "--batch-size", "16", "--policy", "static-freq", "--codec", "ibp4", "--drift"}
	one := run(t, append(flags, "24", "--sample-rate", "0")...)
	if d := one.Online.Drift; d.Phases != 1 || d.StaticHitRatio < one.Results.HitRatio-0.02 || d.StaticHitRatio > one.Results.HitRatio+0.02 || d.OptimalHitRatio < d.StaticHitRatio {
		t.Errorf("one phase: %+v, this one hits %.3f", d, one.Results.HitRatio)
	}
	four := run(t, append(flags, "6", "--sample-rate", "1", "--refresh-batches", "1", "--refresh-churn", "1")...)
	d := four.Online.Drift
	if d.Phases != 4 || d.StaticHitRatio > one.Online.Drift.StaticHitRatio*0.7 || d.OptimalHitRatio < one.Online.Drift.OptimalHitRatio || four.Results.HitRatio < d.StaticHitRatio {
		t.Errorf("four phases: %+v, this one hits %.3f; one phase: %+v", d, four.Results.HitRatio, one.Online.Drift)
	}
	out := succeed(t, slices.Concat([]string{"run"}, flags, []string{"6"})...)
	if !strings.Contains(out, "\nrefreshed  4 cycles: ") || !strings.Contains(out, "\ndrift      4 phases: a static cache hits ") {
		t.Errorf("printed\n%s", out)
	}
}

func TestRun_BadOnlineFlags(t *testing.T) {
	t.Parallel()
	for want, flags := range map[string][]string{
		"--drift (-1) must not be negative":                                                                     {"--drift", "-1"},
		"--refresh-batches (-2) must not be negative":                                                           {"--refresh-batches", "-2"},
		"--refresh-interval (-1s) must not be negative":                                                         {"--refresh-interval", "-1s"},
		"--refresh-churn (1.5) must be 0 to 1":                                                                  {"--cold", "--refresh-churn", "1.5"},
		"--sample-rate (-0.5) must be 0 to 1":                                                                   {"--cold", "--sample-rate", "-0.5"},
		`--refresh-bytes ("much") must be a size: 64MiB, 64MB, bytes`:                                           {"--cold", "--refresh-bytes", "much"},
		"--sample-rate means nothing without --cold, --drift, --refresh-batches or --refresh-interval":          {"--sample-rate", "0.5"},
		"--cold and --policy static-optimal contradict each other: it learns from what is measured, beforehand": {"--cold", "--policy", "static-optimal"},
	} {
		refuse(t, want, append([]string{"run"}, flags...)...)
	}
}
