package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/redistest"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/cluster"
	"github.com/tensorcache/tensorcache/pages/delta"
)

// packedFeatures returns a directory of pages of rows × 64 float32, half of which are zeros, and the file that they are of.
func packedFeatures(t *testing.T, rows int) (dir, file string) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	var data []byte
	for range rows {
		for j := range 64 {
			x := float32(0)
			if j < 32 {
				x = float32(r.NormFloat64())
			}
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
	}
	file = write(t, "f.npy", npyOf(t, dtype.Float32, data, rows, 64))
	dir = filepath.Join(t.TempDir(), "f.tc")
	succeed(t, "pack", file, "--out", dir)
	return dir, file
}

// tiersOf runs batches on a table of pages and checks what must hold of every result.
func tiersOf(t *testing.T, memory int64, flags ...string) *experiment.Result {
	t.Helper()
	args := append([]string{"run", "--json", "--verify", "--batches", "6", "--train-batches", "4", "--batch-size", "32", "--gpu-memory", "256KiB"}, flags...)
	res := decode[experiment.Result](t, succeed(t, args...))
	tiers, q := res.Tiers, res.Results
	switch {
	case tiers == nil:
		t.Fatalf("%v: no tiers", args)
	case res.VerifiedRows != q.Lookups || res.Mismatches != 0 || q.Lookups == 0 || q.Hits+q.Misses != q.Lookups:
		t.Errorf("%v: %+v, %d verified, %d mismatches", args, q, res.VerifiedRows, res.Mismatches)
	case tiers.Host.HostMemory > memory || tiers.Host.HostBytes > tiers.Host.HostMemory || tiers.Host.HostRows == 0:
		t.Errorf("%v: host tier of %d bytes: %+v", args, memory, tiers.Host)
	case tiers.Cold.FailedRows != 0 || tiers.Cold.AbsentRows == 0 || tiers.Cold.RowsRead < 1 || tiers.Cold.PagesRead < 1 || tiers.Cold.BytesRead < tiers.Cold.PagesRead:
		t.Errorf("%v: %+v", args, tiers.Cold)
	}
	return &res
}

// TestRun_OfPages serves a table of pages with less host memory than it has rows, and explains where rows lie.
func TestRun_OfPages(t *testing.T) {
	dir, file := packedFeatures(t, 20_000)
	const memory = 1 << 20
	of := tiersOf(t, memory, "--features", dir, "--host-memory", "1MiB")
	plain := decode[experiment.Result](t, succeed(t, "run", "--json", "--batches", "6", "--train-batches", "4", "--batch-size", "32", "--gpu-memory", "256KiB", "--features", file, "--codec", of.Cache.Codec))
	if of.Results.Lookups != plain.Results.Lookups || of.Table.Rows != plain.Table.Rows || of.Table.RowBytes != 256 {
		t.Errorf("of pages %+v, of the file %+v", of.Table, plain.Table)
	}
	where, lengths, compressed := map[string]int{}, map[int]bool{}, false
	for _, e := range decode[[]experiment.Explained](t, succeed(t, "run", "--json", "--explain", "0-2999,10000-16999", "--batches", "2", "--train-batches", "2", "--batch-size", "32", "--gpu-memory", "256KiB", "--features", dir, "--host-memory", "1MiB")) {
		where[e.Where]++
		if e.Since == nil {
			t.Fatalf("%+v", e)
		}
		if e.Where == "pages" {
			lengths[e.StoredBytes] = true
			compressed = compressed || e.Compressed
		}
	}
	if len(lengths) < 5 || lengths[0] || !compressed {
		t.Errorf("rows in pages have lengths %v", lengths)
	}
	if text := succeed(t, "run", "--explain", "0,19999", "--batches", "1", "--train-batches", "1", "--batch-size", "4", "--gpu-memory", "256KiB", "--features", dir, "--host-memory", "1MiB"); !strings.Contains(strings.ToUpper(text), " SINCE ") ||
		!regexp.MustCompile(`\d\d:\d\d:\d\d`).MatchString(text) || !strings.Contains(text, "never cached") {
		t.Errorf("%s", text)
	}
	if where["slab"] == 0 || where["host"] == 0 || where["pages"] == 0 || len(where) != 3 {
		t.Errorf("rows lie in %v", where)
	}
	text := succeed(t, "run", "--batches", "2", "--train-batches", "2", "--batch-size", "32", "--gpu-memory", "256KiB", "--features", dir, "--host-memory", "1MiB")
	if !strings.Contains(text, "\nhost tier ") || !strings.Contains(text, "\npages ") || strings.Contains(text, "uncompressed") || strings.Contains(text, "verdict") {
		t.Errorf("a table in pages is compared with nothing:\n%s", text)
	}
	refuseWith(t, "--codec (ibp2) must be", "run", "--features", dir, "--codec", "ibp2")
	refuseWith(t, "must be a file of rows, not pages", "compress", "--features", dir)
	leastMemory(t, dir, file)
	refuseWith(t, `--host-memory ("")`, "run", "--features", dir, "--host-memory", "")
	refuseWith(t, "--host-memory", "run", "--features", dir, "--host-memory", "much")
	refuseWith(t, `--features ("") must not be empty: leave it out`, "run", "--features", "")
	refuseWith(t, `--cold-cache ("") must not be empty: leave it out`, "run", "--cold", "redis://127.0.0.1:1", "--cold-cache", "")
	refuseWith(t, "--prefetch (2) needs a table of pages", "run", "--features", file, "--prefetch", "2")
	refuseWith(t, `--cold-cache-bytes ("")`, "run", "--cold", "redis://127.0.0.1:1", "--cold-cache", t.TempDir(), "--cold-cache-bytes", "")
	refuseWith(t, "--features (redis://127.0.0.1:1) must be files or a directory of pages", "run", "--features", "redis://127.0.0.1:1")
	refuseWith(t, `--cold ("http://127.0.0.1:1") must be true, false, or the address of a cluster`, "run", "--features", dir, "--cold", "http://127.0.0.1:1")
	refuseWith(t, "must be a directory of pages beside --cold", "run", "--features", file, "--cold", "redis://127.0.0.1:1")
}

