package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/sim"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// hostile is a name that harms a page that does not escape it.
const hostile = `"'><script>window.harmed=1</script><img src=x onerror=window.harmed=1>&{{.}}</style>` + "\x01"

// exampleCell has invented figures.
func exampleCell(policy, budget, codec string, seed uint64) Cell {
	share := map[string]float64{"1%": 0.01, "5%": 0.05, "20%": 0.2}[budget]
	var r experiment.Result
	r.Device.Kind, r.Device.Name, r.Device.Count = "host", "reference", 1
	r.Table.Name, r.Table.Rows, r.Table.RowBytes, r.Table.DType = "generated", 500000, 512, "float32"
	r.Workload.Kind, r.Workload.Batches, r.Workload.IDs, r.Workload.TrainingBatches = "neighbour sampling", 200, 2000000, 50
	c := &r.Cache
	c.Policy, c.Codec, c.CompressionRatio = policy, codec, map[string]float64{"none": 1, "ibp8": 1.28}[codec]
	c.BudgetBytes = int64(256e6 * share)
	c.MetadataBytes = c.BudgetBytes / 40
	c.RowsCached = int64(float64(c.BudgetBytes) * c.CompressionRatio / 520)
	skill := map[string]float64{"freq": 1.0, "degree": 0.86, "lru": 0.7}[policy]
	hits := func(ratio float64) float64 { return skill * math.Pow(share*ratio, 0.35) * (1 + 0.004*float64(seed)) }
	q, u := &r.Results, &r.Uncompressed
	q.Lookups, q.HitRatio, u.HitRatio = 2000000, hits(c.CompressionRatio), hits(1)
	q.Hits = int64(q.HitRatio * 2e6)
	q.Misses = q.Lookups - q.Hits
	q.HostBytesMoved, u.HostBytesMoved = int64(float64(q.Misses)*512/c.CompressionRatio), int64((1-u.HitRatio)*2e6*512)
	q.BatchLatency = experiment.Latency{P50: 1.9 / c.CompressionRatio, P95: 2.8, P99: 6.4}
	q.LookupsPerSecond, q.OutputGBPerSecond = 5.1e6, 2.6
	r.MissesByReason = map[string]int64{"cold": q.Misses / 2, "rejected": q.Misses/2 - 5000, "evicted": 5000, "invalidated": 0, "oversize": 0}
	cell := Cell{Cell: experiment.Cell{Seed: seed, Result: &r, Config: map[string]any{
		"policy": policy, "budget": budget, "codec": codec, "host_tier": "inplace", "seed": seed, "batch_size": 256, "fanouts": []int{15, 10},
	}}}
	return cell
}

