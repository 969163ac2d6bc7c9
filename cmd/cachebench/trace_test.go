package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/report"
	"github.com/tensorcache/tensorcache/bench/trace"
	"github.com/tensorcache/tensorcache/dtype"
)

// traceInfo runs `trace info --json`.
func traceInfo(t *testing.T, file string) report.TraceInfo {
	t.Helper()
	return decode[report.TraceInfo](t, succeed(t, "trace", "info", file, "--json"))
}

// TestCapture_EqualsRun: a captured trace holds the run's lookups, hits and misses, and replayed does the same again.
func TestCapture_EqualsRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tct, ids := filepath.Join(dir, "c.tct.zst"), filepath.Join(dir, "c.oracleGeneral")
	res := decode[experiment.Result](t, succeed(t, append([]string{"run", "--capture", tct, "--json"}, small...)...))
	info := traceInfo(t, tct)
	if info.Hits != res.Results.Hits || info.Misses != res.Results.Misses || info.Requests != res.Workload.IDs || info.Hits == 0 || info.Misses == 0 {
		t.Errorf("trace of %d requests, %d hits, %d misses; the run had %+v", info.Requests, info.Hits, info.Misses, res.Results)
	}
	if info.LargestBytes != 512 || info.SmallestBytes != 512 || info.Format != "tct" || info.LastTime != 5 || info.Sampling != "all" {
		t.Errorf("%+v", info)
	}
	out := succeed(t, "trace", "convert", tct, ids, "--misses")
	if want := fmt.Sprintf("%d of %d requests written to %s\n", info.Misses, info.Requests, ids); out != want {
		t.Errorf("convert says %q, want %q", out, want)
	}
	if n := traceInfo(t, ids); n.Requests != info.Misses || n.NextKnown != n.Requests {
		t.Errorf("%+v", n)
	}
	again := run(t, "--ids", ids, "--features", write(t, "t.npy", npyOf(t, dtype.Float32, smooth(2000*8), 2000, 8)), "--batch-size", "100")
	if again.Workload.IDs != info.Misses {
		t.Errorf("%d IDs replayed of %d", again.Workload.IDs, info.Misses)
	}
	refuse(t, fmt.Sprintf("--ids: row numbers (%s): row number (%d) of lookup %d must be 0 to 9: the table has 10 rows", ids, firstAbove(t, ids, 10).id, firstAbove(t, ids, 10).at+1),
		"run", "--ids", ids, "--features", write(t, "u.npy", npyOf(t, dtype.Float32, smooth(80), 10, 8)))
}

// TestRun_Weighted: weights change what is sampled; a graph without any is refused.
func TestRun_Weighted(t *testing.T) {
	t.Parallel()
	uniform, weighted := run(t, small...), run(t, append([]string{"--weighted"}, small...)...)
	if uniform.Workload.IDs == weighted.Workload.IDs {
		t.Errorf("both sample %d IDs", uniform.Workload.IDs)
	}
	edges := write(t, "g.el", []byte("0 1 2\n1 0 0\n0 2 1\n"))
	if r := run(t, "--graph", edges, "--weighted", "--batches", "1", "--gpu-memory", "50%"); r.Workload.IDs != 3 {
		t.Errorf("%d IDs of 3 vertices", r.Workload.IDs)
	}
	plain := write(t, "p.npz", npzOf(t, member{"indptr", ints(t, 0, 1, 2)}, member{"indices", ints(t, 1, 0)}))
	refuse(t, "workload: graph "+plain+`: array weights: npy: `+plain+`: array ("weights") must be one of "indptr", "indices"`, "run", "--graph", plain, "--weighted")
	refuse(t, "--weighted and --ids contradict each other", "run", "--weighted", "--ids", "x")
}