// TestTables_OfPages: of several tables each one in pages has its tiers, and none is compared with an uncompressed cache, which would need all rows in memory.
func TestTables_OfPages(t *testing.T) {
	dir, file := packedFeatures(t, 20_000)
	flags := []string{"run", "--features", dir + "," + file, "--host-memory", "7MiB", "--gpu-memory", "256KiB", "--batches", "4", "--train-batches", "4", "--batch-size", "500", "--verify"}
	res := decode[experiment.TablesResult](t, succeed(t, append(flags, "--json", "--prefetch", "2")...))
	tiers := res.Tables[0].Tiers
	if tiers == nil || tiers.Cold.RowsRead == 0 || tiers.Prefetch.PrefetchedRows == 0 || tiers.Host.HostRows == 0 || res.Tables[1].Tiers != nil || res.Mismatches != 0 || res.VerifiedRows != res.Total.Lookups || res.Total.Uncompressed.Lookups != 0 {
		t.Errorf("%+v; tables %+v", tiers, res.Tables)
	}
	if p := &tiers.Prefetch; res.Workload.Prefetch != 2 || p.UsedRows == 0 || p.UsedRows+p.UnusedRows > p.PrefetchedRows {
		t.Errorf("prefetched %d batches ahead: %+v", res.Workload.Prefetch, p)
	}
	text := succeed(t, append(flags, "--prefetch", "2")...)
	if !regexp.MustCompile(`\nprefetch   f: [0-9,]+ rows, 2 batches ahead: [0-9,]+ in memory when a batch asked \([0-9.]+ %\), [0-9,]+ still being read, [0-9,]+ dropped for want of room, [0-9,]+ given up before a batch asked\n`).MatchString(text) {
		t.Errorf("no line of prefetched rows:\n%s", text)
	}
	text = succeed(t, flags...)
	if strings.Contains(text, "\nprefetch") || !strings.Contains(text, "\nhost tier  f: ") || !strings.Contains(text, "\npages      f: ") || strings.Contains(text, "uncompressed") || strings.Contains(text, "verdict") {
		t.Errorf("%s", text)
	}
}