// examplePlan has invented figures, of decode and prefill, and of a machine on which the table is cached.
func examplePlan() *experiment.PlanResult {
	var p experiment.PlanResult
	p.Table.Name, p.Table.Rows, p.Table.RowBytes, p.Target, p.Devices, p.GPUMemory = "generated", 96e6, 264, 0.45, 1, 5<<30
	p.Workload.Kind, p.Workload.Batches, p.Workload.Lookups, p.SampledRows = "ngram", 362, 2964576, 16384
	p.Verdict = "1.1 GB gives 45 % (44 to 46 %); more than 9 GB buys nothing"
	p.Answers = []experiment.Answer{{TargetHit: 0.45, Reached: true, Policy: "static-freq", PlanPoint: experiment.PlanPoint{BudgetBytes: 11e8, Codec: "ibp4", HitRatio: 0.45, HitLow: 0.44, HitHigh: 0.46}}}
	p.Curve = []experiment.PlanPoint{{BudgetBytes: 1e8, Codec: "ibp4", HitRatio: 0.2}, p.Answers[0].PlanPoint, {BudgetBytes: 9e9, Codec: "none", HitRatio: 0.81}}
	p.Batch = &experiment.BatchTimes{Device: "a GPU", Phase: "decode", Rows: 8189, UncachedMS: 0.241, UnsortedMS: 0.244, ResidentMS: 0.012}
	p.Phases = []experiment.BatchTimes{*p.Batch, {Device: "a GPU", Phase: "prefill", Rows: 247048, UncachedMS: 5.35, UnsortedMS: 7.23, ResidentMS: 0.059}}
	decode := 0.145
	p.Plans = []experiment.Plan{{
		Policy: "static-freq", Codec: "ibp4", ChosenCodec: "ibp4", CompressionRatio: 1.109, TargetHit: 0.45, HitLow: 0.44, HitHigh: 0.46, Reached: true, Rows: 4395776, BudgetBytes: 11e8, TotalBytes: 12e8, PredictedHitRatio: 0.45,
		PredictedRowNS: 5.3, PredictedBatchMS: &decode, PhaseMS: []float64{decode, 1.005}, GPU: &experiment.GPUPlan{Fits: true, HitRatio: 0.546},
		Tiers: []experiment.PlannedTiers{
			{HostMemory: 16 << 30, Phase: "decode", HostRows: 57405874, SlabRatio: 0.4526, HostRatio: 0.3646, ColdRatio: 0.1829, PagesRead: 1496, BytesRead: 6.1e6, SlabBytesRead: 1.7e6, HostBytesRead: 1.3e6, ResidentMS: 0.099, ColdMS: 18.1, BatchMS: 18.2, PrefetchedMS: 18.1},
			{HostMemory: 16 << 30, Phase: "prefill", HostRows: 57405874, SlabRatio: 0.4538, HostRatio: 0.3459, ColdRatio: 0.2002, PagesRead: 42494, BytesRead: 174e6, ResidentMS: 0.716, ColdMS: 512, BatchMS: 512.8, PrefetchedMS: 512},
		},
	}}
	times := func(decode, prefill float64) []experiment.PlacedTime {
		return []experiment.PlacedTime{{Phase: "decode", Rows: 8189, MS: decode}, {Phase: "prefill", Rows: 247048, MS: prefill}}
	}
	p.Placements = []experiment.Placement{{
		GPUMemory: 5 << 30, HostMemory: 64 << 30, Choice: experiment.CachedLayout, Why: "least time: decode 0.122 ms, prefill 0.869 ms",
		Layouts: []experiment.PlacedLayout{
			{Layout: experiment.ResidentLayout, Codec: "ibp4", GPUBytes: 238e8, HostBytes: 3e9, DeviceRatio: 0.8, HostRatio: 0.2, Times: times(0.04, 0.755), Why: "takes 24 GB of each device, of which there are 5.4 GB"},
			{Layout: experiment.CachedLayout, Policy: "static-freq", Codec: "ibp4", Fits: true, GPUBytes: 5 << 30, HostBytes: 253e8, DeviceRatio: 0.546, HostRatio: 0.454, Times: times(0.122, 0.869), Why: "54.60 % hit"},
			{Layout: experiment.TiersLayout, Policy: "static-freq", Codec: "ibp4", Fits: true, GPUBytes: 5 << 30, HostBytes: 64 << 30, PageBytes: 245e8, DeviceRatio: 0.5378, HostRatio: 0.4622, Why: "pages read for a batch: decode 0, prefill 0"},
		},
	}}
	return &p
}

// TestPlan_Text: a plan of two phases has their times side by side, and says which layout the machine is to have.
func TestPlan_Text(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := Plan(&b, examplePlan()); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"in small   16,384 of the rows", "1.1 GB gives 45 % (44 to 46 %); more than 9 GB buys nothing", "████████████████████████████████████████ ", "ms/decode", "ms/prefill", "1.005", "cached: least time: decode 0.122 ms, prefill 0.869 ms", "ms/prefill of 247,048", "takes 24 GB of each device", "54.60 % hit",
		"ms/decode: predicted for 8,189 rows on an a GPU;", "without a cache 0.244, 0.241 in the order of addresses; whole table on the GPU 0.012", "pages/batch", "42,494",
	} {
		if !strings.Contains(b.String(), text) {
			t.Errorf("no %q in\n%s", text, &b)
		}
	}
	answers, curve, _ := strings.Cut(b.String(), "hit rate by GPU memory")
	curve, _, _ = strings.Cut(curve, "\n\n") // the tables of tiers and layouts are wider
	for line := range strings.Lines(answers + curve) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// TestHTML_Plan has the chosen layout, and marks those that do not fit.
func TestHTML_Plan(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b, err := json.Marshal(examplePlan())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "p.json"), b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	text := page(t, dir, HTMLOptions{})
	for _, want := range []string{"Plans", "cached: least time: decode 0.122 ms, prefill 0.869 ms", "54.60 % hit", "p.json: tiers", "slab/batch", "1.7 MB", "1.3 MB", "ms/decode of 8,189"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the page", want)
		}
	}
}

