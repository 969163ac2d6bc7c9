package main

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/dtype"
)

// textFile writes 1,000 tokens that are below 30, where small ones are frequent.
func textFile(t *testing.T) string {
	t.Helper()
	var b []byte
	for i, v := range noise(1000) {
		b = binary.LittleEndian.AppendUint16(b, uint16(int(v)%(1+i%30)))
	}
	return write(t, "text.npy", npyOf(t, dtype.Uint16, b, 1000))
}

// TestNgram_EqualsReplay: the prefill of a text is, but for its name, the replay of its trace, whose first 80 % train and are not measured.
func TestNgram_EqualsReplay(t *testing.T) {
	t.Parallel()
	text := textFile(t)
	features := write(t, "f.npy", npyOf(t, dtype.Uint8, noise(3000*64), 3000, 64))
	trace := filepath.Join(t.TempDir(), "t.tct")
	ngram := strings.Fields("--tokens " + text + " --orders 3,1 --heads 3 --layers 2 --rows 2900 --phase prefill --batch-size 100 --seed 5")
	if out := succeed(t, slices.Concat([]string{"trace", "generate", "ngram", "--out", trace}, ngram)...); out != "12000 requests written to "+trace+"\n" {
		t.Fatal(out)
	}
	if info := traceInfo(t, trace); info.Requests != 12000 || info.SmallestBytes != 264 || info.LargestBytes != 264 || info.LargestID >= 2900 {
		t.Errorf("%+v", info)
	}
	common := []string{"--features", features, "--codec", "none", "--gpu-memory", "10%"}
	got := run(t, slices.Concat([]string{"--workload", "ngram"}, common, ngram)...)
	want := run(t, slices.Concat([]string{"--ids", trace, "--batch-size", "1200", "--train-batches", "8", "--seed", "5"}, common)...)
	if got.Workload.Kind != "ngram" || got.Workload.IDs != 2400 || got.Workload.TrainingBatches != 8 || got.Workload.TrainingMeasured || got.Results.Hits == 0 {
		t.Errorf("%+v", got)
	}
	want.Workload = got.Workload // replays of whose batches some train say that these are measured
	if got, want := timeless(got), timeless(want); !reflect.DeepEqual(got, want) {
		t.Errorf("ngram\n%+v\nreplay\n%+v", got, want)
	}
	// Decode looks up the same rows.
	decoded := run(t, slices.Concat([]string{"--workload", "ngram"}, common, ngram, []string{"--phase", "decode"})...)
	if decoded.Workload.Batches != 2 || decoded.Workload.IDs != 2400 || decoded.Results.Hits != got.Results.Hits {
		t.Errorf("%+v", decoded)
	}
}

// TestNgram_Generated: without features rows are float8 with scales; the plan of a hit rate is what a run of its budget reaches.
func TestNgram_Generated(t *testing.T) {
	t.Parallel()
	features := write(t, "f.npy", npyOf(t, dtype.Uint8, noise(3000*64), 3000, 64))
	ngram := []string{"--workload", "ngram", "--tokens", textFile(t), "--rows", "5000", "--policy", "static-freq", "--codec", "none"}
	r := run(t, ngram...)
	if r.Table != (experiment.TableInfo{Name: "generated", Rows: 5000, RowBytes: workload.NgramRowBytes, DType: "float8_e4m3fn*256,float8_e8m0fnu*8"}) || r.Workload.IDs != 200*16 || r.Workload.Batches != 1 {
		t.Errorf("%+v", r)
	}
	plan := decode[experiment.PlanResult](t, succeed(t, slices.Concat([]string{"plan", "--json", "--target-hit", "50%"}, ngram)...)).Plans[0]
	r = run(t, slices.Concat(ngram, []string{"--gpu-memory", fmt.Sprint(plan.BudgetBytes)})...)
	if r.Results.HitRatio != plan.PredictedHitRatio || plan.PredictedHitRatio < 0.5 || !plan.Reached {
		t.Errorf("planned %+v, ran %+v", plan, r.Results)
	}
	longer := run(t, slices.Concat(ngram, []string{"--text-tokens", "20000", "--batches", "3", "--train-batches", "2"})...)
	if longer.Workload.IDs != 3*256*16 || longer.Workload.TrainingBatches != 2 {
		t.Errorf("%+v", longer.Workload)
	}
	if out := succeed(t, slices.Concat([]string{"run", "--explain", "3-4", "--features", features, "--codec", "none"}, ngram[:4])...); !strings.Contains(out, "3") {
		t.Error(out)
	}
	sweep, _, _ := cachebench(t, slices.Concat([]string{"run", "--sweep", t.TempDir() + "/s", "--json", "--gpu-memory", "5%,10%"}, ngram)...)
	if cells := decode[[]experiment.Cell](t, sweep); len(cells) != 2 || cells[0].Config["tokens"] == nil || cells[0].Config["vertices"] != nil {
		t.Errorf("%+v", cells)
	}
}