// leastMemory: the error of too little host memory names what was given and the least, which is enough, and a plan's error names about the same.
func leastMemory(t *testing.T, dir, file string) {
	t.Helper()
	least := func(args ...string) int64 {
		t.Helper()
		_, stderr, _ := cachebench(t, append(args, "--batches", "1", "--train-batches", "1", "--host-memory", "64KiB")...)
		m := regexp.MustCompile(`\(65536 B\) must be at least (\d+) B`).FindStringSubmatch(stderr)
		if m == nil {
			t.Fatalf("%v: %q", args, stderr)
		}
		n, _ := strconv.ParseInt(m[1], 10, 64)
		return n
	}
	n := least("run", "--features", dir)
	succeed(t, "run", "--features", dir, "--host-memory", strconv.FormatInt(n, 10), "--batches", "1", "--train-batches", "1", "--batch-size", "4")
	refuseWith(t, "must be at least "+strconv.FormatInt(n, 10)+" B", "run", "--features", dir, "--host-memory", strconv.FormatInt(n-1, 10), "--batches", "1")
	if p := least("plan", "--features", file, "--policy", "static-freq", "--codec", "none"); p < n-100 || p > n+100 { // of other pages
		t.Errorf("run needs %d bytes, plan %d", n, p)
	}
}

// refuseWith runs a command that fails, and looks for a part of the error's text.
func refuseWith(t *testing.T, part string, args ...string) {
	t.Helper()
	stdout, stderr, status := cachebench(t, args...)
	if status == 0 || !strings.Contains(stderr, part) {
		t.Errorf("cachebench %v: status %d, %d bytes on stdout, stderr %q, want %q in it", args, status, len(stdout), stderr, part)
	}
}

