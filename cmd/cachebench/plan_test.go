package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/realdata"
)

func TestPlan_Output(t *testing.T) {
	t.Parallel()
	flags := slices.Concat([]string{"plan", "--device-memory", "80GiB", "--check", "--policy", "freq,static-freq", "--codec", "none,ibp4"}, generated)
	curve := regexp.MustCompile("(?m)^ *[0-9.]+ .?B  █.*\n")
	golden(t, "plan.golden", mask(curve.ReplaceAllString(succeed(t, flags...), "")))
	text := succeed(t, append(slices.Clone(flags), "--target-hit", "60%,80%")...)
	first, rest, _ := strings.Cut(text, "\n")
	if strings.Count(first, " gives ") != 2 || !strings.Contains(first, "invented") || !strings.Contains(rest, "█") {
		t.Errorf("%s", text)
	}
	res := decode[experiment.PlanResult](t, succeed(t, append(flags, "--json", "--target-hit", "60%")...))
	if len(res.Plans) != 4 || res.Target != 0.6 || res.GPUMemory != 80<<30 || len(res.Answers) != 1 || res.Verdict == "" {
		t.Fatalf("%+v", res)
	}
	if a := res.Answers[0]; a.TargetHit != 0.6 || !a.Reached || a.BudgetBytes != res.Plans[0].BudgetBytes || a.Codec != "none" || a.HitLow > a.HitRatio || a.HitHigh < a.HitRatio || a.HitRatio < 0.6 {
		t.Errorf("%+v", a)
	}
	for _, p := range res.Plans {
		if p.MeasuredHitRatio == nil || *p.MeasuredHitRatio != p.PredictedHitRatio || p.GPU == nil || !p.GPU.Fits || p.GPU.BudgetBytes <= 0 || p.GPU.HitRatio != 1 || p.MetadataBytes <= 0 || p.BudgetBytes < p.MetadataBytes+p.PayloadBytes {
			t.Errorf("%+v", p)
		}
		if r := p.Resident; !r.Fits || r.Faster != "resident" || r.OverflowRatio > 0.3 || r.BudgetBytes > r.Within || r.PredictedRowNS <= 0 {
			t.Errorf("resident: %+v", r)
		}
	}
}

// The documented question: rows of a file that are looked up as another file says.
func TestPlan_Asked(t *testing.T) {
	t.Parallel()
	features := write(t, "f.npy", npyOf(t, dtype.Float32, smooth(16*2000), 2000, 16))
	var ids []int
	for i := range 60_000 {
		ids = append(ids, i*i%1999%(1+i%2000))
	}
	train := write(t, "train.txt", idLines(ids))
	var res struct {
		Verdict string
		Answers []struct {
			TargetHit   float64 `json:"target_hit"`
			BudgetBytes int64   `json:"budget_bytes"`
			Codec       string
			HitLow      float64 `json:"hit_low"`
			HitHigh     float64 `json:"hit_high"`
		}
	}
	if err := json.Unmarshal([]byte(succeed(t, "plan", "--features", features, "--ids", train, "--target-hit", "60%", "--json")), &res); err != nil {
		t.Fatal(err)
	}
	if a := res.Answers; len(a) != 1 || a[0].TargetHit != 0.6 || a[0].BudgetBytes <= 0 || a[0].Codec == "" || !(a[0].HitLow > 0.5) || !(a[0].HitHigh < 0.75) || strings.Contains(res.Verdict, "invented") {
		t.Errorf("%+v", res)
	}
	both := succeed(t, "plan", "--features", features+","+features, "--ids", train+","+train, "--target-hit", "60%")
	if !strings.Contains(both, "2 tables: 4,000 rows") {
		t.Error(both)
	}
	at := decode[experiment.PlanResult](t, succeed(t, "plan", "--features", features, "--ids", train, "--gpu-memory", strconv.FormatInt(res.Answers[0].BudgetBytes, 10), "--json"))
	if a := at.Answers[0]; a.BudgetBytes != res.Answers[0].BudgetBytes || a.HitLow != res.Answers[0].HitLow {
		t.Errorf("%+v of %+v", a, res)
	}
	refuse(t, "--gpu-memory and --target-hit contradict each other: one follows from the other", "plan", "--gpu-memory", "5%", "--target-hit", "50%")
}

