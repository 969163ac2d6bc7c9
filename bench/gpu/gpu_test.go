package gpu

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

func TestOptions_Validate(t *testing.T) {
	t.Parallel()
	var o Options
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	all := strings.Join(Cases, ", ")
	for want, change := range map[string]func(*Options){
		`gpu-bench: case ("hits") must be one of ` + all:                            func(o *Options) { o.Cases = []string{"lookup", "hits"} },
		"gpu-bench: row (10 bytes) must be a multiple of 4 from 4 to 1048572":       func(o *Options) { o.RowBytes = []int{256, 10} },
		"gpu-bench: row (0 bytes) must be a multiple of 4 from 4 to 1048572":        func(o *Options) { o.RowBytes = []int{0} },
		"gpu-bench: row (1048576 bytes) must be a multiple of 4 from 4 to 1048572":  func(o *Options) { o.RowBytes = []int{1 << 20} },
		"gpu-bench: table (1024 bytes) must be 16777216 to 2^40 - 1":                func(o *Options) { o.TableBytes = 1024 },
		"gpu-bench: large table (1099511627776 bytes) must be 16777216 to 2^40 - 1": func(o *Options) { o.LargeTableBytes = 1 << 40 },
		"gpu-bench: batch (-1) must be 1 to 16777216":                               func(o *Options) { o.Batch = -1 },
		"gpu-bench: host threads (0) must be 1 to 1024":                             func(o *Options) { o.HostThreads = []int{0} },
		"gpu-bench: entries (-2) must be 1 to 2147483648\ngpu-bench: runs (-3) must be 1 to 10000": func(o *Options) {
			o.Entries, o.Runs = -2, -3
		},
	} {
		o := o
		change(&o)
		if err := o.Validate(); err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}

// TestScatter_Permutes: every number comes once, and neighbours do not stay neighbours.
func TestScatter_Permutes(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{1, 2, 3, 7, 64, 1000, 65537} {
		seen := make([]bool, n)
		near := 0
		for x := range n {
			y := scatter(x, n)
			if y < 0 || y >= n || seen[y] {
				t.Fatalf("scatter(%d, %d) = %d, which came before or is out of range", x, n, y)
			}
			seen[y] = true
			if x > 0 && max(y-scatter(x-1, n), scatter(x-1, n)-y) <= n/100 {
				near++
			}
		}
		if n >= 1000 && int64(near) > n/20 {
			t.Errorf("n = %d: %d neighbours lie within 1 %% of each other", n, near)
		}
	}
}

// TestPowerLawRows_Tail: each octave of ranks gets as many draws as the others, and its rows lie anywhere.
func TestPowerLawRows_Tail(t *testing.T) {
	t.Parallel()
	const from, to, n = 1 << 10, 1 << 16, 60_000
	rank := map[int64]int64{}
	for r := range int64(to - from) {
		rank[from+scatter(r, to-from)] = from + r
	}
	var octaves [6]int
	low := 0
	for _, row := range powerLawRows(n, from, to, 1) {
		r, ok := rank[row]
		if !ok {
			t.Fatalf("row %d is out of range", row)
		}
		octaves[int(math.Log2(float64(r)))-10]++
		if row < (from+to)/2 {
			low++
		}
	}
	for i, k := range octaves {
		if math.Abs(float64(k)-n/6) > n/60 {
			t.Errorf("octave %d: %d of %d draws, want a sixth", i, k, n)
		}
	}
	if math.Abs(float64(low)-n/2) > n/20 {
		t.Errorf("%d of %d rows lie in the lower half", low, n)
	}
}

func TestSectors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		addr uintptr
		n    int
		want int64
	}{{0, 0, 0}, {0, 1, 32}, {0, 32, 32}, {0, 33, 64}, {31, 1, 32}, {31, 2, 64}, {4, 28, 32}, {4, 29, 64}, {20, 450, 480}, {20, 493, 544}} {
		if got := sectors(c.addr, c.n); got != c.want {
			t.Errorf("%d bytes at %d touch %d bytes of sectors, want %d", c.n, c.addr, got, c.want)
		}
	}
}

func TestPattern_Fill(t *testing.T) {
	t.Parallel()
	p := sparse()
	ones := 0
	for _, x := range unsafe.Slice((*float32)(unsafe.Pointer(&p[0])), len(p)/4) {
		switch x {
		case 1:
			ones++
		case 0:
		default:
			t.Fatalf("element %g must be 0 or 1", x)
		}
	}
	if share := float64(ones) / float64(len(p)/4); math.Abs(share-density) > 0.001 {
		t.Errorf("density %.4f, want %.2f", share, density)
	}
	table := make([]byte, len(p)+1000)
	p.fill(table)
	if !slices.Equal(table[:len(p)], p) || !slices.Equal(table[len(p):], p[:1000]) {
		t.Error("the table does not repeat the pattern")
	}
}

