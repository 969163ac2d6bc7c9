//go:build linux

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/serve"
)

// serving serves a cache of this process's, with tables of so many rows of 8 float32, and returns it, its address, and the tables' files.
func serving(t *testing.T, rows ...int) (c *cache.Cache, address string, files []string) {
	t.Helper()
	dir := t.TempDir()
	o := cache.Options{
		Budget: 64 << 10, Codec: "ibp4", Shared: true, Devices: cache.DeviceOptions{Backend: cache.BackendHost}, Host: cache.HostOptions{Workers: 1},
	}
	for i, n := range rows {
		name := filepath.Join(dir, string(rune('a'+i))+".npy")
		if err := os.WriteFile(name, npyOf(t, dtype.Float32, smooth(n*8), n, 8), 0o600); err != nil {
			t.Fatal(err)
		}
		table, err := cache.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		o.Tables, files = append(o.Tables, table), append(files, name)
	}
	c, err := cache.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := serve.Listen(c, serve.Options{Address: "unix:" + filepath.Join(dir, "s")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return c, s.Address(), files
}

// TestRun_Attached measures a cache of another process: the results are this process's alone, and rows are those of the source.
func TestRun_Attached(t *testing.T) {
	t.Parallel()
	c, address, files := serving(t, 3000)
	other := make([]byte, 100*32) // what the owner reads is not in the result
	if err := c.Gather(t.Context(), cache.Request{Rows: make([]int64, 100), Out: other}); err != nil {
		t.Fatal(err)
	}
	before, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"run", "--attach", address, "--batches", "20", "--batch-size", "16", "--fanouts", "4,3"}
	res := decode[experiment.Result](t, succeed(t, slices.Concat(args, []string{"--features", files[0], "--verify", "--json"})...))
	after, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	q, served := &res.Results, after.Sub(before).Tables[0]
	if q.Lookups == 0 || q.Lookups != res.Workload.IDs || q.Hits == 0 || q.Misses == 0 || q.Lookups != served.Lookups || q.Hits != served.Hits || q.HostBytesMoved != served.HostBytesMoved {
		t.Errorf("results %+v, the owner counted %+v", q, served)
	}
	if res.Attached != address || res.OwnerError != "" || res.Partial || res.VerifiedRows != q.Lookups || res.Mismatches != 0 || res.Cache.Codec != "ibp4" ||
		res.Cache.BudgetBytes != after.BudgetBytes || res.Cache.RowsCached != after.Tables[0].CachedRows || res.Table.Rows != 3000 || res.Uncompressed != (experiment.Uncompressed{}) {
		t.Errorf("%+v", res)
	}
	// Warm-up batches are looked up but not measured. Without a file the table's form is the owner's.
	warmed := decode[experiment.Result](t, succeed(t, append(args, "--train-batches", "30", "--json")...))
	last, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if warmed.Results.Lookups != q.Lookups || warmed.Workload.TrainingBatches != 30 || last.Tables[0].Lookups < after.Tables[0].Lookups+2*q.Lookups {
		t.Errorf("warmed up: %+v; %d lookups of the owner after %d", warmed, last.Tables[0].Lookups, after.Tables[0].Lookups)
	}
	out := succeed(t, args...)
	if !strings.Contains(out, "attached   "+address+"; ") || strings.Contains(out, "uncompressed") || strings.Contains(out, "verdict") || !regexp.MustCompile(`hit rate\s+│ +\d+\.\d\d %`).MatchString(out) {
		t.Errorf("printed:\n%s", out)
	}
}

// TestRun_AttachedVerifies: rows that are not those of the file are found.
func TestRun_AttachedVerifies(t *testing.T) {
	t.Parallel()
	c, address, files := serving(t, 500)
	if err := c.Update(t.Context(), 0, []int64{7}, make([]byte, 32)); err != nil {
		t.Fatal(err)
	}
	ids := filepath.Join(t.TempDir(), "ids")
	if err := os.WriteFile(ids, []byte("7\n8\n7\n9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, status := cachebench(t, "run", "--attach", address, "--features", files[0], "--ids", ids, "--verify")
	if status != 1 || !strings.Contains(stderr, "2 of 4") {
		t.Errorf("status %d, %q", status, stderr)
	}
}

// TestRun_AttachedTables measures several tables, with their files and without.
func TestRun_AttachedTables(t *testing.T) {
	t.Parallel()
	_, address, files := serving(t, 3000, 700)
	for _, more := range [][]string{nil, {"--verify", "--features", strings.Join(files, ",")}} {
		args := append([]string{"run", "--attach", address, "--batches", "10", "--batch-size", "32"}, more...)
		res := decode[experiment.TablesResult](t, succeed(t, append(args, "--json")...))
		if len(res.Tables) != 2 || res.Tables[0].Lookups != 320 || res.Tables[1].Lookups != 320 || res.Total.Lookups != 640 || res.Total.Hits == 0 ||
			res.Attached != address || res.Cache.Policy != "" || res.Mismatches != 0 || (res.VerifiedRows == 640) != (more != nil) {
			t.Errorf("%q: %+v", args, res)
		}
		if out := succeed(t, args...); !strings.Contains(out, "attached   "+address+"; ") || strings.Contains(out, "uncompressed") {
			t.Errorf("%q printed:\n%s", args, out)
		}
	}
}

// TestRun_AttachedRefuses what it cannot do.
func TestRun_AttachedRefuses(t *testing.T) {
	t.Parallel()
	_, address, files := serving(t, 500, 300)
	config := filepath.Join(t.TempDir(), "c.json")
	if err := os.WriteFile(config, []byte(`{"placement": "partition"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	attach := "run --attach " + address + " "
	for _, c := range []struct{ args, want string }{
		{attach + "--gpu-memory 5% --policy lru --device host", "--gpu-memory, --policy, --device: --attach measures the cache as its owner has configured it"},
		{attach + "--config " + config, "--placement: --attach measures"},
		{attach + "--cold", "--cold: --attach"},
		{attach + "--verify", "--verify with --attach needs --features"},
		{attach + "--cast bf16", "--cast with --attach needs --features"},
		{attach + "--features " + files[0], "--features (1 files) must be as many as the tables of the attached cache (2)"},
		{attach + "--features " + files[1] + "," + files[0], "b.npy (300 rows of 32 bytes, float32) must be as table " + files[0] + " of"},
		{attach + "--capture x.tct", "a trace (x.tct) holds the accesses of one table, there are 2"},
		{"run --attach unix:" + filepath.Join(t.TempDir(), "none"), "none): cache: no owner"},
		{"run --attach=", `--attach ("") must not be empty: leave it out`},
		{"run --attach tcp:x", "tcp:x"},
		{"run --explain 1 --attach " + address, "--attach means nothing with --explain"},
	} {
		_, stderr, status := cachebench(t, strings.Fields(c.args)...)
		if status != 1 || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("cachebench %s: status %d, %q; want %q", c.args, status, stderr, c.want)
		}
	}
	flags := newRun().Flags()
	for _, name := range ownersFlags {
		if flags.Lookup(name) == nil {
			t.Errorf("--%s is not a flag of run", name)
		}
	}
}
