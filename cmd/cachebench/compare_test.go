package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// runsWith returns a file of runs with these hits out of 1000, and a p50 of so many milliseconds.
func runsWith(t *testing.T, p50 float64, hits ...int64) string {
	t.Helper()
	var b []byte
	for i, h := range hits {
		r := experiment.Result{MissesByReason: map[string]int64{}}
		r.Table.Rows, r.Table.RowBytes, r.Device.Kind, r.Device.Count = 100, 64, "host", 1
		r.Workload.Kind, r.Workload.Batches = "ids", 10
		r.Cache.Policy, r.Cache.Codec, r.Cache.BudgetBytes, r.Cache.RowsCached, r.Cache.CompressionRatio = "freq", "ibp4", 1<<20, 50, 1.25
		q := &r.Results
		q.Lookups, q.Hits, q.HitRatio, q.HostBytesMoved = 1000, h, float64(h)/1000, (1000-h)*60
		q.LookupsPerSecond, q.BatchLatency = 1e6+float64(i), experiment.Latency{P50: p50 + float64(i)/100, P95: 2, P99: 3}
		one, err := json.Marshal(&r)
		if err != nil {
			t.Fatal(err)
		}
		b = append(append(b, one...), '\n')
	}
	return write(t, fmt.Sprintf("p50-%g.json", p50), b)
}

func TestCompare_Output(t *testing.T) {
	t.Parallel()
	a, b := runsWith(t, 1, 300, 301, 302, 303, 304), runsWith(t, 2, 310, 311, 312, 313, 314)
	stdout, stderr, status := cachebench(t, "report", "compare", a, b)
	if status != 2 || stderr != "cachebench: metrics that are worse beyond noise: 1\n" {
		t.Errorf("status %d, %q", status, stderr)
	}
	golden(t, "compare.golden", strings.NewReplacer(a, "before", b, "after").Replace(stdout))
	// The other way round, hits and bytes are worse.
	if _, stderr, status := cachebench(t, "report", "compare", b, a, "--json"); status != 2 || stderr != "cachebench: metrics that are worse beyond noise: 2\n" {
		t.Errorf("status %d, %q", status, stderr)
	}
	c := decode[experiment.Comparison](t, succeed(t, "report", "compare", a, runsWith(t, 1, 300, 301, 302, 303, 304), "--json"))
	if len(c.Groups) != 1 || c.Count(experiment.Same)+c.Count(experiment.Noise) != 8 {
		t.Errorf("compared with itself: %+v", c)
	}
	refuse(t, "report compare: arguments (1) must be 2: A B", "report", "compare", a)
	refuse(t, "compare: --alpha (2) must be above 0 and below 1", "report", "compare", a, b, "--alpha", "2")
}

// TestCompare_Sweeps: two sweeps of other seeds differ by noise only, but in what time decides.
func TestCompare_Sweeps(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	flags := slices.Concat(generated, []string{"--gpu-memory", "20%", "--codec", "none", "--policy", "freq,lru", "--seeds", "4", "--data-seed", "9"})
	sweep(t, filepath.Join(dir, "a"), flags)
	sweep(t, filepath.Join(dir, "b"), append(slices.Clone(flags), "--seed", "100"))
	stdout, stderr, status := cachebench(t, "report", "compare", filepath.Join(dir, "a"), filepath.Join(dir, "b"), "--json", "--alpha", "0.02")
	c := decode[experiment.Comparison](t, stdout)
	if status != 0 || len(c.Groups) != 2 || len(c.OnlyA)+len(c.OnlyB) != 0 {
		t.Fatalf("status %d, %s: %+v", status, stderr, c)
	}
	if m := c.Groups[0].Metrics[0]; m.NA != 4 || m.NB != 4 || m.A == m.B || m.Verdict != experiment.TooFew {
		t.Errorf("%+v", m)
	}
}
