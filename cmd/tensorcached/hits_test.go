package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestCheck_Hits: --check with row numbers opens a cache at the budget, and what it hits is what was planned. The program itself picks codecs for what serves the rows.
func TestCheck_Hits(t *testing.T) {
	t.Parallel()
	file := features(t, "f.npy", 20_000, 16)
	r := rand.New(rand.NewPCG(1, 2))
	var ids strings.Builder
	for range 80_000 {
		fmt.Fprintln(&ids, int(20_000*math.Pow(r.Float64(), 3)))
	}
	args := []string{"--features", file, "--gpu-memory", "20%", "--device", "host", "--resp", ":0"}
	check := append([]string{"--check", "--ids", write(t, "ids.txt", []byte(ids.String()))}, args...)
	out, stderr, status := runs(t, append(check, "--json")...)
	var got struct {
		Tables []struct{ Name string }
		Hits   struct {
			Verdict string
			Answers []struct {
				Budget int64   `json:"budget_bytes"`
				Hit    float64 `json:"hit_ratio"`
				Seen   float64 `json:"seen_hit"`
			}
			Workload struct{ Lookups int64 }
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || status != 0 || len(got.Hits.Answers) != 1 {
		t.Fatalf("%v: %s%s", err, stderr, out)
	}
	if a := got.Hits.Answers[0]; a.Budget != 20_000*64/5 || math.Abs(a.Hit-a.Seen) > 0.02 || a.Hit < 0.3 || got.Hits.Workload.Lookups != 20_000 || len(got.Tables) != 1 {
		t.Errorf("%+v", got)
	}
	if out, stderr, status = runs(t, check...); status != 0 || !strings.Contains(out, "\nhit rate: 256 kB gives ") || !strings.Contains(out, "\nplanned ") {
		t.Errorf("%s%s", stderr, out)
	}
	if _, stderr, status = runs(t, "--ids", "x", "--features", file); status != 1 || !strings.Contains(stderr, "--ids means nothing without --check") {
		t.Error(stderr)
	}
	if log := start(t, args...).logged(); !strings.Contains(log, `msg="codec picked"`) || !strings.Contains(log, `machine="this machine's processors"`) {
		t.Error(log)
	}
	if log := start(t, append(args, "--link", "55")...).logged(); !strings.Contains(log, `machine="a GPU like an H200 that reads misses at 55 GB/s"`) {
		t.Error(log)
	}
}
