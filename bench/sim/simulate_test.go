package sim

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tensorcache/tensorcache/internal/realdata"
)

// silent is a Progress.
type silent struct{}

func (silent) Stage(string, int) {}
func (silent) Step()             {}

// traces of ../shared/traces.
var traces = map[string]string{
	"cloudphysics": "cloudphysics.oracleGeneral.bin", "oltp": "arc_oltp.gz", "mooncake": "mooncake_conversation.jsonl.gz",
}

func text(t testing.TB, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace.txt")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSimulate_ManyAtOnce: results come in the order asked for, and do not depend on how many run at once.
func TestSimulate_ManyAtOnce(t *testing.T) {
	c := Config{Trace: realdata.Trace(t, traces["cloudphysics"]), Policies: []string{"sieve", "belady", "freq", "static-freq", "lru", "admission/lru", "tinylfu", "admission/tinylfu", "static-optimal"}, Sizes: []string{"1%", "10%", "64MiB", "300%"}, Workers: 4, RefreshRequests: 8000}
	wide, err := Simulate(t.Context(), c, silent{})
	if err != nil {
		t.Fatal(err)
	}
	c.Workers = 1
	narrow, err := Simulate(t.Context(), c, silent{})
	if err != nil {
		t.Fatal(err)
	}
	if wide.Requests != 113_872 || wide.IDs != 48_974 || wide.WorkingSet != 2_029_769_728 {
		t.Errorf("%+v", wide.Source)
	}
	for i, r := range wide.Results {
		n := narrow.Results[i]
		if r.RequestsPerSecond <= 0 {
			t.Errorf("%+v", r)
		}
		r.RequestsPerSecond, n.RequestsPerSecond = 0, 0
		if !reflect.DeepEqual(r, n) {
			t.Errorf("%+v, alone %+v", r, n)
		}
		if r.Policy != c.Policies[i/4] || r.Requests != 113_872 || r.MissRatio != float64(r.Misses)/113_872 || r.ByteMissRatio <= 0 && r.Policy != "static-optimal" || r.ByteMissRatio > 1 {
			t.Errorf("%+v", r)
		}
		if i%4 == 2 && r.CacheBytes != 64<<20 || i%4 == 0 && r.CacheBytes != 20_297_697 || i%4 == 0 && r.CacheObjects != 489 {
			t.Errorf("%+v", r)
		}
		if i%4 == 3 && r.Misses != 48_974 && (r.Policy == "sieve" || r.Policy == "lru" || r.Policy == "belady") {
			t.Errorf("larger than the working set: %+v", r)
		}
	}
}

// TestSimulate_WhateverRunsBeside: a policy's misses at a size are the same to the request, alone and beside other sizes, on one processor
// and on two, and with other work on all processors.
func TestSimulate_WhateverRunsBeside(t *testing.T) {
	procs := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(procs)
	for _, c := range []struct {
		Config
		beside []string
	}{
		{Config{Trace: traces["cloudphysics"], UnitSize: true, Sizes: []string{"489"}}, []string{"250", "489", "2448", "10%"}},
		{Config{Trace: traces["cloudphysics"], Sizes: []string{"64MiB"}}, []string{"1%", "64MiB", "10%", "50%"}},
	} {
		c.Trace, c.Policies = realdata.Trace(t, c.Trace), []string{"tinylfu"}
		runtime.GOMAXPROCS(procs)
		alone, err := Simulate(t.Context(), c.Config, silent{})
		if err != nil {
			t.Fatal(err)
		}
		want := alone.Results[0]
		same := func(how string, got Result) {
			got.RequestsPerSecond = want.RequestsPerSecond
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %+v, alone %+v", how, got, want)
			}
		}
		beside := c.Config
		beside.Sizes, beside.Workers = c.beside, 4
		for _, n := range []int{1, 2} {
			runtime.GOMAXPROCS(n)
			for _, busy := range []bool{false, true} {
				var stop atomic.Bool
				var neighbours sync.WaitGroup
				if busy {
					for range 2 * n {
						neighbours.Go(func() {
							for !stop.Load() {
							}
						})
					}
				}
				a, err := Simulate(t.Context(), c.Config, silent{})
				b, errBeside := Simulate(t.Context(), beside, silent{})
				stop.Store(true)
				neighbours.Wait()
				if err := errors.Join(err, errBeside); err != nil {
					t.Fatal(err)
				}
				same(fmt.Sprintf("GOMAXPROCS %d, busy %v", n, busy), a.Results[0])
				same(fmt.Sprintf("GOMAXPROCS %d, busy %v, beside other sizes", n, busy), b.Results[1])
			}
		}
	}
}