// damage changes some bytes in the middle of a file.
func damage(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		b[len(b)/2+i] ^= 0x55
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRun_ColdOfCluster reads the table's pages from a cluster, alone with pages kept in a folder, and behind files of which one is damaged and then missing.
func TestRun_ColdOfCluster(t *testing.T) {
	dir, _ := packedFeatures(t, 20_000)
	url := "redis://" + redistest.Start(t, redistest.Options{Masters: -1}).Nodes[0].Addr
	files, err := pages.OpenFiles(dir, pages.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	w, err := cluster.NewWriter(t.Context(), url, cluster.Options{Table: files.Manifest().Name})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pages.Copy(t.Context(), files, w, nil); err != nil {
		t.Fatal(err)
	}
	alone := tiersOf(t, 1<<20, "--cold", url, "--host-memory", "1MiB")
	kept := t.TempDir()
	cached := func() *experiment.Result {
		return tiersOf(t, 1<<20, "--cold", url, "--host-memory", "1MiB", "--cold-cache", kept, "--cold-cache-bytes", "64MiB")
	}
	if first := cached(); first.Results.Hits != alone.Results.Hits || first.Tiers.Cold.BytesRead == 0 {
		t.Errorf("with pages kept here %+v, without %+v", first.Tiers.Cold, alone.Tiers.Cold)
	}
	if info, err := os.Stat(filepath.Join(kept, files.Manifest().Name+".pages")); err != nil || info.Size() == 0 {
		t.Errorf("no pages are kept: %v", err)
	}
	cached()
	refuseWith(t, "--cold-cache needs --cold redis://", "run", "--features", dir, "--cold-cache", kept)
	refuseWith(t, "--cold-cache-bytes needs --cold-cache", "run", "--cold", url, "--cold-cache-bytes", "1GiB")
	refuseWith(t, "--cold-cache-bytes", "run", "--cold", url, "--cold-cache", kept, "--cold-cache-bytes", "much")
	refuseWith(t, "must be at least two pages", "run", "--cold", url, "--cold-cache", kept, "--cold-cache-bytes", "1KiB")
	damage(t, filepath.Join(dir, "g1", "pages-00000"))
	refuseWith(t, "corrupt page", "run", "--features", dir, "--host-memory", "1MiB", "--gpu-memory", "256KiB")
	behind := tiersOf(t, 1<<20, "--features", dir, "--cold", url, "--host-memory", "1MiB")
	text := succeed(t, "run", "--features", dir, "--cold", url, "--host-memory", "1MiB", "--gpu-memory", "256KiB", "--batches", "2", "--train-batches", "2", "--batch-size", "32")
	if !strings.Contains(text, "\nfailed     files "+dir+": missing or damaged when ") {
		t.Errorf("the damaged page is not named:\n%s", text)
	}
	if alone.Results.Lookups != behind.Results.Lookups || alone.Results.Hits != behind.Results.Hits {
		t.Errorf("alone %+v, behind files %+v", alone.Tiers.Cold, behind.Tiers.Cold)
	}
	for _, name := range []string{"index", "pages-00000"} {
		if err := os.Remove(filepath.Join(dir, "g1", name)); err != nil {
			t.Fatal(err)
		}
		tiersOf(t, 1<<20, "--features", dir, "--cold", url, "--host-memory", "1MiB")
	}
	refuseWith(t, "index", "run", "--features", dir, "--host-memory", "1MiB", "--gpu-memory", "256KiB")
}

// TestGPU_RunTiers reads the pages of a directory, and those of a cluster, through a cache on a GPU.
func TestGPU_RunTiers(t *testing.T) {
	gputest.Require(t)
	dir, _ := packedFeatures(t, 6000)
	flags := []string{"--device", "cuda", "--host-memory", "512KiB", "--gpu-memory", "64KiB", "--prefetch", "2"}
	files := tiersOf(t, 512<<10, append(flags, "--features", dir)...)
	url := "redis://" + redistest.Start(t, redistest.Options{Masters: -1}).Nodes[0].Addr + "/f"
	succeed(t, "pack", dir, "--out", url)
	behind := tiersOf(t, 512<<10, append(flags, "--cold", url)...)
	if files.Results.Lookups != behind.Results.Lookups || files.Tiers.Prefetch.PrefetchedRows == 0 || behind.Tiers.Prefetch.PrefetchedRows == 0 {
		t.Errorf("files %+v, cluster %+v", files.Tiers, behind.Tiers)
	}
}

// TestPlan_Tiers: what a plan says of tiers is what a run with that budget and host memory does, and the host memory that it finds for a rate reaches the rate.
func TestPlan_Tiers(t *testing.T) {
	dir, file := packedFeatures(t, 20_000)
	workload := []string{"--json", "--batches", "24", "--train-batches", "8", "--batch-size", "32"}
	plan := func(flags ...string) *experiment.Plan {
		t.Helper()
		res := decode[experiment.PlanResult](t, succeed(t, slices.Concat([]string{"plan", "--features", file, "--policy", "static-freq", "--target-hit", "25%"}, workload, flags)...))
		return &res.Plans[0]
	}
	codec := decode[experiment.Result](t, succeed(t, slices.Concat([]string{"run", "--features", dir}, workload)...)).Cache.Codec
	p := plan("--codec", codec, "--host-memory", "1MiB,8MiB", "--cold-bandwidth", "1GB/s", "--rows-per-second", "2000000")
	if len(p.Tiers) != 2 || p.LeastHost == nil {
		t.Fatalf("%+v", p)
	}
	one := &p.Tiers[0]
	ran := tiersOf(t, 1<<20, append(slices.Clone(workload[1:]), "--features", dir, "--host-memory", "1MiB", "--policy", "static-freq", "--gpu-memory", strconv.FormatInt(p.BudgetBytes, 10))...)
	cold := float64(ran.Tiers.Cold.AbsentRows) / float64(ran.Results.Lookups)
	read := float64(ran.Tiers.Cold.BytesRead) / float64(ran.Workload.Batches)
	t.Logf("planned %+v, ran: cold %.4f, %.0f bytes a batch, host tier %+v", one, cold, read, ran.Tiers.Host)
	if math.Abs(one.ColdRatio-cold) > 0.02 || one.BytesRead < 0.9*read || one.BytesRead > 1.1*read || cold < 0.1 {
		t.Errorf("planned %+v; ran: cold %.4f, %.0f bytes a batch", one, cold, read)
	}
	if all := p.Tiers[1]; all.ColdRatio != 0 || all.BytesRead != 0 || math.Abs(one.ColdMS-one.BytesRead/1e6) > 1e-9 || one.BatchMS <= one.PrefetchedMS || one.NeededBandwidth <= 0 {
		t.Errorf("%+v, %+v", one, all)
	}
	if has := float64(ran.Tiers.Host.HostBytes); float64(one.HostBytes) < 0.95*has || float64(one.HostBytes) > 1.05*has || one.SlabRows <= 0 || one.SlabBytes <= 0 || one.SlabBytes > p.BudgetBytes {
		t.Errorf("planned %+v; ran: %+v", one, ran.Tiers.Host)
	}
	if all := p.Tiers[1]; all.HostBytesRead <= one.HostBytesRead || all.SlabBytesRead != one.SlabBytesRead || math.Abs(all.SlabBytesRead/all.HostBytesRead/(all.SlabRatio/all.HostRatio)-1) > 0.2 {
		t.Errorf("%+v, %+v", one, all)
	}
	if !p.LeastHost.Reached || p.LeastHost.Bytes <= 1<<20 || p.LeastHost.Bytes > 8<<20 {
		t.Fatalf("%+v", p.LeastHost)
	}
	at := plan("--codec", codec, "--host-memory", strconv.FormatInt(p.LeastHost.Bytes, 10), "--rows-per-second", "2000000").Tiers[0]
	if at.NeededBandwidth > 1.01e9 {
		t.Errorf("with %+v: %+v", p.LeastHost, at)
	}
	refuseWith(t, "--cold-bandwidth needs --host-memory or --rows-per-second", "plan", "--cold-bandwidth", "1GB/s")
	asked := plan("--codec", codec, "--cold-bandwidth", "1GB/s", "--rows-per-second", "2000000")
	if len(asked.Tiers) != 4 || asked.Tiers[0].ColdRatio <= asked.Tiers[2].ColdRatio || asked.Tiers[3].BytesRead != 0 || asked.LeastHost == nil || *asked.LeastHost != *p.LeastHost {
		t.Errorf("%+v, %+v; least %+v", asked.Tiers, asked.LeastHost, p.LeastHost)
	}
	refuseWith(t, "--host-memory (4096 B) must be at least 2", "plan", "--features", file, "--policy", "static-freq", "--codec", "none", "--host-memory", "4KiB", "--batches", "2", "--train-batches", "1")
	for _, rate := range []string{"3", "3/s", "0GB/s", ""} {
		refuseWith(t, "--cold-bandwidth", "plan", "--host-memory", "1MiB", "--cold-bandwidth", rate)
	}
	refuseWith(t, "--host-memory", "plan", "--host-memory", "")
	refuseWith(t, "--rows-per-second (NaN)", "plan", "--host-memory", "1MiB", "--rows-per-second", "nan")
	refuseWith(t, "--cold-bandwidth", "plan", "--host-memory", "1MiB", "--cold-bandwidth", "fast")
}

// TestPlan_Pages: the plan for a table of pages is that for its file packed so, and takes the codec of the pages.
func TestPlan_Pages(t *testing.T) {
	dir, file := packedFeatures(t, 20_000)
	plan := func(features string, flags ...string) *experiment.PlanResult {
		t.Helper()
		res := decode[experiment.PlanResult](t, succeed(t, slices.Concat([]string{
			"plan", "--json", "--features", features, "--policy", "static-freq", "--target-hit", "25%", "--host-memory", "1MiB", "--cold-reads-per-second", "50000", "--batches", "24", "--train-batches", "8", "--batch-size", "32",
		}, flags)...))
		return &res
	}
	res := plan(dir)
	p := &res.Plans[0]
	m, err := pages.ReadManifest(dir)
	if err != nil || len(res.Plans) != 1 || p.ChosenCodec != m.Codec || res.SampledRows != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	whole := plan(file, "--codec", m.Codec, "--page", strconv.Itoa(m.PageBytes))
	q := &whole.Plans[0]
	for what, of := range map[string][2]float64{
		"budget": {float64(p.BudgetBytes), float64(q.BudgetBytes)}, "hits": {p.PredictedHitRatio, q.PredictedHitRatio}, "cold": {p.Tiers[0].ColdRatio, q.Tiers[0].ColdRatio}, "pages": {p.Tiers[0].PagesRead, q.Tiers[0].PagesRead},
		"length of all pages": {float64(p.Tiers[0].PagesBytes), float64(q.Tiers[0].PagesBytes)},
	} {
		if math.Abs(of[0]-of[1]) > 0.05*of[1] {
			t.Errorf("%s: %g of the pages, %g of the file", what, of[0], of[1])
		}
	}
	if one := p.Tiers[0]; math.Abs(one.ColdMS-one.PagesRead/50) > 1e-9 {
		t.Errorf("%+v", one)
	}
	for want, flags := range map[string][]string{
		"--codec (ndzip) must be": {"--codec", "ndzip"}, "--page and --order mean nothing for table": {"--page", "4KiB"},
	} {
		refuseWith(t, want, slices.Concat([]string{"plan", "--features", dir, "--host-memory", "1MiB", "--batches", "2", "--train-batches", "1"}, flags)...)
	}
	for _, flags := range []string{"--page 4KiB", "--order frequency", "--cold-latency 1ms", "--cold-reads-per-second 5"} {
		refuseWith(t, strings.Fields(flags)[0]+" needs --host-memory or --rows-per-second", append([]string{"plan", "--vertices", "100"}, strings.Fields(flags)...)...)
	}
}

// updatePages replaces rows of a directory of pages, in its log.
func updatePages(t *testing.T, dir string, rows []int64, fill byte) {
	t.Helper()
	m, err := pages.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := delta.Open(delta.Folder(dir), m, delta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if err := log.Append([]delta.Row{{Row: row, Stored: bytes.Repeat([]byte{fill}, m.RowBytes)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestMerge: updated rows of a directory are served by run, counted by verify, and refused by what reads pages alone, until merge has written them into the pages.
func TestMerge(t *testing.T) {
	t.Parallel()
	dir, file := packedFeatures(t, 6000)
	rows := []int64{0, 7, 5999}
	succeed(t, "pack", "merge", dir)
	if _, err := os.Stat(delta.Folder(dir)); err == nil {
		t.Error("merging nothing makes a log")
	}
	refuse(t, "--log (nowhere) must be the folder of the table's updates, and there is none", "pack", "merge", dir, "--log", "nowhere")
	updatePages(t, dir, rows, 0x41)
	before, err := pages.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	// All batches read the updated rows; run compares them with what the table has.
	ids := write(t, "ids", idLines(slices.Concat(slices.Repeat([]int{0, 7, 5999, 8}, 50), rand.New(rand.NewPCG(1, 1)).Perm(6000))))
	run := func() *experiment.Result {
		t.Helper()
		res := decode[experiment.Result](t, succeed(t, "run", "--json", "--verify", "--ids", ids, "--batch-size", "500", "--train-batches", "0", "--prefetch", "2", "--gpu-memory", "64KiB", "--features", dir, "--host-memory", "512KiB"))
		if res.Mismatches != 0 || res.VerifiedRows != res.Results.Lookups || res.Tiers.Cold.RowsRead == 0 || res.Tiers.Prefetch.PrefetchedRows == 0 || len(res.Tiers.Cold.Stores) != 1 {
			t.Errorf("%d of %d rows are wrong: %+v", res.Mismatches, res.VerifiedRows, res.Tiers)
		}
		return &res
	}
	run()
	table, err := dataset.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4*256)
	if err := table.ReadRows(t.Context(), []int64{7, 8, 0, 5999}, got); err != nil {
		t.Fatal(err)
	}
	old := []byte(readFile(t, file))
	old = old[len(old)-6000*256:]
	if x := bytes.Repeat([]byte{0x41}, 256); !bytes.Equal(got[:256], x) || !bytes.Equal(got[512:], bytes.Repeat(x, 2)) || !bytes.Equal(got[256:512], old[8*256:][:256]) {
		t.Error("the updated rows are not read")
	}
	v := decode[experiment.VerifiedPages](t, succeed(t, "pack", "verify", dir, "--json"))
	if v.UpdatedRows != 3 || v.Generation != before.Generation {
		t.Errorf("%+v", v)
	}
	if text := succeed(t, "pack", "verify", dir); !strings.Contains(text, "3 updated rows that are not in the pages yet") {
		t.Errorf("%s", text)
	}
	out := filepath.Join(t.TempDir(), "o.npy")
	refuse(t, dir+" has 3 updated rows in its log that are not in its pages: cachebench pack merge "+dir, "pack", "unpack", dir, "--out", out)
	refuse(t, dir+" has 3 updated rows in its log that are not in its pages: cachebench pack merge "+dir, "pack", dir, "--out", filepath.Join(t.TempDir(), "copy"))
	m := decode[experiment.MergedPages](t, succeed(t, "pack", "merge", dir, "--json"))
	if m.UpdatedRows != 3 || m.UpdateBytes != 3*256 || m.Generation != before.Generation+1 || m.PagesWritten == 0 || m.BytesWritten == 0 {
		t.Errorf("%+v", m)
	}
	if text := succeed(t, "pack", "merge", dir); !strings.Contains(text, "the log has no updated rows") {
		t.Errorf("%s", text)
	}
	run()
	for _, row := range rows {
		copy(old[row*256:][:256], bytes.Repeat([]byte{0x41}, 256))
	}
	succeed(t, "pack", "verify", dir)
	succeed(t, "pack", "unpack", dir, "--out", out)
	if !strings.HasSuffix(readFile(t, out), string(old)) {
		t.Error("other rows are unpacked")
	}
	refuseWith(t, "--log must name", "pack", "merge", "redis://127.0.0.1:1/x")
	refuseWith(t, "no such file", "pack", "merge", filepath.Join(dir, "none"))
	refuseWith(t, "--prefetch (-1)", "run", "--features", dir, "--prefetch", "-1")
}

// TestMerge_Cluster: updates of a table in a cluster, whose log is a folder of this machine, are written into its next generation, unless another was committed
// meanwhile.
func TestMerge_Cluster(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{})
	dir, file := packedFeatures(t, 2000)
	url := c.URL() + "/f"
	succeed(t, "pack", dir, "--out", url)
	updatePages(t, dir, []int64{3, 1999}, 0x42)
	folder := delta.Folder(dir)
	m := decode[experiment.MergedPages](t, succeed(t, "pack", "merge", url, "--log", folder, "--json"))
	if m.UpdatedRows != 2 || m.Generation != 2 {
		t.Errorf("%+v", m)
	}
	out := filepath.Join(t.TempDir(), "o.npy")
	succeed(t, "pack", "unpack", url, "--out", out)
	want := []byte(readFile(t, file))
	want = want[len(want)-2000*256:]
	for _, row := range []int{3, 1999} {
		copy(want[row*256:][:256], bytes.Repeat([]byte{0x42}, 256))
	}
	if !strings.HasSuffix(readFile(t, out), string(want)) {
		t.Error("other rows are in the cluster")
	}
	if n, err := delta.Unmerged(dir); n != 0 || err != nil {
		t.Errorf("%d rows are left in the log: %v", n, err)
	}
	// The directory now differs from the cluster, and says how to bring it up.
	updatePages(t, dir, []int64{4}, 0x43)
	succeed(t, "pack", "merge", dir)
	refuseWith(t, "cachebench pack "+dir+" --out "+url+" brings it up to the directory", "run", "--features", dir, "--cold", url, "--host-memory", "512KiB")
	succeed(t, "pack", dir, "--out", url)
	tiersOf(t, 96<<10, "--features", dir, "--cold", url, "--host-memory", "96KiB", "--gpu-memory", "32KiB")
	tiersOf(t, 96<<10, "--cold", url, "--host-memory", "96KiB", "--gpu-memory", "32KiB") // alone, of three nodes
}

// TestMerge_ClusterWithMovingSlots: merging writes nothing into a cluster while a slot is on its way between masters, and goes on then.
func TestMerge_ClusterWithMovingSlots(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{})
	dir, _ := packedFeatures(t, 2000)
	url := c.URL() + "/f"
	succeed(t, "pack", dir, "--out", url)
	updatePages(t, dir, []int64{3, 1999}, 0x42)
	const slot = 100
	c.BeginMove(slot, c.Nodes[0], c.Nodes[1])
	var merging sync.WaitGroup
	merging.Go(func() {
		if stdout, stderr, status := cachebench(t, "pack", "merge", url, "--log", delta.Folder(dir), "--json"); status != 0 || !strings.Contains(stdout, `"updated_rows": 2`) {
			t.Errorf("status %d, %s, %s", status, stdout, stderr)
		}
	})
	for begun := time.Now(); time.Since(begun) < time.Second; time.Sleep(20 * time.Millisecond) { // in which the merge would have begun
		if all, err := cluster.Generations(t.Context(), url, cluster.Options{}); err != nil || len(all) != 1 {
			t.Errorf("%+v, %v", all, err)
			break
		}
	}
	c.EndMove(slot, c.Nodes[0], c.Nodes[1])
	merging.Wait()
}