// exampleFolder has a file of every kind, some with harmful names, and some that are no results.
func exampleFolder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	asJSON := func(v any) []byte {
		t.Helper()
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return append(b, '\n')
	}
	var lines []byte
	for seed := range uint64(2) {
		for _, policy := range []string{"freq", "degree", "lru"} {
			for _, budget := range []string{"1%", "5%", "20%"} {
				for _, codec := range []string{"none", "ibp8"} {
					lines = append(lines, asJSON(exampleCell(policy, budget, codec, seed+1))...)
				}
			}
		}
	}
	write("cells.jsonl", append(lines, `{"config":{"policy":"fr`...)) // torn
	write("cells.csv", []byte("policy\n"))
	write("sweep.json", []byte("{}"))
	type m = map[string]any
	var simulated []m
	for i, policy := range []string{"lru", "fifo", "lfu", "arc", "2q", "s3fifo", "sieve", "gdsf", "belady", "glru-2q", hostile} {
		for _, size := range []float64{1e6, 3e6, 1e7, 3e7, 1e8} {
			ratio := (0.9 - 0.03*float64(i)) * math.Pow(size/1e6, -0.18)
			simulated = append(simulated, m{
				"policy": policy, "cache_objects": int(size / 512), "cache_bytes": int(size), "requests": 4000000, "misses": int(4e6 * ratio),
				"miss_ratio": ratio, "byte_miss_ratio": ratio * 1.04, "requests_per_second": 2.5e7,
			})
		}
	}
	write("simulate.json", asJSON(simulated))
	var unit []m
	for i, policy := range []string{"lru", "sieve", "belady"} {
		unit = append(unit, m{"policy": policy, "cache_objects": 1000, "cache_bytes": 1000, "requests": 9000, "misses": 4500, "miss_ratio": 0.5 - 0.1*float64(i), "byte_miss_ratio": 0.5 - 0.1*float64(i), "requests_per_second": 3e7})
	}
	write("simulate-unit.json", asJSON(unit))
	for _, method := range []string{"exact", "SHARDS 1 %"} {
		var points []m
		for i := range 1000 {
			size := 1e5 * math.Pow(1000, float64(i)/999)
			ratio := 0.95 / (1 + math.Pow(size/8e6, 0.8))
			if method != "exact" {
				ratio += 0.01 * math.Sin(float64(i)/40)
			}
			points = append(points, m{"cache_bytes": int(size), "miss_ratio": ratio})
		}
		curve := m{"trace": "oltp", "method": method, "points": points}
		if method != "exact" {
			curve["error"] = 0.0082
		} else {
			curve["error"] = 0
		}
		write(fmt.Sprintf("mrc-%d.json", len(method)), asJSON(curve))
	}
	write("codecs.json", asJSON([]m{
		{"codec": "none", "rows": 2708, "row_bytes": 5732, "raw_rows": 2708, "metadata_bytes": 0, "ratio": 1, "saving_percent": 0, "encode_gb_per_second": 9.1, "decode_gb_per_second": 9.4, "round_trip": "ok"},
		{"codec": "ibp4", "rows": 2708, "row_bytes": 5732, "raw_rows": 0, "metadata_bytes": 11464, "ratio": 22.7, "saving_percent": 95.6, "encode_gb_per_second": 1.31, "decode_gb_per_second": 2.2, "round_trip": "ok"},
		{"codec": hostile, "rows": 2708, "row_bytes": 5732, "raw_rows": 12, "metadata_bytes": 5732, "ratio": 14.2, "saving_percent": 92.9, "encode_gb_per_second": 1.6, "decode_gb_per_second": 2.9, "round_trip": "row 7 differs"},
	}))
	plan := examplePlan()
	plan.Plans[0].Policy, plan.Placements[0].Layouts[1].Why = hostile, hostile
	write("plan.json", asJSON(plan))
	run := exampleCell("freq", "5%", "ibp8", 3).Result
	run.Table.Name = hostile
	write("run.json", asJSON(run))
	write("notes.txt", []byte("of mine"))
	write("other.json", []byte(`{"a":1}`))
	write("truncated.json", []byte(`[{"policy":"lru","miss_ratio":`))
	write("wrong.json", []byte(`[{"policy":"lru","miss_ratio":1.5}]`))
	write("empty.json", nil)
	write(`<img src=x onerror=harm()>.json`, []byte("no"))
	if err := os.Mkdir(filepath.Join(dir, "older"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func page(t testing.TB, dir string, o HTMLOptions) string {
	t.Helper()
	r, err := ReadResults(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := HTML(&b, r, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// withoutScripts is the page without the programs in it, which are the same in all pages.
func withoutScripts(page string) string {
	for _, s := range scripts() {
		page = strings.Replace(page, string(s), "", 1)
	}
	return page
}

func TestReadResults_Kinds(t *testing.T) {
	t.Parallel()
	r, err := ReadResults(exampleFolder(t))
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for _, f := range r.Files {
		fmt.Fprintf(&got, "%s: %s\n", f.Name, f.Holds)
	}
	for _, p := range r.Problems {
		fmt.Fprintf(&got, "not %s: %s\n", p.Name, p.Reason)
	}
	const want = `cells.jsonl: sweep, 36 cells
codecs.json: 3 codecs
mrc-10.json: miss-ratio curve
mrc-5.json: miss-ratio curve
plan.json: plan
run.json: run
simulate-unit.json: simulation, 3 points
simulate.json: simulation, 55 points
not <img src=x onerror=harm()>.json: must hold one JSON value: invalid character 'o' in literal null (expecting 'u')
not cells.jsonl: line 37: is cut short, as by an interrupt: must hold one JSON value: unexpected end of JSON input
not empty.json: must hold a result: empty
not notes.txt: must be a .json or .jsonl file
not other.json: must be what run, sweep, simulate, compress or plan print with --json
not truncated.json: must hold one JSON value: unexpected end of JSON input
not wrong.json: element 0: miss_ratio (1.5) must be 0 to 1
`
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &got, want)
	}
}

func TestReadResults_BadValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"a.json", `[]`, "must hold a result: empty list"},
		{"a.json", `[1]`, "element 0: must hold one JSON value: json: cannot unmarshal number into Go value of type map[string]json.RawMessage"},
		{"a.json", `7`, "must hold one JSON value: json: cannot unmarshal number into Go value of type map[string]json.RawMessage"},
		{"a.json", `{"a":1} {}`, "must hold one JSON value: invalid character '{' after top-level value"},
		{"a.json", `{"plans":[],"target_hit_ratio":0.5}`, "plans (none) must be at least one"},
		{"a.json", `{"plans":[{"compression_ratio":1,"predicted_hit_ratio":2}],"target_hit_ratio":0.5}`, "plan 0: predicted_hit_ratio (2) must be 0 to 1"},
		{"a.json", `{"plans":[{}],"placements":[{"layouts":[{"layout":"tiers","cold_ratio":-1}]}],"target_hit_ratio":0.5}`, "placement 0, tiers: cold_ratio (-1) must be 0 to 1"},
		{"a.json", `{"points":[]}`, "points (none) must be at least one"},
		{"a.json", `{"points":[{"cache_bytes":-1,"miss_ratio":0}]}`, "point 0: cache_bytes (-1) must be 0 to 3.4e+38"},
		{"a.json", `{"points":[{"cache_bytes":-2,"miss_ratio":2}]}`, "point 0: cache_bytes (-2) must be 0 to 3.4e+38; miss_ratio (2) must be 0 to 1"},
		{"a.json", `[{"points":{}}]`, "element 0: json: cannot unmarshal object into Go struct field Curve.points of type []sim.CurvePoint"},
		{"a.json", `[{"policy":"lru","miss_ratio":1,"requests_per_second":-3}]`, "element 0: requests_per_second (-3) must be 0 to 3.4e+38"},
		{"a.json", `[{"codec":"ibp4","round_trip":"ok","ratio":-1}]`, "element 0: ratio (-1) must be 0 to 3.4e+38"},
		{"a.json", `{"results":{"hit_ratio":-0.5,"lookups":1},"cache":{},"workload":{},"misses_by_reason":{"cold":-1}}`, "hit_ratio (-0.5) must be 0 to 1; misses_by_reason.cold (-1) must be 0 to 3.4e+38"},
		{"a.json", `{"results":{},"cache":{},"workload":{}}`, "must be a JSON object: a sweep's cell, or what run --json prints, with at least one lookup"},
		{"a.json", `[{"policy":"lru","miss_ratio":1,"misses":0.5}]`, "element 0: json: cannot unmarshal number 0.5 into Go struct field Result.misses of type int64"},
		{"a.jsonl", ``, "must hold a result: empty"},
		{"a.jsonl", "\n" + `{"a":1}`, "line 2: must be what run, sweep, simulate, compress or plan print with --json"},
		{"a.jsonl", `{"config":7,"result":{}}`, "line 1: json: cannot unmarshal number into Go struct field fields.config of type map[string]interface {}"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, c.name), []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("report: no result in the folder: %s: 1 read in vain, first %s: %s", dir, c.name, c.want)
		if _, err := ReadResults(dir); !errors.Is(err, ErrNoResults) || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", c.text, err, want)
		}
	}
}