// firstAbove returns the first ID that is no row of a table of that many.
func firstAbove(t *testing.T, file string, rows uint64) (r struct {
	id uint64
	at int
}) {
	t.Helper()
	o, err := trace.Open(file, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	buf := make([]trace.Request, 1)
	for ; ; r.at++ {
		if _, err := o.Read(buf); err != nil {
			t.Fatal(err)
		}
		if r.id = buf[0].ID; r.id >= rows {
			return r
		}
	}
}

// TestTrace_Generate: each workload becomes a trace, twice the same.
func TestTrace_Generate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	popularity := write(t, "pop.json", []byte(`{"popularityBuckets":[1,10],"popularityWeights":[1,1]}`))
	edges := write(t, "g.el", []byte("0 1 2\n1 0 0.5\n0 2 1\n"))
	for i, c := range []struct {
		flags []string
		want  int64
	}{
		{[]string{"mix", "--mix", "zipf:0.8=50%,scan=50%", "--rows", "100", "--batches", "3", "--batch-size", "10"}, 30},
		{[]string{"dlrm", "--tables", "100:1:2,50", "--batches", "2", "--batch-size", "7", "--turnover", "1"}, 42},
		{[]string{"popularity", "--popularity", popularity, "--batches", "2", "--batch-size", "9"}, 18},
		{[]string{"sampling", "--vertices", "100", "--batches", "2", "--batch-size", "4", "--fanouts", "2", "--weighted"}, 0},
		{[]string{"sampling", "--graph", "power-law", "--vertices", "100", "--batches", "2", "--degree", "3"}, 0},
		{[]string{"sampling", "--graph", edges, "--batches", "1", "--weighted", "--row-bytes", "77"}, 3},
	} {
		a, b := filepath.Join(dir, fmt.Sprint("a", i, ".tct")), filepath.Join(dir, fmt.Sprint("b", i, ".tct"))
		for _, file := range []string{a, b} {
			out := succeed(t, append([]string{"trace", "generate", "--out", file}, c.flags...)...)
			info := traceInfo(t, file)
			if want := fmt.Sprintf("%d requests written to %s\n", info.Requests, file); out != want || info.Requests == 0 || c.want != 0 && info.Requests != c.want {
				t.Errorf("%v: %q, %+v", c.flags, out, info)
			}
		}
		x, _ := os.ReadFile(a)
		if y, _ := os.ReadFile(b); string(x) != string(y) {
			t.Errorf("%v: two traces differ", c.flags)
		}
	}
}

const infoWant = `trace      @
format     tct: IDs, sizes, times, operations, next accesses, outcomes
requests   5: 4 gets, 1 sets, 0 deletes
IDs        2 in gets, 0 of them once; 5 to 18446744073709551615
first gets 50.00 % of gets are the first of their ID, and miss in any cache that begins empty
bytes      2 kB requested, working set 5.1 kB, objects 512 B to 512 B
time       100 to 103
captured   2 hits, 2 misses: 50.00 % hit
sampled    by ID, rate 0.5; 3 accesses lost
`

func TestTrace_Info(t *testing.T) {
	t.Parallel()
	file := filepath.Join("..", "..", "bench", "trace", "testdata", "small.tct")
	if out := succeed(t, "trace", "info", file); out != strings.ReplaceAll(infoWant, "@", file) {
		t.Errorf("got\n%s", out)
	}
}

func TestTrace_BadInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	whole, err := os.ReadFile(filepath.Join("..", "..", "bench", "trace", "testdata", "small.tct"))
	if err != nil {
		t.Fatal(err)
	}
	cut := write(t, "cut.tct", whole[:len(whole)-20])
	text := write(t, "x.ids", []byte("1\n2\n"))
	sets := write(t, "x.csv", []byte("1,SET,5\n1,GET,5\n"))
	known := strings.Join(trace.Formats(), ", ")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"trace: open " + in("none") + ": no such file or directory", []string{"info", in("none")}},
		{`trace: unsuitable format: format ("x") must be one of ` + known, []string{"info", text, "--format", "x"}},
		{fmt.Sprintf("trace: %s: offset %d: block or end mark (0 bytes) must have 20: truncated; requests before that: 5", cut, len(whole)-20), []string{"info", cut}},
		{fmt.Sprintf("trace: %s: offset %d: block or end mark (0 bytes) must have 20: truncated", cut, len(whole)-20), []string{"convert", cut, in("y.tct")}},
		{"trace: " + in("y.txt") + ": unsuitable format: ids cannot hold a set", []string{"convert", sets, in("y.txt")}},
		{"--misses needs a captured trace: " + text + " (ids) does not say what missed", []string{"convert", text, in("y.tct"), "--misses"}},
		{"--limit (-1) must not be negative", []string{"convert", text, in("y.tct"), "--limit", "-1"}},
		{`required flag(s) "out" not set`, []string{"generate", "mix"}},
		{`trace: command ("inf") must be one of those that cachebench trace --help lists`, []string{"inf", text}},
		{`workload: kind ("x") must be one of mix, dlrm, popularity, sampling, ngram`, []string{"generate", "x", "--out", in("y.tct")}},
		{"--tables means nothing for mix, only for dlrm", []string{"generate", "mix", "--tables", "5", "--out", in("y.tct")}},
		{"--rows (0) must be at least 1", []string{"generate", "mix", "--rows", "0", "--out", in("y.tct")}},
		{"workload: sampling: vertices and degree (5, 0) must not be given with a graph's file (g.npz)", []string{"generate", "sampling", "--graph", "g.npz", "--vertices", "5", "--out", in("y.tct")}},
	} {
		refuse(t, c.want, append([]string{"trace"}, c.args...)...)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	stdout, stderr, status := cachebench(t, "trace", "convert", cut, in("y.tct"), "--partial")
	if status != 0 || stdout != "5 of 5 requests written to "+in("y.tct")+"\n" || !strings.Contains(stderr, "kept what is before the fault") {
		t.Errorf("--partial: status %d, %q, %q", status, stdout, stderr)
	}
	if got := traceInfo(t, in("y.tct")).Requests; got != 5 {
		t.Errorf("%d requests were kept", got)
	}
}