// TestSimulate_AdmissionPolicies: the default policy, refreshed, misses less than LRU that is refreshed alike.
func TestSimulate_AdmissionPolicies(t *testing.T) {
	c := Config{Trace: realdata.Trace(t, traces["mooncake"]), UnitSize: true, Policies: []string{"freq", "admission/lru"}, Sizes: []string{"5%", "9139"}}
	s, err := Simulate(t.Context(), c, silent{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if freq, lru := s.Results[i], s.Results[2+i]; freq.Misses > lru.Misses || freq.Misses < 182_790 || freq.CacheBytes != 9139 {
			t.Errorf("%+v, %+v", freq, lru)
		}
	}
}

func TestSimulate_Bad(t *testing.T) {
	ids := text(t, "1", "2", "1")
	for want, c := range map[string]Config{
		`unknown policy ("mru") must be one of ` + strings.Join(PolicyNames(), ", "):                                   {Trace: ids, Policies: []string{"mru"}, Sizes: []string{"1"}, UnitSize: true},
		`--sizes ("0") must be a positive percentage of the working set or, with --unit-size, a number of objects`:     {Trace: ids, Policies: []string{"lru"}, Sizes: []string{"0"}, UnitSize: true},
		`--sizes ("64MiB") must be a positive percentage of the working set or, with --unit-size, a number of objects`: {Trace: ids, Policies: []string{"lru"}, Sizes: []string{"64MiB"}, UnitSize: true},
		`--sizes ("-5%") must be a positive percentage of the working set or a size such as 64MiB`:                     {Trace: ids, Policies: []string{"lru"}, Sizes: []string{"-5%"}},
		"sim: " + ids + ": has no sizes of rows: give --unit-size, and each counts 1":                                  {Trace: ids, Policies: []string{"lru"}, Sizes: []string{"5%"}},
		"--policy must name at least one policy\n--trace must name a file\n--sizes must name at least one size":        {},
		"--policy glru-2q counts rows whatever their sizes: it needs --unit-size":                                      {Trace: text(t, "0,GET,4,100,1", "1,GET,4,50,1"), Format: "cachelib", Policies: []string{"glru-2q"}, Sizes: []string{"5%"}},
	} {
		if want[0] == '-' && strings.Contains(want, "glru-2q") {
			path := filepath.Join(t.TempDir(), "t.csv")
			if err := os.WriteFile(path, []byte("key,op,size,op_count,key_size\n1,GET,100,1,8\n2,SET,50,1,8\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			c.Trace = path
		}
		if _, err := Simulate(t.Context(), c, silent{}); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// TestMissRatios_Exact: the curve is what simulating LRU at each size says.
func TestMissRatios_Exact(t *testing.T) {
	for _, unit := range []bool{false, true} {
		c := CurveConfig{Config: Config{Trace: realdata.Trace(t, traces["cloudphysics"]), UnitSize: unit}, Method: CurveExact, Points: 20}
		curve, err := MissRatios(t.Context(), c, silent{})
		if err != nil {
			t.Fatal(err)
		}
		c.Policies = []string{"lru"}
		for _, p := range curve.Points {
			if c.Sizes = append(c.Sizes, fmt.Sprint(p.CacheBytes)); p.StandardError != 0 {
				t.Errorf("%+v", p)
			}
		}
		s, err := Simulate(t.Context(), c.Config, silent{})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range s.Results {
			if p := curve.Points[i]; math.Abs(p.MissRatio-r.MissRatio) > 1e-9 || math.Abs(p.ByteMissRatio-r.ByteMissRatio) > 1e-9 || p.CacheBytes != r.CacheBytes || p.CacheObjects != r.CacheObjects {
				t.Errorf("%+v, simulated %+v", p, r)
			}
		}
		if len(curve.Points) != 20 || curve.Error != 0 || curve.SampledIDs != 48_974 {
			t.Errorf("%+v", curve)
		}
	}
}

// TestMissRatios_ShardsErrors: the mean absolute error over 100 sizes, median of ten seeds, is within the goal, and what the
// estimate says of itself is within a factor of three of it.
func TestMissRatios_ShardsErrors(t *testing.T) {
	for name, most := range map[string][2]float64{"oltp": {0.01, 0.02}, "mooncake": {0.01, 0.02}, "cloudphysics": {0.03, 0.02}} {
		if testing.Short() && name != "oltp" {
			continue
		}
		c := CurveConfig{Config: Config{Trace: realdata.Trace(t, traces[name]), UnitSize: true}, Method: CurveExact}
		tr, source, err := c.load()
		if err != nil {
			t.Fatal(err)
		}
		exact, err := c.missRatios(t.Context(), tr, source)
		if err != nil {
			t.Fatal(err)
		}
		c.Method = CurveShards
		for i, set := range []func(){func() { c.Rate = 0.01 }, func() { c.Rate, c.MaxIDs = 0, 8192 }} {
			set()
			var errs, stated []float64
			for c.Seed = range uint64(10) {
				curve, err := c.missRatios(t.Context(), tr, source)
				if err != nil {
					t.Fatal(err)
				}
				sum := 0.0
				for i, p := range curve.Points {
					sum += math.Abs(p.MissRatio - exact.Points[i].MissRatio)
				}
				errs, stated = append(errs, sum/float64(len(curve.Points))), append(stated, curve.Error)
				if i == 1 && curve.SampledIDs > 8192 || len(curve.Points) != 100 {
					t.Errorf("%d IDs, %d points", curve.SampledIDs, len(curve.Points))
				}
			}
			slices.Sort(errs)
			slices.Sort(stated)
			t.Logf("%s, rate %g, IDs %d: mean absolute error %.4f (at most %.4f), stated %.4f", name, c.Rate, c.MaxIDs, errs[5], errs[9], stated[5])
			if errs[5] > most[i] || stated[5] > 3*errs[5] || stated[5] < errs[5]/3 {
				t.Errorf("%s, rate %g, IDs %d: mean absolute error %.4f, goal %.4f; stated %.4f", name, c.Rate, c.MaxIDs, errs[5], most[i], stated[5])
			}
		}
	}
}

func TestMissRatios_Bad(t *testing.T) {
	ids := text(t, "1", "2", "1")
	for want, c := range map[string]CurveConfig{
		`--mrc ("olken") must be exact or shards`:                                          {Method: "olken"},
		"--mrc exact samples nothing: --shards-rate and --shards-ids are for --mrc shards": {Method: CurveExact, Rate: 0.1},
		"--shards-rate (2) must be above 0 and at most 1":                                  {Method: CurveShards, Rate: 2},
		"--shards-ids (5) must be at least 64":                                             {Method: CurveShards, MaxIDs: 5},
		"sim: " + ids + ": sampled IDs (0 of 2) must be at least 1: raise --shards-rate":   {Method: CurveShards, Rate: 1e-9},
	} {
		c.Trace, c.UnitSize = ids, true
		if _, err := MissRatios(t.Context(), c, silent{}); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
