package main

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/dtype"
)

// threeTables returns the files of tables of 1,000, 400 and 50 rows of 128, 64 and 32 bytes.
func threeTables(t *testing.T) []string {
	var files []string
	for i, rows := range []int{1000, 400, 50} {
		columns := 32 >> i
		files = append(files, write(t, fmt.Sprintf("t%d.npy", i), npyOf(t, dtype.Float32, smooth(rows*columns), rows, columns)))
	}
	return files
}

// tables runs `run` on several tables and checks what must hold of every result.
func tables(t *testing.T, files []string, flags ...string) *experiment.TablesResult {
	t.Helper()
	r := decode[experiment.TablesResult](t, succeed(t, append([]string{"run", "--json", "--verify", "--device", "host", "--features", strings.Join(files, ",")}, flags...)...))
	if len(r.Tables) != len(files) || r.Mismatches != 0 || r.VerifiedRows != r.Total.Lookups {
		t.Fatalf("%d tables of %d; %d of %d rows differ", len(r.Tables), len(files), r.Mismatches, r.VerifiedRows)
	}
	var sum, plain experiment.Served
	for i := range r.Tables {
		x := &r.Tables[i]
		for _, c := range []struct{ s, to *experiment.Served }{{&x.Served, &sum}, {&x.Uncompressed, &plain}} {
			c.to.RowsCached, c.to.Lookups, c.to.Hits = c.to.RowsCached+c.s.RowsCached, c.to.Lookups+c.s.Lookups, c.to.Hits+c.s.Hits
			c.to.HostBytesMoved += c.s.HostBytesMoved
			c.to.HitRatio = float64(c.to.Hits) / float64(c.to.Lookups)
		}
		if !strings.HasPrefix(x.Name, files[i]) || x.RowsCached > x.Rows || x.Hits > x.Lookups || x.Lookups != x.Uncompressed.Lookups {
			t.Errorf("table %d: %+v", i, x)
		}
	}
	if sum != r.Total.Served || plain != r.Total.Uncompressed.Served {
		t.Errorf("totals %+v and %+v, the tables' sums %+v and %+v", r.Total.Served, r.Total.Uncompressed.Served, sum, plain)
	}
	if r.Cache.PayloadBytes+r.Cache.MetadataBytes > r.Cache.BudgetBytes {
		t.Errorf("%+v exceeds its budget", r.Cache)
	}
	return &r
}

func TestTables_GeneratedLookups(t *testing.T) {
	t.Parallel()
	files := threeTables(t)
	flags := []string{"--codec", "ibp4", "--gpu-memory", "20%", "--batches", "10", "--train-batches", "10", "--batch-size", "100"}
	r := tables(t, files, flags...)
	if w := r.Workload; w.Kind != "dlrm" || w.Batches != 10 || w.IDs != 3*10*100 || w.TrainingBatches != 10 || w.TrainingMeasured {
		t.Errorf("workload %+v", w)
	}
	if r.Cache.BudgetBytes != (1000*128+400*64+50*32)/5 {
		t.Errorf("budget %d must be a fifth of all tables", r.Cache.BudgetBytes)
	}
	if p := r.Total.PredictedGPU; p == nil || !(p.BatchMS > 0 && p.UncompressedMS > 0 && p.UncachedMS > 0) {
		t.Errorf("predicted %+v", p)
	}
	for i, x := range r.Tables {
		if x.Codec != "ibp4" || x.CompressionRatio <= 1 || x.Lookups != 1000 || x.HitRatio < 0.2 {
			t.Errorf("table %d: %+v", i, x)
		}
	}
	if r.Total.RowsCached <= r.Total.Uncompressed.RowsCached {
		t.Errorf("%d rows cached, uncompressed %d", r.Total.RowsCached, r.Total.Uncompressed.RowsCached)
	}
	again := tables(t, files, flags...)
	if !reflect.DeepEqual(again.Tables, r.Tables) {
		t.Error("the same seed gave another result")
	}
	text := succeed(t, append([]string{"run", "--device", "host", "--verify", "--features", strings.Join(files, ",")}, flags...)...)
	for i := range files { // names of folders differ
		text = strings.ReplaceAll(text, files[i], "FILE")
	}
	golden(t, "tables.golden", mask(text))
}

