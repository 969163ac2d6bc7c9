package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/realdata"
)

// runKeys are the keys of `run --json` and their types: s string, i integer, f number.
const runKeys = `
device.kind s  device.name s  device.count i
table.name s  table.rows i  table.row_bytes i  table.dtype s
workload.kind s  workload.batches i  workload.ids i  workload.training_batches i  workload.training_measured b
workload.generated.distribution s  workload.generated.seed i
cache.policy s  cache.codec s  cache.codec_choice.codec s  cache.codec_choice.reason s  cache.codec_choice.machine s  cache.codec_choice.basis s  cache.codec_choice.batch_rows f  cache.codec_choice.candidates a
cache.codec_choice.costs.batch f  cache.codec_choice.costs.lookup f  cache.codec_choice.costs.hit f  cache.codec_choice.costs.miss f  cache.codec_choice.costs.miss_byte f
cache.compression_ratio f  cache.budget_bytes i  cache.metadata_bytes i
cache.payload_bytes i  cache.codec_bytes i  cache.index_bytes i  cache.host_bytes i  cache.rows_cached i
results.lookups i  results.hits i  results.hits_by_slab.local i  results.hits_by_slab.peer i  results.misses i  results.hit_ratio f  results.byte_hit_ratio f
results.host_bytes_raw i  results.host_bytes_moved i  results.lookups_per_second f  results.output_gb_per_second f
results.batch_latency_ms.p50 f  results.batch_latency_ms.p95 f  results.batch_latency_ms.p99 f
uncompressed.rows_cached i  uncompressed.hit_ratio f  uncompressed.host_bytes_moved i
uncompressed.lookups_per_second f  uncompressed.output_gb_per_second f
uncompressed.batch_latency_ms.p50 f  uncompressed.batch_latency_ms.p95 f  uncompressed.batch_latency_ms.p99 f
misses_by_reason.cold i  misses_by_reason.evicted i  misses_by_reason.invalidated i
misses_by_reason.oversize i  misses_by_reason.rejected i
predicted_gpu.device s  predicted_gpu.batch_ms f  predicted_gpu.uncompressed_batch_ms f  predicted_gpu.uncached_batch_ms f  other_budgets a
verified_rows i  mismatches i`

// parseKeys reads pairs of a key and its type.
func parseKeys(s string) map[string]string {
	keys := map[string]string{}
	f := strings.Fields(s)
	for i := 0; i < len(f); i += 2 {
		keys[f[i]] = f[i+1]
	}
	return keys
}

// flatten lists the keys below v and the types of their values in keys.
func flatten(prefix string, v any, keys map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			flatten(strings.TrimPrefix(prefix+"."+k, "."), e, keys)
		}
	case string:
		keys[prefix] = "s"
	case bool:
		keys[prefix] = "b"
	case []any:
		keys[prefix] = "a"
	case json.Number:
		keys[prefix] = "f"
		if _, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			keys[prefix] = "i"
		}
	default:
		keys[prefix] = fmt.Sprintf("%T", v)
	}
}

// checkKeys compares the keys of a JSON object with the wanted ones.
func checkKeys(t *testing.T, object any, wanted string) {
	t.Helper()
	got, want := map[string]string{}, parseKeys(wanted)
	flatten("", object, got)
	for k, kind := range got {
		if kind == "i" && want[k] == "f" {
			got[k] = "f" // a whole number is a number
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("keys and types\n got %v\nwant %v", got, want)
	}
}

func TestRun_JSONKeysAndTypes(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--gpu-memory", "500%"}} { // all values 0 that may be
		d := json.NewDecoder(strings.NewReader(succeed(t, slices.Concat([]string{"run", "--json"}, generated, flags)...)))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		checkKeys(t, v, runKeys)
	}
}