func TestReadResults_Folders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := ReadResults(dir); !errors.Is(err, ErrNoResults) || err.Error() != "report: no result in the folder: "+dir+": empty" {
		t.Errorf("empty folder: %v", err)
	}
	if _, err := ReadResults(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".hidden.json"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mine.html"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadResults(dir); !errors.Is(err, ErrNoResults) || !strings.HasSuffix(err.Error(), ": empty") {
		t.Errorf("hidden files and pages: %v", err)
	}
}

// TestHTML_Deterministic: the same results give the same page, without a date.
func TestHTML_Deterministic(t *testing.T) {
	t.Parallel()
	dir := exampleFolder(t)
	first := page(t, dir, HTMLOptions{})
	if page(t, dir, HTMLOptions{}) != first {
		t.Error("the page differs")
	}
}

// TestHTML_Escapes: a name of the results is text wherever it stands.
func TestHTML_Escapes(t *testing.T) {
	t.Parallel()
	text := withoutScripts(page(t, exampleFolder(t), HTMLOptions{Title: hostile, Date: hostile}))
	for _, bad := range []string{"<script>window", "<img", `"'>`, ">-0 ", `"NaN`, ">NaN", " NaN", "Inf", "ZgotmplZ", "%!"} {
		if i := strings.Index(text, bad); i >= 0 {
			t.Errorf("the page has %q: …%s…", bad, text[max(0, i-80):i+80])
		}
	}
	if n := strings.Count(text, "&lt;script&gt;window.harmed=1&lt;/script&gt;"); n < 8 {
		t.Errorf("the name stands in the page %d times", n)
	}
	if !strings.Contains(text, "SHARDS 1 % (error 0.82 points)") {
		t.Error("the error of a sampled curve is not stated")
	}
	if strings.Count(text, "<script>") != len(scripts()) || strings.Count(text, "http") != strings.Count(text, "http-equiv") {
		t.Error("the page has another script than its own, or an address")
	}
}