// TestTables_OptimalSharesTheBudget: of rows of one length, a cache that knows the future holds those asked for most, whatever table they
// are of. The shorter file has as many batches as the longer one.
func TestTables_OptimalSharesTheBudget(t *testing.T) {
	t.Parallel()
	files := []string{
		write(t, "a.npy", npyOf(t, dtype.Float32, smooth(200*16), 200, 16)), write(t, "b.npy", npyOf(t, dtype.Float32, smooth(200*16), 200, 16)),
	}
	random := rand.New(rand.NewPCG(1, 1))
	frequency := make([]int, 400)
	var ids []string
	for i, n := range []int{5000, 1001} {
		list := make([]int, n)
		for j := range list {
			list[j] = random.IntN(200) * random.IntN(201) / 200
			frequency[200*i+list[j]]++
		}
		ids = append(ids, write(t, "ids.txt", idLines(list)))
	}
	r := tables(t, files, "--ids", strings.Join(ids, ","), "--codec", "none", "--policy", "static-optimal", "--gpu-memory", "10%", "--batch-size", "500")
	if w := r.Workload; w.Kind != "ids" || w.Batches != 10 || w.IDs != 6001 {
		t.Errorf("workload %+v", w)
	}
	if a, b := r.Tables[0].Lookups, r.Tables[1].Lookups; a != 5000 || b != 1001 {
		t.Errorf("%d and %d lookups", a, b)
	}
	slices.Sort(frequency)
	slices.Reverse(frequency)
	hits := int64(0)
	for _, n := range frequency[:r.Total.RowsCached] {
		hits += int64(n)
	}
	if r.Total.Hits != hits || r.Total.RowsCached < 20 || r.Tables[0].RowsCached <= r.Tables[1].RowsCached {
		t.Errorf("%d hits with %d + %d rows, want %d", r.Total.Hits, r.Tables[0].RowsCached, r.Tables[1].RowsCached, hits)
	}
	held := tables(t, files, "--ids", strings.Join(ids, ","), "--codec", "none", "--batch-size", "500", "--train-batches", "4", "--batches", "3")
	if w := held.Workload; w.Batches != 3 || w.TrainingBatches != 4 || w.TrainingMeasured || held.Tables[0].Lookups != 1500 || held.Tables[1].Lookups != 700*1001/1000-400*1001/1000 {
		t.Errorf("workload %+v, %d and %d lookups", w, held.Tables[0].Lookups, held.Tables[1].Lookups)
	}
}

// TestTables_NoUncompressedRowFits: all uncompressed rows are read from the host then.
func TestTables_NoUncompressedRowFits(t *testing.T) {
	t.Parallel()
	zeros := make([]byte, 4*64*1024)
	files := []string{write(t, "a.npy", npyOf(t, dtype.Float32, zeros, 64, 1024)), write(t, "b.npy", npyOf(t, dtype.Float32, zeros, 64, 1024))}
	r := tables(t, files, "--gpu-memory", "2KiB", "--codec", "ibp4", "--batches", "2", "--train-batches", "2", "--batch-size", "50")
	if u := r.Total.Uncompressed; r.Total.RowsCached == 0 || u.RowsCached != 0 || u.Hits != 0 || u.HostBytesMoved != r.Total.Lookups*4096 {
		t.Errorf("%+v", r.Total)
	}
}

func TestTables_BadInput(t *testing.T) {
	t.Parallel()
	files := threeTables(t)
	all := strings.Join(files, ",")
	few := write(t, "ids.txt", []byte("1\n"))
	several := "cachebench: --features (" + all + ") names several tables, which only run and plan take\n"
	far := write(t, "far.txt", []byte("51\n"))
	for _, c := range []struct{ flags, want string }{
		{"run --features " + all + " --graph g.npz", "--graph takes one table, there are 3"},
		{"run --features " + all + " --cold", "--cold takes one table, there are 3"},
		{"run --features " + all + " --cold redis://127.0.0.1:1", "--cold takes one table, there are 3"},
		{"run --features " + all + " --prefetch 2", "--prefetch (2) needs a table of pages"},
		{"run --features " + all + " --drift 5", "--drift takes one table, there are 3"},
		{"run --features " + all + " --refresh-interval 1s", "--refresh-interval takes one table, there are 3"},
		{"run --features " + all + " --refresh-batches 2", "--refresh-batches takes one table, there are 3"},
		{"run --features " + all + " --weighted", "--weighted takes one table, there are 3"},
		{"run --features " + all + " --capture x.tct", "a trace (x.tct) holds the accesses of one table, there are 3"},
		{"run --features " + all + " --policy static-degree", "--policy (static-degree) needs a graph, which several tables have not"},
		{"run --features " + all + " --ids " + few, "--ids (1 files) must be as many as the tables (3)"},
		{"run --features " + files[0] + ",", "--features (" + files[0] + ",) must have no empty name"},
		{"run --features " + all + " --ids " + few + "," + few + "," + far, "--ids: row numbers (" + far + "): row number (51) of lookup 1 must be 0 to 49: the table has 50 rows"},
		{"run --features " + all + " --gpu-memory 0", `--gpu-memory ("0") must be a positive percentage of the table or a size such as 64MiB`},
		{"plan --device-memory 1GB --features " + all, "--device-memory takes one table"},
		{"run --explain 0 --features " + all, several},
		{"run --capture x.tct --features " + all, "a trace (x.tct) holds the accesses of one table, there are 3"},
		{"run --sweep " + t.TempDir() + " --features " + all, several},
		{"compress --features " + all, several},
	} {
		stdout, stderr, status := cachebench(t, strings.Fields(c.flags)...)
		if status != 1 || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: status %d, %q, want %q", c.flags, status, stderr, c.want)
		}
	}
}

// TestTables_Help: run and plan offer several tables.
func TestTables_Help(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"run", "plan", "pack", "compress"} {
		if offers := strings.Contains(succeed(t, command, "--help"), "several"); offers != (command == "run" || command == "plan") {
			t.Errorf("%s --help offers several tables: %v", command, offers)
		}
	}
}

// TestTables_CommaInAName: one file whose name has a comma is one table.
func TestTables_CommaInAName(t *testing.T) {
	t.Parallel()
	path := write(t, "a,b.npy", npyOf(t, dtype.Float32, smooth(500*16), 500, 16))
	r := decode[experiment.Result](t, succeed(t, "run", "--json", "--codec", "ibp4", "--batches", "2", "--train-batches", "2", "--features", path))
	if r.Table.Rows != 500 {
		t.Errorf("%+v", r.Table)
	}
}