// TestRun_Devices: four emulated devices serve the same hits as their slabs together hold, a quarter of them from the own one.
func TestRun_Devices(t *testing.T) {
	t.Parallel()
	args := append([]string{"run", "--json", "--device", "host", "--devices", "4", "--verify"}, small...)
	r := decode[experiment.Result](t, succeed(t, args...))
	q := &r.Results
	if r.Device.Count != 4 || r.Mismatches != 0 || r.VerifiedRows != q.Lookups {
		t.Errorf("%d devices, %d of %d rows differ", r.Device.Count, r.Mismatches, r.VerifiedRows)
	}
	if local, peer := q.HitsBySlab.Local, q.HitsBySlab.Peer; local+peer != q.Hits || local < q.Hits/8 || local > q.Hits/2 {
		t.Errorf("%d local hits and %d of peers' slabs, of %d", local, peer, q.Hits)
	}
	if p := r.Placement; p == nil || p.HotBytes != 0 || len(p.Slabs) != 4 || !strings.Contains(p.Why, "Options.Devices.Rates") {
		t.Errorf("placement: %+v", p)
	}
	// Where peers are slow and misses are fast, all that is worth it is copied; what room is left has rows of either slab.
	copied := decode[experiment.Result](t, succeed(t, append([]string{"run", "--json", "--device", "host", "--gpus", "0,2", "--rates", "local=100,peer=0.1,host=90"}, small...)...))
	if h := copied.Results.HitsBySlab; copied.Device.Count != 2 || h.Peer > h.Local/16 || copied.Placement.CopiedRows == 0 || copied.Placement.RowNanos <= 0 ||
		copied.Placement.RowNanos >= copied.Placement.PartitionNanos {
		t.Errorf("%+v of %d devices, %+v", h, copied.Device.Count, copied.Placement)
	}
	text := succeed(t, append([]string{"run", "--device", "host", "--devices", "4"}, small...)...)
	if !strings.Contains(text, "from the own slab") || !strings.Contains(text, "device     4 × host") {
		t.Errorf("no hits by slab:\n%s", text)
	}
}

func TestRun_Defaults(t *testing.T) {
	t.Parallel()
	r := decode[experiment.Result](t, succeed(t, append([]string{"run", "--json"}, generated...)...))
	if r.VerifiedRows != 0 || r.Mismatches != 0 {
		t.Errorf("verified %d rows without --verify", r.VerifiedRows)
	}
	if r.Table.Rows != 2000 || r.Table.RowBytes != 512 || r.Table.DType != "float32" || r.Workload.Kind != "neighbor-sampling" ||
		r.Workload.Batches != 6 || r.Workload.TrainingBatches != 4 || r.Workload.TrainingMeasured || r.Device.Count != 1 ||
		r.Cache.Policy != "freq" || r.Cache.BudgetBytes != 2000*512*5/100 {
		t.Errorf("%+v", r)
	}
}

// TestRun_Relations runs everything that can be chosen; run checks the relations.
func TestRun_Relations(t *testing.T) {
	t.Parallel()
	var cases [][]string
	for _, policy := range admission.Names() {
		cases = append(cases, []string{"--policy", policy}, []string{"--policy", policy, "--devices", "8", "--gpu-memory", "1%"})
	}
	for _, codec := range registry.Names() {
		flags := []string{"--codec", codec, "--policy", "static-freq", "--host-tier", "packed"}
		switch codec {
		case "ibp2": // of 16-bit elements only
			flags = append(flags, "--cast", "bf16")
		case "parts":
			flags = append(flags, "--cast", "f8e4m3/e8m0:32")
		}
		cases = append(cases, flags)
	}
	cases = append(cases, []string{"--train-batches", "0"}, []string{"--batches", "1"}, []string{"--batch-size", "1"},
		[]string{"--fanouts", "3"}, []string{"--fanouts", "1,2,3"}, []string{"--workers", "1"}, []string{"--seed", "0"},
		[]string{"--cast", "bf16"}, []string{"--cast", "f16"}, []string{"--device", "host"}, []string{"--vertices", "1", "--gpu-memory", "4KiB"})
	for _, flags := range cases {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			t.Parallel()
			run(t, slices.Concat(small, flags)...)
		})
	}
}