func TestHostMemory(t *testing.T) {
	t.Parallel()
	got, err := available("MemTotal:       24684092 kB\nMemFree:        24242460 kB\nMemAvailable:   24312868 kB\n")
	if err != nil || got != 24312868<<10 {
		t.Errorf("%d, %v", got, err)
	}
	for text, want := range map[string]string{
		"MemFree: 1 kB\n": "/proc/meminfo: no MemAvailable in kB",
		"MemAvailable: 99999999999999999999999 kB\n": "/proc/meminfo: MemAvailable: strconv",
	} {
		if _, err := available(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if got := groupLeft("max\n", "5\n"); got != math.MaxInt64 {
		t.Errorf("a group without a limit leaves %d", got)
	}
	if got := groupLeft("1000\n", "400\n"); got != 600 {
		t.Errorf("1000 of which 400 are used leave %d", got)
	}
}

func TestModuleVersion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (x)\nGCC version:  gcc version 13.3.0\n": "580.159.04",
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023\n":                                   "535.54.03",
		"nothing": "",
	} {
		if got := moduleVersion(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

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
		{Result{Case: "gather-hits", RowBytes: 400, Unit: "GB/s", Value: 60, BaselineValue: 100}, 0.6, 0.55, RatioAtLeast, true},
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
		{Result{Case: "memory", Codec: oneBatch, Unit: "MiB", Value: 35, BaselineValue: 70}, 2, 70, ValueAtMost, true},
		{Result{Case: "link", Unit: "GB/s", Value: 55}, 0, 0, "", false},
	} {
		x := c.x
		x.setGoal()
		x.complete()
		if math.Abs(x.Ratio-c.ratio) > 1e-9 || x.Goal != c.goal || x.GoalOf != c.of || x.Reached != c.reached {
			t.Errorf("%s of %d B: ratio %g, goal %g %q, reached %v; want %g, %g %q, %v", x.Case, x.RowBytes, x.Ratio, x.Goal, x.GoalOf, x.Reached, c.ratio, c.goal, c.of, c.reached)
		}
	}
}

func TestReadReport_BadInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const good = `{"device":"d","driver":"v","commit":"c","results":[{"case":"lookup","row_bytes":8,"value":1}]}`
	for name, c := range map[string]struct{ text, want string }{
		"cut":      {good[:60], "must hold one complete JSON object: truncated"},
		"empty":    {"", "must hold one complete JSON object: truncated"},
		"list":     {"[]", "must hold one JSON object as gpu-bench --json prints it: json: cannot unmarshal array into Go value of type gpu.Report"},
		"unknown":  {`{"devices":1}`, `must hold one JSON object as gpu-bench --json prints it: json: unknown field "devices"`},
		"more":     {good + good, "must hold one JSON object: more follows it"},
		"none":     {`{"device":"d"}`, "results (none) must be at least one"},
		"case":     {strings.Replace(good, "lookup", "look", 1), `result 0: case ("look") must be a case of gpu-bench`},
		"row":      {strings.Replace(good, `:8`, `:-8`, 1), "result 0: row_bytes (-8) must not be negative"},
		"value":    {strings.Replace(good, `"value":1`, `"value":-1`, 1), "result 0: value (-1) and baseline_value (0) must not be negative, nor larger than a float32"},
		"baseline": {strings.Replace(good, `"value":1`, `"baseline_value":1e300`, 1), "result 0: value (0) and baseline_value (1e+300) must not be negative, nor larger than a float32"},
		"goal":     {strings.Replace(good, `"value":1`, `"goal_of":"x"`, 1), `result 0: goal_of ("x") must be "ratio at least", "value at least" or "value at most"`},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadReport(path); err == nil || err.Error() != "report "+path+": "+c.want {
			t.Errorf("%s: got %v\nwant %s", name, err, c.want)
		}
	}
	if _, err := ReadReport(filepath.Join(dir, "absent")); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("a file that is not there: %v", err)
	}
	path := filepath.Join(dir, "good")
	if err := os.WriteFile(path, []byte(good), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := ReadReport(path)
	if err != nil || len(r.Results) != 1 || r.Results[0].Case != "lookup" || r.Results[0].Value != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}
