package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/sim"
)

// cacheLib is a trace with sizes, sets and deletes.
const cacheLib = "key,op,size,op_count,key_size\n1,GET,100,1,8\n2,GET,50,2,8\n1,SET,100,1,8\n1,GET,100,1,8\n2,DELETE,0,1,8\n2,GET,50,1,8\n"

func TestSimulate(t *testing.T) {
	t.Parallel()
	ids := write(t, "t.txt", []byte("7\n8\n7\n9\n7\n8\n"))
	results := decode[[]sim.Result](t, succeed(t, "simulate", "--trace", ids, "--unit-size", "--policy", "lru,belady,static-optimal", "--sizes", "2,34%", "--json"))
	if len(results) != 6 {
		t.Fatalf("%+v", results)
	}
	for i, misses := range []int64{4, 6, 4, 6, 1, 3} {
		r := results[i]
		if r.RequestsPerSecond <= 0 {
			t.Errorf("%+v", r)
		}
		r.RequestsPerSecond = 0
		size := int64(2 - i%2)
		want := sim.Result{
			Policy: []string{"lru", "belady", "static-optimal"}[i/2], CacheObjects: size, CacheBytes: size, Requests: 6,
			Misses: misses, MissRatio: float64(misses) / 6, ByteMissRatio: float64(misses) / 6,
		}
		if !reflect.DeepEqual(r, want) {
			t.Errorf("%+v, want %+v", r, want)
		}
	}
	// The keys are what others read.
	var raw []map[string]any
	if err := json.Unmarshal([]byte(succeed(t, "simulate", "--trace", ids, "--unit-size", "--policy", "fifo", "--sizes", "1", "--json")), &raw); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"policy", "cache_objects", "cache_bytes", "requests", "misses", "miss_ratio", "byte_miss_ratio", "requests_per_second"} {
		if _, ok := raw[0][key]; !ok || len(raw[0]) != 8 {
			t.Errorf("%v has no %s, or more", raw[0], key)
		}
	}
}

// TestSimulate_Sizes: a set brings a row in and is not counted, a delete takes it out.
func TestSimulate_Sizes(t *testing.T) {
	t.Parallel()
	trace := write(t, "t.csv", []byte(cacheLib))
	r := decode[[]sim.Result](t, succeed(t, "simulate", "--trace", trace, "--policy", "lru", "--sizes", "1kB", "--json"))[0]
	r.RequestsPerSecond = 0
	want := sim.Result{Policy: "lru", CacheObjects: 13, CacheBytes: 1000, Requests: 5, Misses: 3, MissRatio: 0.6, ByteMissRatio: 200. / 350}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("%+v, want %+v", r, want)
	}
	out := succeed(t, "simulate", "--trace", trace, "--policy", "lru,gdsf", "--sizes", "50%,1kB")
	for _, text := range []string{"5 requests, 2 IDs, working set 150 B", "byte miss ratio", "1 kB *", "* holds the whole working set"} {
		if !strings.Contains(out, text) {
			t.Errorf("no %q in\n%s", text, out)
		}
	}
}

func TestSimulate_Curve(t *testing.T) {
	t.Parallel()
	trace := write(t, "t.csv", []byte(cacheLib))
	for _, method := range []string{"exact", "shards"} {
		args := []string{"simulate", "--trace", trace, "--mrc", method, "--points", "3", "--json"}
		if method == "shards" {
			args = append(args, "--shards-rate", "1")
		}
		c := decode[sim.Curve](t, succeed(t, args...))
		// Row 1 is set just before it is asked for again; row 2 is asked for twice, and again after its deletion.
		point := func(objects, bytes int64, ratio, byteRatio float64) sim.CurvePoint {
			return sim.CurvePoint{CacheObjects: objects, CacheBytes: bytes, MissRatio: ratio, ByteMissRatio: byteRatio}
		}
		want := []sim.CurvePoint{point(0, 50, 0.8, 300./350), point(1, 100, 0.6, 200./350), point(2, 150, 0.6, 200./350)}
		if len(c.Points) == 3 {
			for i := range c.Points { // rounding
				c.Points[i].MissRatio, c.Points[i].ByteMissRatio = float64(int(c.Points[i].MissRatio*1e6+0.5))/1e6, float64(int(c.Points[i].ByteMissRatio*1e6+0.5))/1e6
				want[i].ByteMissRatio = float64(int(want[i].ByteMissRatio*1e6+0.5)) / 1e6
			}
		}
		if c.Method != method || c.Trace != trace || c.Error != 0 || c.SampledIDs != 2 || !slices.Equal(c.Points, want) {
			t.Errorf("%+v", c)
		}
	}
	if out := succeed(t, "simulate", "--trace", trace, "--mrc", "exact", "--points", "2"); !strings.Contains(out, "exact LRU") {
		t.Error(out)
	}
}