func TestRun_Cora(t *testing.T) {
	t.Parallel()
	cora := realdata.Table(t, "cora.npz")
	r := run(t, "--features", cora, "--graph", cora, "--gpu-memory", "1%", "--batches", "20")
	if r.Table.Rows != 2708 || r.Table.RowBytes != 4*1433 || r.Table.Name != cora+":features" {
		t.Errorf("table %+v", r.Table)
	}
	if r.Cache.RowsCached < 19*r.Uncompressed.RowsCached || r.Uncompressed.RowsCached == 0 {
		t.Errorf("rows cached: %d, uncompressed %d: want at least 19 times as many", r.Cache.RowsCached, r.Uncompressed.RowsCached)
	}
	if raw := int64(2708 * 4 * 1433); r.Cache.BudgetBytes != raw/100 {
		t.Errorf("budget %d, want %d", r.Cache.BudgetBytes, raw/100)
	}
	if r.Results.HitRatio <= r.Uncompressed.HitRatio || r.Results.HostBytesMoved*19 > r.Uncompressed.HostBytesMoved {
		t.Errorf("results %+v, uncompressed %+v", r.Results, r.Uncompressed)
	}
}

// TestRun_RealFiles verifies every row of the real inputs, with a generated graph over those that have none.
func TestRun_RealFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"pubmed_tx.npz", "reddit.npz", "ncf_user.npy", "sz_testdouble.npy", "sz_testfloat.npy"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := []string{"--features", realdata.Table(t, name), "--batches", "10", "--train-batches", "5", "--gpu-memory", "10%"}
			if name == "reddit.npz" {
				flags = append(flags, "--graph", realdata.Table(t, name))
			}
			if r := run(t, flags...); r.Results.HostBytesMoved > r.Uncompressed.HostBytesMoved {
				t.Errorf("host bytes moved: %d, uncompressed %d", r.Results.HostBytesMoved, r.Uncompressed.HostBytesMoved)
			}
		})
	}
}

func TestRun_Cast(t *testing.T) {
	t.Parallel()
	features := realdata.Table(t, "ncf_user.npy")
	for cast, dtype := range map[string]string{"": "float32", "bf16": "bfloat16", "f16": "float16"} {
		rowBytes, args := 128, []string{"--features", features, "--batches", "5", "--train-batches", "5"}
		if cast != "" {
			rowBytes, args = 64, append(args, "--cast", cast)
		}
		r := run(t, args...)
		if r.Table.RowBytes != rowBytes || r.Table.DType != dtype || r.Table.Rows != 6040 || r.Cache.BudgetBytes != int64(6040*rowBytes*5/100) {
			t.Errorf("--cast %q: table %+v, budget %d", cast, r.Table, r.Cache.BudgetBytes)
		}
	}
}

func TestRun_Budget(t *testing.T) {
	t.Parallel()
	const raw = 2000 * 512
	for budget, want := range map[string]int64{"1%": raw / 100, "2.5 %": raw / 40, "64KiB": 65536, "64kB": 64000, "1000000": 1e6, "1.5MiB": 3 << 19} {
		for _, devices := range []int64{1, 3} {
			r := run(t, slices.Concat(small, []string{"--gpu-memory", budget, "--devices", fmt.Sprint(devices), "--policy", "static-degree"})...)
			if r.Cache.BudgetBytes != devices*want || r.Device.Count != int(devices) {
				t.Errorf("--gpu-memory %s --devices %d: budget %d, want %d; device %+v", budget, devices, r.Cache.BudgetBytes, devices*want, r.Device)
			}
		}
	}
}

func TestRun_BudgetLargerThanTheTable(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{"--gpu-memory", "200%"}, {"--gpu-memory", "1GiB"}, {"--gpu-memory", "1TiB"}, {"--gpu-memory", "150%", "--devices", "8"}, {"--gpu-memory", "200%", "--codec", "none"}} {
		r := run(t, slices.Concat(small, flags)...)
		if r.Cache.RowsCached != 2000 || r.Results.Misses != 0 || r.Results.HitRatio != 1 || r.Results.HostBytesMoved != 0 ||
			r.Uncompressed.RowsCached != 2000 || r.Uncompressed.HitRatio != 1 || r.Uncompressed.HostBytesMoved != 0 {
			t.Errorf("%v: %+v", flags, r)
		}
	}
}