// TestHTML_Figures: medians, ranges and savings are those of the cells.
func TestHTML_Figures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var lines []byte
	for seed, hit := range []float64{0.5, 0.25, 0.75} {
		c := experiment.Cell{Config: map[string]any{"policy": "freq", "seed": seed, "data_seed": seed, "budget": "5%"}, Seed: uint64(seed), Result: &experiment.Result{}}
		c.Result.Cache.Policy, c.Result.Cache.Codec, c.Result.Cache.BudgetBytes = "freq", "ibp4", 64e6
		q, u := &c.Result.Results, &c.Result.Uncompressed
		q.Lookups, q.HitRatio, u.HitRatio, q.HostBytesMoved, u.HostBytesMoved = 1000, hit, hit/2, 250e6, 1e9
		c.Result.MissesByReason = map[string]int64{"cold": 100, "rejected": 150, "unheard-of": 50}
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(append(lines, b...), '\n')
	}
	if err := os.WriteFile(filepath.Join(dir, "cells.jsonl"), lines, 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := ReadResults(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for _, s := range sections(r) {
		if len(s.Tables)+len(s.Charts) == 0 {
			fmt.Fprintf(&got, "%s\n", s.Missing)
			continue
		}
		for _, table := range s.Tables {
			for _, row := range table.Rows {
				for i, e := range row {
					if s.ID == "summary" || i > 0 {
						fmt.Fprintf(&got, "%s %s: %s", s.ID, table.Header[i], e.Text)
						if e.Range != "" {
							fmt.Fprintf(&got, " (%s)", e.Range)
						}
						got.WriteString("\n")
					}
				}
			}
		}
		for _, c := range s.Charts {
			v := c.View()
			for _, row := range v.Rows {
				fmt.Fprintf(&got, "%s %s: %s\n", c.id, row.Cells[0], strings.Join(row.Cells[1:], " "))
			}
		}
	}
	path := filepath.Join("testdata", "html.golden")
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("%s (go test -update rewrites it):\n got\n%s\nwant\n%s", path, &got, want)
	}
}