// A resident table that plan says fits is served from that budget, and one that does not fit leaves the comparison to the cache.
func TestPlan_Resident(t *testing.T) {
	t.Parallel()
	base := []string{"--features", realdata.Table(t, "reddit.npz"), "--device", "host", "--batches", "5"}
	plan := func(memory string, more ...string) *experiment.PlannedResident {
		res := decode[experiment.PlanResult](t, succeed(t, slices.Concat([]string{"plan", "--json", "--target-hit", "50%", "--policy", "static-freq", "--codec", "ibp4", "--device-memory", memory}, base, more)...))
		return res.Plans[0].Resident
	}
	r := plan("40MB")
	if !r.Fits || r.Faster != "resident" || r.TargetBytes != 208 || r.OverflowLookups != 0 {
		t.Errorf("%+v", r)
	}
	ran := run(t, slices.Concat([]string{"--resident", "auto", "--codec", "ibp4", "--gpu-memory", strconv.FormatInt(r.BudgetBytes, 10)}, base)...)
	if got := ran.Resident; got.TargetBytes != r.TargetBytes || got.BuddyBytes != r.BuddyBytes {
		t.Errorf("planned %+v, ran %+v", r, got)
	}
	refuse(t, "--gpu-memory ("+strconv.FormatInt(r.BudgetBytes-1, 10)+"): cache: budget too small: table "+realdata.Table(t, "reddit.npz")+":features, resident with at most 30 % of overflowing rows, needs slots of 208 B, "+
		"2372672 B of each device: with this table alone GPUMemory ("+strconv.FormatInt(r.BudgetBytes-1, 10)+" B) must be at least "+strconv.FormatInt(r.BudgetBytes, 10)+" B",
		slices.Concat([]string{"run", "--resident", "auto", "--codec", "ibp4", "--gpu-memory", strconv.FormatInt(r.BudgetBytes-1, 10)}, base)...)
	// Shorter slots fit less memory where more rows may be longer, and other devices' memory is read sooner than the host's.
	host := plan("36MB", "--max-overflow", "1")
	if !host.Fits || host.TargetBytes >= 208 || host.OverflowRatio <= 0.3 || host.OverflowLookups == 0 {
		t.Errorf("with --overflow 1: %+v", host)
	}
	two := []string{"--devices", "2", "--max-overflow", "1", "--buddy"}
	if host, peer := plan("34.9MB", append(two, "host")...), plan("34.9MB", append(two, "peer")...); host.OverflowLookups == 0 || !(peer.PredictedRowNS < host.PredictedRowNS) {
		t.Errorf("on host %+v, on peers %+v", host, peer)
	}
	refuse(t, "--max-overflow (2) must be 0 to 1\n--buddy peer needs at least 2 devices: --devices or --gpus", slices.Concat([]string{"plan", "--max-overflow", "2", "--buddy", "peer"}, base)...)
	if small := plan("36MB"); small.Fits || small.Faster != "cached" || small.BudgetBytes <= small.Within {
		t.Errorf("%+v", small)
	}
}

// TestPlan_PagesOnADevice: with the memory of a device, a table of pages is planned as a resident one of its rows, too.
func TestPlan_PagesOnADevice(t *testing.T) {
	t.Parallel()
	dir, _ := packedFeatures(t, 4000)
	res := decode[experiment.PlanResult](t, succeed(t, slices.Concat([]string{"plan", dir, "--json", "--target-hit", "50%", "--device-memory", "36MB", "--host-memory", "1MiB"}, generated[2:])...))
	r := res.Plans[0].Resident
	if r == nil || !r.Fits || r.TargetBytes < 16 || r.TargetBytes > 256 || len(res.Placements) != 1 || res.Placements[0].Layouts[0].Codec != res.Plans[0].ChosenCodec {
		t.Errorf("%+v %+v", r, res.Placements)
	}
}

// TestPlan_BudgetReachesTheTarget in a run of its own.
func TestPlan_BudgetReachesTheTarget(t *testing.T) {
	t.Parallel()
	res := decode[experiment.PlanResult](t, succeed(t, slices.Concat([]string{"plan", "--json", "--target-hit", "0.4", "--policy", "static-freq"}, small)...))
	p := res.Plans[0]
	r := run(t, slices.Concat([]string{"--policy", "static-freq", "--gpu-memory", strconv.FormatInt(p.BudgetBytes, 10)}, small)...)
	if r.Results.HitRatio != p.PredictedHitRatio || r.Results.HitRatio < 0.4 || r.Cache.RowsCached != p.Rows || r.Cache.MetadataBytes+r.Cache.PayloadBytes > p.BudgetBytes || r.Cache.PayloadBytes != p.PayloadBytes {
		t.Errorf("planned %+v\nran %+v", p, r)
	}
}