func TestNgram_BadInput(t *testing.T) {
	t.Parallel()
	graph := ""
	for _, name := range admission.Names() {
		if spec, _ := admission.Lookup(name); spec.Learns == admission.FromGraph {
			graph = name
		}
	}
	text, features := textFile(t), write(t, "f.npy", npyOf(t, dtype.Uint8, noise(3000*64), 3000, 64))
	one, none := write(t, "one.npy", ints(t, 3)), write(t, "none.npy", npyOf(t, dtype.Int64, nil, 0))
	with := "--workload ngram --tokens " + text
	for _, c := range []struct{ flags, want string }{
		{"run --workload dlrm", `--workload ("dlrm") must be embedding or ngram`},
		{"run --workload ngram", "--workload ngram needs --tokens, a text"},
		{"run --tokens x", "--tokens means nothing without --workload ngram"},
		{"plan --heads 4", "--heads means nothing without --workload ngram"},
		{"run --explain 1 --layers 4", "--layers means nothing without --workload ngram"},
		{"run --heads 0 " + with, "--heads (0) must be at least 1"},
		{"run --rows 0 " + with, "--rows (0) must be at least 1"},
		{"run --rows 16 " + with, "--rows (16) must be more: 16 tables of 1 rows at most need as many different primes"},
		{"run --orders 9 " + with, "--orders (9) must be in [1, 8]"},
		{"run --vertices 5 " + with, "--vertices and --workload contradict each other"},
		{"run --graph rmat " + with, "--workload ngram contradicts --graph, --ids and --weighted: the workload is one or the other"},
		{"plan --trace x " + with, "--workload ngram contradicts --graph, --ids and --weighted: the workload is one or the other"},
		{"run --phase chat " + with, `--phase ("chat") must be decode or prefill`},
		{"run --rows 3001 --features " + features + " " + with, "--rows (3001) must be at most those of table " + features + " (3000)"},
		{"run --policy " + graph + " " + with, "--policy " + graph + " needs a graph, which --workload ngram has not"},
		{"run --workload ngram --rows 5000 --tokens " + one, "--tokens (" + one + "): tokens (1) must be at least 2: some train the policy, and some are measured"},
		{"run --workload ngram --rows 5000 --tokens missing.npy", "npy: missing.npy: open: no such file or directory"},
		{"run --workload ngram --rows 5000 --tokens " + features, "npy: " + features + ": rank (2) of shape (3000, 64) must be 1"},
		{"run --workload ngram --rows 5000 --tokens " + none, "npy: " + none + ": shape (0,) must have axes of at least 1"},
		{"run --batches 1 --text-tokens 1 --rows 5000 " + with, "--tokens (" + text + "): tokens (1) must be at least 2: some train the policy, and some are measured"},
		{"trace generate ngram --out @/x.tct", "workload: n-grams: a file of tokens must be given"},
		{"trace generate mix --tokens x --out @/x.tct", "--tokens means nothing for mix, only for ngram"},
		{"trace generate ngram --heads 300 --tokens " + text + " --out @/x.tct", "workload: n-grams: Heads (300) must be in [1, 256]"},
		{"trace generate ngram --text-tokens 0 --tokens " + text + " --out @/x.tct", "--text-tokens (0) must be at least 1"},
		{"trace generate ngram --batch-size -3 --tokens " + text + " --out @/x.tct", "workload: n-grams: BatchSize (-3) must be in [1, 2147483647]"},
	} {
		t.Run(c.flags[:12], func(t *testing.T) {
			t.Parallel()
			refuse(t, c.want, strings.Fields(strings.ReplaceAll(c.flags, "@", t.TempDir()))...)
		})
	}
}