// TestGrouping_Names: all groups have names of their own.
func TestGrouping_Names(t *testing.T) {
	t.Parallel()
	var cells []Cell
	for _, policy := range []string{"a", "b", "c"} {
		for _, budget := range []string{"1%", "5%", "20%"} {
			for _, codec := range []string{"none", "ibp8"} {
				for _, tier := range []string{"inplace", "packed"} {
					config := map[string]any{"policy": policy, "budget": budget, "codec": codec, "host_tier": tier}
					cells = append(cells, Cell{Cell: experiment.Cell{Config: config, Result: &experiment.Result{}}})
				}
			}
		}
	}
	for n := 1; n <= len(cells); n++ {
		g := newGrouping(cells[:n])
		if len(g.groups) != n {
			t.Fatalf("%d cells are %d groups", n, len(g.groups))
		}
		names := map[string]bool{}
		for i := range g.groups {
			names[g.name(&g.groups[i])] = true
		}
		if len(names) != n {
			t.Errorf("%d cells: names %v", n, names)
		}
	}
}

// TestCurveCharts_Split: no chart has more lines than there are looks, none is lost, and all have names of their own.
func TestCurveCharts_Split(t *testing.T) {
	t.Parallel()
	points := []sim.CurvePoint{{CacheBytes: 1, MissRatio: 0.5}, {CacheBytes: 2, MissRatio: 0.25}}
	for n := 1; n <= 3*looks; n++ {
		var curves []curve
		for i := range n {
			curves = append(curves, curve{id: "x", chart: "oltp", name: []string{"lru", "sieve"}[i%2], file: fmt.Sprint(i), points: points})
		}
		ids, names := map[string]bool{}, map[string]bool{}
		charts := curveCharts(curves)
		for _, c := range charts {
			ids[c.id] = true
			for i, l := range c.lines {
				names[c.id+l.name] = true
				if l.look != i || i >= looks {
					t.Errorf("%d curves: line %d looks as %d", n, i, l.look)
				}
			}
		}
		if len(names) != n || len(charts) != (n+looks-1)/looks || len(ids) != len(charts) {
			t.Errorf("%d curves: names %v, charts %v", n, names, ids)
		}
	}
}

func TestThin(t *testing.T) {
	t.Parallel()
	var points []xy
	for i := range 10000 {
		points = append(points, xy{X: float64(i + 1), Y: 0.5})
	}
	for _, a := range []axis{{}, {log: true}} {
		kept := a.thin(points, 100)
		if len(kept) > 101 || len(kept) < 50 || kept[0] != points[0] || kept[len(kept)-1] != points[9999] {
			t.Errorf("log %v: %d points from %v to %v", a.log, len(kept), kept[0], kept[len(kept)-1])
		}
		if kept := a.thin(points[:50], 100); len(kept) != 50 {
			t.Errorf("50 points become %d", len(kept))
		}
	}
}

// TestScripts: Vega and its companions are those that npm publishes in these versions; make check-vega compares them with the registry's.
func TestScripts(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"vega.min.js":         "8f6a3587cf8d4f42c7e08120e3eb05d067e746d554e39d2dcf52acc0bd5ba28f",
		"vega-lite.min.js":    "83e215e84e308ee8688fa6503ba0f1cf8a3c05c0d61df2841a0b92bf86809e00",
		"vega-interpreter.js": "c0bdb735a63f9276f136e8d90d7fdf5d8e9df8031eb069048fc9975c876fd7f9",
		"LICENSE":             "63727832aaf62004a2b249c933e327f3c90caf49e41a72f4bf436edf632cbda8",
	} {
		if have := fmt.Sprintf("%x", sha256.Sum256([]byte(part("html/vega/"+name)))); have != want {
			t.Errorf("%s has SHA-256 %s, want %s", name, have, want)
		}
	}
	s := scripts()
	if lite := string(s[1]); !strings.HasPrefix(string(s[0]), "/*!\nVega") || strings.Contains(lite, "sourceMappingURL") || !strings.Contains(string(s[2]), "DisallowedObjectProperties } = vega;") || strings.Contains(string(s[2]), "export") {
		t.Error("the scripts of the page are not those of the files")
	}
}

// TestReadResults_Cells: the same cells, however a sweep printed them.
func TestReadResults_Cells(t *testing.T) {
	t.Parallel()
	one, err := json.Marshal(exampleCell("freq", "5%", "ibp8", 1))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"a.jsonl": string(one) + "\n\n" + string(one) + "\n",
		"a.json":  "[" + string(one) + "," + string(one) + "]",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := ReadResults(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Problems) != 0 || len(r.Cells) != 2 || r.Cells[1].File != name || r.Cells[1].Config["budget"] != "5%" || r.Files[0].Holds != "sweep, 2 cells" {
			t.Errorf("%s: %d cells, files %v, problems %v", name, len(r.Cells), r.Files, r.Problems)
		}
	}
}