func TestPlan_Trace(t *testing.T) {
	t.Parallel()
	features := write(t, "f.npy", npyOf(t, dtype.Float32, smooth(8000), 1000, 8))
	var ids []int
	for i := range 40000 {
		ids = append(ids, i*i%977%(1+i%1000))
	}
	trace := write(t, "trace.ids", idLines(ids))
	base := []string{"plan", "--json", "--features", features, "--target-hit", "70%"}
	a, b := succeed(t, append(slices.Clone(base), "--trace", trace)...), succeed(t, append(slices.Clone(base), "--ids", trace)...)
	if res := decode[experiment.PlanResult](t, a); a != b || res.Workload.Kind != "ids" || res.Workload.Lookups != 10000 || res.Workload.TrainingLookups != 30000 {
		t.Errorf("%s, with --ids %s", a, b)
	}
}

func TestPlan_BadInput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flags, want string }{
		{"--target-hit 0%", "--target-hit (0 %) must be above 0 % and at most 100 %"},
		{"--target-hit 101%", "--target-hit (101 %) must be above 0 % and at most 100 %"},
		{"--target-hit NaN", "--target-hit (NaN %) must be above 0 % and at most 100 %"},
		{"--target-hit most", `--target-hit ("most") must be a hit rate such as 90% or 0.9`},
		{"--device-memory 0", `--device-memory ("0") must be a size: 80GiB, 80GB, bytes`},
		{"--device-memory large", `--device-memory ("large") must be a size: 80GiB, 80GB, bytes`},
		{"--policy mru,freq --codec zip", `unknown policy ("mru") must be one of freq, glru-2q, glru-arc, lru, static-degree, static-freq, static-optimal, static-pagerank, tinylfu` + "\n" + `codec: unknown codec ("zip") must be one of ` + strings.Join(registry.Usage(), ", ")},
		{"--trace a --ids b", "--ids and --trace contradict each other"},
		{"--trace missing", "--trace: trace: open missing: no such file or directory"},
		{"--sample-rate 2 --refresh-batches 5", "--sample-rate (2) must be 0 to 1"},
		{"--page 2KiB --host-memory 1MiB", `--page ("2KiB") must be 4KiB to 1MiB`},
		{"--cold-reads-per-second -1", "--cold-reads-per-second (-1) must be a number that is not negative"},
		{"--host-threads 1025", "--host-threads (1025) must be 0 to 1024"},
		{"--phase decode", "--phase means nothing without --workload ngram"},
	} {
		t.Run(c.flags, func(t *testing.T) {
			t.Parallel()
			refuse(t, c.want, slices.Concat([]string{"plan", "--vertices", "100"}, strings.Fields(c.flags))...)
		})
	}
}

func TestPlan_Phases(t *testing.T) {
	t.Parallel()
	ngram := []string{"plan", "--workload", "ngram", "--tokens", textFile(t), "--rows", "5000", "--policy", "static-freq", "--codec", "ibp4", "--target-hit", "40%", "--device-memory", "40MB"}
	for flags, want := range map[string]string{
		"decode:0": `--phase ("decode:0") must have 1 to 16777216 tokens behind the colon`, "decode,decode:3": "--phase (decode) must not be given twice",
		"chat": `--phase ("chat") must be decode or prefill, with the tokens of a batch behind a colon or without`,
	} {
		refuse(t, want, append(slices.Clone(ngram), "--phase", flags)...)
	}
	res := decode[experiment.PlanResult](t, succeed(t, append(slices.Clone(ngram), "--phase", "decode:32,prefill:100", "--json")...))
	if len(res.Phases) != 2 || res.Phases[0].Phase != "decode" || res.Phases[1].Phase != "prefill" || len(res.Plans[0].PhaseMS) != 2 || res.Placements[0].Choice != experiment.ResidentLayout {
		t.Errorf("%+v", res)
	}
	if n := res.Phases[0].Rows; n > 32*16 || n < 28*16 || res.Phases[1].Rows != 100*16 || res.Workload.Batches != 7 {
		t.Errorf("%g and %g rows, %d batches", n, res.Phases[1].Rows, res.Workload.Batches)
	}
	one := decode[experiment.PlanResult](t, succeed(t, append(slices.Clone(ngram), "--phase", "prefill", "--batch-size", "100", "--json")...))
	if one.Phases != nil || one.Batch.Phase != "prefill" || *one.Plans[0].PredictedBatchMS != res.Plans[0].PhaseMS[1] {
		t.Errorf("%+v, with both phases %+v", one, res)
	}
}