// TestRun_CodecNoneEqualsUncompressed: without a codec, both caches are the same one.
func TestRun_CodecNoneEqualsUncompressed(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"static-degree", "static-freq", "static-optimal"} {
		for _, devices := range []string{"1", "4"} {
			r := run(t, slices.Concat(small, []string{"--codec", "none", "--policy", policy, "--devices", devices})...)
			u := r.Uncompressed
			if r.Cache.RowsCached != u.RowsCached || r.Results.HitRatio != u.HitRatio || r.Results.HostBytesMoved != u.HostBytesMoved || r.Results.HostBytesMoved != r.Results.HostBytesRaw {
				t.Errorf("%s, %s devices: %+v", policy, devices, r)
			}
		}
	}
}

// TestRun_UncompressedIsThatOfCodecNone: the column beside a compressed cache is what --codec none measures.
func TestRun_UncompressedIsThatOfCodecNone(t *testing.T) {
	t.Parallel()
	flags := slices.Concat(small, []string{"--policy", "static-freq"})
	with, without := timeless(run(t, flags...)), timeless(run(t, slices.Concat(flags, []string{"--codec", "none"})...))
	if with.Uncompressed != without.Uncompressed || with.Cache.Codec == "none" {
		t.Errorf("uncompressed: %+v beside %s, %+v beside none", with.Uncompressed, with.Cache.Codec, without.Uncompressed)
	}
}

// TestRun_PackedEqualsInPlace: in place, the budget also pays for one bit a row; with that on top both cache the same.
func TestRun_PackedEqualsInPlace(t *testing.T) {
	t.Parallel()
	for codec, rowBits := range map[string]int{"ibp4": 256, "ibp8": 256, "none": 0} {
		flags := func(tier string, budget int) []string {
			return slices.Concat(small, []string{"--policy", "static-freq", "--codec", codec, "--host-tier", tier, "--gpu-memory", fmt.Sprint(budget)})
		}
		in, packed := timeless(run(t, flags("inplace", 50000+rowBits)...)), timeless(run(t, flags("packed", 50000)...))
		a, b := in.Cache, packed.Cache
		if in.Results != packed.Results || a.RowsCached != b.RowsCached || a.PayloadBytes != b.PayloadBytes || a.MetadataBytes != b.MetadataBytes+int64(rowBits) {
			t.Errorf("%s: in place %+v, packed %+v", codec, in, packed)
		}
		if a.IndexBytes != 0 || codec != "none" && (b.IndexBytes != 8*2000 || b.HostBytes >= a.HostBytes) {
			t.Errorf("%s: in place %+v, packed %+v", codec, a, b)
		}
	}
}

func TestRun_SameSeedSameResult(t *testing.T) {
	t.Parallel()
	for _, policy := range admission.Names() {
		flags := slices.Concat(small, []string{"--policy", policy, "--seed"})
		if policy == admission.Default { // with the default codec too
			flags = slices.Concat(generated, []string{"--policy", policy, "--seed"})
		}
		first, second := run(t, append(flags, "7")...), run(t, append(flags, "7", "--workers", "1")...)
		a, b, other := timeless(first), timeless(second), timeless(run(t, append(flags, "8")...))
		b.Device.Name = a.Device.Name // says how many workers
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: seed 7 gave\n%+v\nand\n%+v", policy, a, b)
		}
		if a.Results == other.Results {
			t.Errorf("%s: seeds 7 and 8 gave %+v", policy, a.Results)
		}
	}
}

// TestRun_OptimalIsBest: rows are equally long without a codec, so the rows asked for most are the best choice.
func TestRun_OptimalIsBest(t *testing.T) {
	t.Parallel()
	flags := slices.Concat(small, []string{"--codec", "none", "--policy"})
	best := run(t, append(flags, "static-optimal")...)
	for _, policy := range admission.Names() {
		if r := run(t, append(flags, policy)...); r.Results.Hits > best.Results.Hits {
			t.Errorf("%s: %d hits, static-optimal %d", policy, r.Results.Hits, best.Results.Hits)
		}
	}
}