func TestSimulate_BadInput(t *testing.T) {
	t.Parallel()
	ids := write(t, "t.txt", []byte("7\n8\n7\n"))
	missing := filepath.Join(t.TempDir(), "missing")
	policies := strings.Join(sim.PolicyNames(), ", ")
	for _, c := range []struct{ flags, want string }{
		{"", "simulate: the trace must be given: simulate FILE, or --trace FILE"},
		{"--trace MISSING --policy lru --sizes 1", "trace: open MISSING: no such file or directory"},
		{"--trace IDS --policy lru --sizes 1", "sim: IDS: has no sizes of rows: give --unit-size, and each counts 1"},
		{"--trace IDS --policy mru --sizes 1 --unit-size", `unknown policy ("mru") must be one of ` + policies},
		{"--trace IDS --policy lru --sizes 0% --unit-size", `--sizes ("0%") must be a positive percentage of the working set or, with --unit-size, a number of objects`},
		{"--trace IDS --policy lru --sizes much", `--sizes ("much") must be a positive percentage of the working set or a size such as 64MiB`},
		{"--trace IDS --format tar --policy lru --sizes 1", `--format ("tar") must be one of tct, oraclegeneral, cachelib, arc, lirs, ids, mooncake, lcs, csv`},
		{"--trace IDS --mrc exact --policy lru", "--policy means nothing with --mrc, which is LRU's"},
		{"--trace IDS --mrc exact --shards-rate 0.5 --unit-size", "--mrc exact samples nothing: --shards-rate and --shards-ids are for --mrc shards"},
		{"--trace IDS --mrc shards --shards-ids 0", "--shards-ids (0) must be above 0"},
		{"--trace IDS --mrc shards --points 5 --sizes 5%", "--points and --sizes contradict each other"},
		{"--trace IDS --policy lru --sizes 5% --points 5", "--points means nothing without --mrc"},
		{"--trace IDS --mrc olken", `--mrc ("olken") must be exact or shards`},
		{"--trace IDS --policy lru --sizes 1 --workers -1 --refresh-requests -1", "--refresh-requests (-1) must not be negative\n--workers (-1) must not be negative"},
	} {
		files := strings.NewReplacer("IDS", ids, "MISSING", missing)
		refuse(t, files.Replace(c.want), append([]string{"simulate"}, strings.Fields(files.Replace(c.flags))...)...)
	}
}

// TestSimulate_LibCacheSim: the same accesses give the same misses as oracleGeneral, CSV with columns, and from the standard input.
func TestSimulate_LibCacheSim(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var text strings.Builder
	text.WriteString("time;key;op;size\n")
	ids := rand.New(rand.NewPCG(1, 2))
	for i := range 5000 {
		id := int(200 * math.Pow(ids.Float64(), 3))
		fmt.Fprintf(&text, "%d;key-%d;get;%d\n", i, id, 10+id)
	}
	csv := filepath.Join(dir, "a.csv")
	if err := os.WriteFile(csv, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	const columns = "time-col=1, obj-id-col=2, obj-size-col=4"
	oracle := filepath.Join(dir, "a.oracleGeneral.zst")
	succeed(t, "trace", "convert", csv, oracle, "--trace-type-params", columns)
	flags := []string{"simulate", "--policy", "lru,s3fifo,belady", "--sizes", "1kB,5%", "--json", "--trace"}
	misses := func(out string) (all []int64) {
		var points []struct{ Misses, Requests int64 }
		if err := json.Unmarshal([]byte(out), &points); err != nil || len(points) != 6 || points[0].Requests != 5000 {
			t.Fatalf("%v: %s", err, out)
		}
		for _, p := range points {
			all = append(all, p.Misses)
		}
		return all
	}
	want := misses(succeed(t, append(flags, oracle)...))
	if got := misses(succeed(t, append(flags, csv, "--trace-type-params", columns)...)); !slices.Equal(got, want) {
		t.Errorf("CSV: misses %v, want %v", got, want)
	}
	for _, c := range []struct {
		file string
		more []string
	}{{csv, []string{"--trace-type-params", columns}}, {oracle, []string{"--format", "oraclegeneral"}}} {
		cmd := command(t, append(append(flags, "-"), c.more...)...)
		in, err := os.Open(c.file)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin = in
		out, err := cmd.Output()
		in.Close()
		if err != nil {
			t.Fatal(err)
		}
		if got := misses(string(out)); !slices.Equal(got, want) {
			t.Errorf("standard input, %s: misses %v, want %v", c.file, got, want)
		}
	}
	refuse(t, "trace: unsuitable format: format arc takes no parameters (\"obj-id-col=1\"), csv does", "simulate", "--trace", csv, "--format", "arc", "--trace-type-params", "obj-id-col=1", "--policy", "lru", "--sizes", "1%")
}