// TestRun_IDsOfNumPy: a run with row numbers of an .npy file is the run with the same ones of a text, of one table and of several.
func TestRun_IDsOfNumPy(t *testing.T) {
	t.Parallel()
	features := write(t, "f.npy", npyOf(t, dtype.Float32, smooth(100*32), 100, 32))
	second := write(t, "g.npy", npyOf(t, dtype.Float32, smooth(100*32), 100, 32))
	r := rand.New(rand.NewPCG(1, 1))
	var list []int
	var rows []int64
	for range 1000 {
		list = append(list, r.IntN(10)*r.IntN(11))
		rows = append(rows, int64(list[len(list)-1]))
	}
	lines, array := write(t, "ids.txt", idLines(list)), write(t, "ids.npy", ints(t, rows...))
	flags := []string{"--features", features, "--gpu-memory", "3KiB", "--codec", "none", "--verify"}
	text, numpy := run(t, append(flags, "--ids", lines)...), run(t, append(flags, "--ids", array)...)
	if numpy.Workload != text.Workload || numpy.Results.Hits != text.Results.Hits || numpy.Workload.IDs != 1000 || numpy.Workload.Generated != nil {
		t.Errorf("%+v, %d hits; of a text %+v, %d hits", numpy.Workload, numpy.Results.Hits, text.Workload, text.Results.Hits)
	}
	two := []string{features, second}
	all := tables(t, two, "--ids", array+","+lines, "--codec", "none", "--gpu-memory", "20%")
	if same := tables(t, two, "--ids", lines+","+lines, "--codec", "none", "--gpu-memory", "20%"); all.Workload != same.Workload || all.Total.Served != same.Total.Served || all.Total.Lookups != 2000 {
		t.Errorf("%+v; of texts %+v", all.Total.Served, same.Total.Served)
	}
}

func TestRun_IDs(t *testing.T) {
	t.Parallel()
	features := write(t, "f.npy", npyOf(t, dtype.Float32, smooth(100*32), 100, 32))
	r := rand.New(rand.NewPCG(1, 1))
	list := make([]int, 1000)
	for i := range list {
		list[i] = r.IntN(10) * r.IntN(11) // duplicates, unevenly
	}
	ids := write(t, "ids.txt", idLines(list))
	for _, c := range []struct {
		flags             string
		batches, training int
		measured          bool
		lo, hi            int // of the list
	}{
		{"", 4, 1, true, 0, 1000}, // a quarter each
		{"--batch-size 100", 10, 2, true, 0, 1000},
		{"--batch-size 300", 4, 1, true, 0, 1000}, // the last batch is shorter
		{"--batch-size 100 --train-batches 4", 6, 4, false, 400, 1000},
		{"--batch-size 100 --train-batches 0", 10, 0, false, 0, 1000},
		{"--batch-size 100 --train-batches 4 --batches 2", 2, 4, false, 400, 600},
		{"--batch-size 100 --train-batches 9", 1, 9, false, 900, 1000},
		{"--batch-size 100 --batches 3", 3, 1, true, 0, 300},
		{"--batch-size 100 --batches 50", 10, 2, true, 0, 1000},
	} {
		flags := append([]string{"--features", features, "--ids", ids, "--gpu-memory", "3KiB", "--codec", "none"}, strings.Fields(c.flags)...)
		r := run(t, flags...)
		w := r.Workload
		if w.Kind != "ids" || w.Batches != c.batches || w.IDs != int64(c.hi-c.lo) || w.TrainingBatches != c.training || w.TrainingMeasured != c.measured {
			t.Errorf("%s: workload %+v", c.flags, w)
		}
		// The oracle's hits are those of the rows asked for most.
		r = run(t, append(flags, "--policy", "static-optimal")...)
		frequency := make([]int, 100)
		for _, id := range list[c.lo:c.hi] {
			frequency[id]++
		}
		slices.Sort(frequency)
		hits := 0
		for _, n := range frequency[100-r.Cache.RowsCached:] {
			hits += n
		}
		if r.Results.Hits != int64(hits) || r.Cache.RowsCached < 10 {
			t.Errorf("%s: %d hits with %d rows cached, want %d", c.flags, r.Results.Hits, r.Cache.RowsCached, hits)
		}
	}
}

func TestRun_IDsSmallest(t *testing.T) {
	t.Parallel()
	one := write(t, "one.npy", npyOf(t, dtype.Uint8, []byte{42}, 1, 1))
	for name, text := range map[string]string{"one": "0", "same": strings.Repeat("0\n", 5000), "crlf": "\ufeff# rows\r\n\r\n 0\r\n0\r\n"} {
		r := run(t, "--features", one, "--ids", write(t, name, []byte(text)), "--gpu-memory", "4KiB")
		if r.Table.Rows != 1 || r.Results.Hits != r.Results.Lookups || r.Workload.IDs != int64(strings.Count(text, "0")) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestRun_IDsWithDegrees: static-degree takes the graph for the degrees only; it may have fewer vertices than the table rows.
func TestRun_IDsWithDegrees(t *testing.T) {
	t.Parallel()
	features := write(t, "f.npy", npyOf(t, dtype.Float32, smooth(100*32), 100, 32))
	graph := write(t, "g.npz", npzOf(t, member{"indptr", ints(t, 0, 0, 4)}, member{"indices", ints(t, 0, 1, 1, 1)}))
	ids := write(t, "ids", []byte("1\n1\n99\n"))
	if r := run(t, "--features", features, "--ids", ids, "--graph", graph, "--policy", "static-degree", "--gpu-memory", "1KiB"); r.Results.Hits < 2 {
		t.Errorf("%+v", r)
	}
}

// TestRun_AcceptedTables runs what is unusual but right.
func TestRun_AcceptedTables(t *testing.T) {
	t.Parallel()
	const rows, columns = 64, 12
	plain := smooth(rows * columns)
	big, fortran := make([]byte, len(plain)), make([]byte, len(plain))
	for i := range rows * columns {
		binary.BigEndian.PutUint32(big[4*i:], binary.LittleEndian.Uint32(plain[4*i:]))
		copy(fortran[4*(i%columns*rows+i/columns):][:4], plain[4*i:][:4])
	}
	nans := bytes.Clone(plain)
	for i := 0; i < len(nans); i += 8 {
		binary.LittleEndian.PutUint32(nans[i:], 0x7f800001+uint32(i)) // signalling, with a payload
	}
	mib := noise(3 * (1<<20 - 1))
	shape := fmt.Sprintf("(%d, %d)", rows, columns)
	file := func(b []byte) string { return write(t, "t.npy", b) }
	results := map[string]experiment.Result{}
	for _, c := range []struct {
		name, path     string
		rows, rowBytes int
		flags          []string
	}{
		{"plain", file(npyOf(t, dtype.Float32, plain, rows, columns)), rows, 4 * columns, nil},
		{"Fortran order", file(rawNPY("'<f4'", "True", shape, fortran)), rows, 4 * columns, nil},
		{"big-endian", file(rawNPY("'>f4'", "False", shape, big)), rows, 4 * columns, nil},
		{"rank 3", file(npyOf(t, dtype.Float32, plain, 4, rows/4, columns)), rows, 4 * columns, nil},
		{"npz, the only array", write(t, "t.npz", npzOf(t, member{"x", npyOf(t, dtype.Float32, plain, rows, columns)})), rows, 4 * columns, nil},
		{"npz, a named array", write(t, "t.npz", npzOf(t, member{"x", npyOf(t, dtype.Float32, plain, rows, columns)}, member{"y", npyOf(t, dtype.Float32, nans, rows, columns)})) + ":x", rows, 4 * columns, nil},
		{"safetensors, the only tensor", write(t, "t.safetensors", tensorsOf(t, tensorMember{"x", "F32", []int{rows, columns}, plain})), rows, 4 * columns, nil},
		{"safetensors, a named tensor", write(t, "t.safetensors", tensorsOf(t, tensorMember{"x", "F32", []int{4, rows / 4, columns}, plain}, tensorMember{"y", "F32", []int{rows, columns}, nans})) + ":x", rows, 4 * columns, nil},
		{"NaN payloads", file(npyOf(t, dtype.Float32, nans, rows, columns)), rows, 4 * columns, nil},
		{"NaN payloads cast", file(npyOf(t, dtype.Float32, nans, rows, columns)), rows, 2 * columns, []string{"--cast", "bf16"}},
		{"rows of 1 byte", file(npyOf(t, dtype.Uint8, noise(5000), 5000, 1)), 5000, 1, nil},
		{"rows of 1 bool", file(npyOf(t, dtype.Bool, make([]byte, 500), 500, 1)), 500, 1, nil},
		{"rows of 3 bytes", file(npyOf(t, dtype.Int8, noise(300), 100, 3)), 100, 3, []string{"--host-tier", "packed"}},
		{"rows of 1 MiB - 1", file(npyOf(t, dtype.Uint8, mib, 3, 1<<20-1)), 3, 1<<20 - 1, []string{"--gpu-memory", "1100KiB", "--batches", "2", "--fanouts", "3"}},
		{"rows of 1 MiB - 1, compressible", file(npyOf(t, dtype.Uint8, make([]byte, len(mib)), 3, 1<<20-1)), 3, 1<<20 - 1, []string{"--gpu-memory", "1100KiB", "--batches", "2", "--fanouts", "3", "--host-tier", "packed"}},
		{"one row", file(npyOf(t, dtype.Float64, noise(80), 1, 10)), 1, 80, nil},
	} {
		flags := []string{"--features", c.path, "--gpu-memory", "4KiB", "--batches", "4", "--train-batches", "2", "--batch-size", "8", "--policy", "static-freq", "--codec", "ibp4"}
		r := timeless(run(t, append(flags, c.flags...)...))
		if r.Table.Rows != int64(c.rows) || r.Table.RowBytes != c.rowBytes {
			t.Errorf("%s: table %+v", c.name, r.Table)
		}
		r.Table.Name = ""
		results[c.name] = r
	}
	want := results["plain"]
	for _, same := range []string{"Fortran order", "big-endian", "rank 3", "npz, the only array", "npz, a named array", "safetensors, the only tensor", "safetensors, a named tensor"} {
		if got := results[same]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", same, got, want)
		}
	}
}

const supported = "float16, bfloat16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool"

// TestRun_LookupsAreSaid: the text says that lookups are generated, how, and with which seed, unless a file has them.
func TestRun_LookupsAreSaid(t *testing.T) {
	t.Parallel()
	table := npyOf(t, dtype.Float32, smooth(1000*8), 1000, 8)
	one, two := write(t, "one.npy", table), write(t, "two.npy", table)
	graph, ids, text := write(t, "g.npz", graphOf(t, 1000)), write(t, "ids", []byte("1\n2\n3\n4\n5\n6\n7\n8\n")), textFile(t)
	const nothing = ". Hit rates say nothing about yours, which "
	for _, c := range []struct {
		want string // "" for none
		args []string
	}{
		{"generated with seed 9: vertices in random order and 3,2 neighbours of each, hop by hop, in a generated graph of 15 edges a vertex, whose targets follow a power law" + nothing + "--ids or --graph reads",
			[]string{"--features", one, "--fanouts", "3,2", "--seed", "9"}},
		{"generated with seed 1 from " + graph + ": vertices in random order and 3,2 neighbours of each, hop by hop", []string{"--features", one, "--graph", graph, "--fanouts", "3,2"}},
		{"generated with seed 1: bags of 7 rows by a power law, P(rank) ∝ 1/rank" + nothing + "--ids reads", []string{"--features", one, "--workload", "embedding", "--bag", "7"}},
		{"generated with seed 1: rows of each table by a power law, P(rank) ∝ 1/rank" + nothing + "--ids reads", []string{"--features", one + "," + two}},
		{"generated with seed 5 from " + text + ": n-grams of a text of 300 tokens that is drawn by the pairs of the given one",
			[]string{"--workload", "ngram", "--tokens", text, "--rows", "2000", "--text-tokens", "300", "--data-seed", "5", "--batch-size", "10"}},
		{"", []string{"--workload", "ngram", "--tokens", text, "--rows", "2000", "--batch-size", "10"}},
		{"", []string{"--features", one, "--ids", ids}},
		{"", []string{"--features", one + "," + two, "--ids", ids + "," + ids}},
	} {
		args := append([]string{"run", "--device", "host", "--codec", "none", "--gpu-memory", "30%"}, c.args...)
		if !slices.Contains(args, "--ids") {
			args = append(args, "--batches", "2", "--train-batches", "1")
		}
		out := succeed(t, args...)
		_, line, said := strings.Cut(out, "\nlookups    ")
		if line, _, _ = strings.Cut(line, "\n"); said != (c.want != "") || line != c.want {
			t.Errorf("%q says %q, want %q", c.args, line, c.want)
		}
	}
}
