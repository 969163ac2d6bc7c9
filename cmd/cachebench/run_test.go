package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/npy"
)

// runKeys are the keys of `run --json` and their types: s string, i integer, f number.
const runKeys = `
device.kind s  device.name s  device.count i
table.name s  table.rows i  table.row_bytes i  table.dtype s
workload.kind s  workload.batches i  workload.ids i  workload.training_batches i  workload.training_measured b
cache.policy s  cache.codec s  cache.compression_ratio f  cache.budget_bytes i  cache.metadata_bytes i
cache.payload_bytes i  cache.codec_bytes i  cache.index_bytes i  cache.host_bytes i  cache.rows_cached i
results.lookups i  results.hits i  results.misses i  results.hit_ratio f  results.byte_hit_ratio f
results.host_bytes_raw i  results.host_bytes_moved i  results.lookups_per_second f  results.output_gb_per_second f
results.batch_latency_ms.p50 f  results.batch_latency_ms.p95 f  results.batch_latency_ms.p99 f
uncompressed.rows_cached i  uncompressed.hit_ratio f  uncompressed.host_bytes_moved i
uncompressed.lookups_per_second f  uncompressed.output_gb_per_second f
uncompressed.batch_latency_ms.p50 f  uncompressed.batch_latency_ms.p95 f  uncompressed.batch_latency_ms.p99 f
misses_by_reason.cold i  misses_by_reason.evicted i  misses_by_reason.invalidated i
misses_by_reason.oversize i  misses_by_reason.rejected i
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
	for _, flags := range [][]string{nil, {"--budget", "500%"}} { // all values 0 that may be
		d := json.NewDecoder(strings.NewReader(succeed(t, slices.Concat([]string{"run", "--json"}, small, flags)...)))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		checkKeys(t, v, runKeys)
	}
}

func TestRun_Defaults(t *testing.T) {
	t.Parallel()
	r := decode[experiment.Result](t, succeed(t, append([]string{"run", "--json"}, small...)...))
	if r.VerifiedRows != 0 || r.Mismatches != 0 {
		t.Errorf("verified %d rows without --verify", r.VerifiedRows)
	}
	if r.Table.Rows != 2000 || r.Table.RowBytes != 512 || r.Table.DType != "float32" || r.Workload.Kind != "neighbor-sampling" ||
		r.Workload.Batches != 6 || r.Workload.TrainingBatches != 4 || r.Workload.TrainingMeasured || r.Device.Count != 1 ||
		r.Cache.Policy != "tinylfu" || r.Cache.BudgetBytes != 2000*512*5/100 {
		t.Errorf("%+v", r)
	}
}

// TestRun_Relations runs everything that can be chosen; run checks the relations.
func TestRun_Relations(t *testing.T) {
	t.Parallel()
	var cases [][]string
	for _, policy := range experiment.Policies() {
		cases = append(cases, []string{"--policy", policy}, []string{"--policy", policy, "--devices", "8", "--budget", "1%"})
	}
	for _, codec := range registry.Names() {
		cases = append(cases, []string{"--codec", codec, "--policy", "static-freq", "--host-tier", "packed"})
	}
	cases = append(cases, []string{"--warmup-batches", "0"}, []string{"--batches", "1"}, []string{"--batch-size", "1"},
		[]string{"--fanouts", "3"}, []string{"--fanouts", "1,2,3"}, []string{"--workers", "1"}, []string{"--seed", "0"},
		[]string{"--cast", "bf16"}, []string{"--cast", "f16"}, []string{"--device", "host"}, []string{"--vertices", "1", "--budget", "4KiB"})
	for _, flags := range cases {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			t.Parallel()
			run(t, slices.Concat(small, flags)...)
		})
	}
}

func TestRun_Cora(t *testing.T) {
	t.Parallel()
	cora := data(t, "cora.npz")
	r := run(t, "--features", cora, "--graph", cora, "--budget", "1%", "--batches", "20")
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
			flags := []string{"--features", data(t, name), "--batches", "10", "--warmup-batches", "5", "--budget", "10%"}
			if name == "reddit.npz" {
				flags = append(flags, "--graph", data(t, name))
			}
			if r := run(t, flags...); r.Cache.RowsCached < r.Uncompressed.RowsCached {
				t.Errorf("rows cached: %d, uncompressed %d", r.Cache.RowsCached, r.Uncompressed.RowsCached)
			}
		})
	}
}

func TestRun_Cast(t *testing.T) {
	t.Parallel()
	features := data(t, "ncf_user.npy")
	for cast, dtype := range map[string]string{"": "float32", "bf16": "bfloat16", "f16": "float16"} {
		rowBytes := 128
		if cast != "" {
			rowBytes = 64
		}
		r := run(t, "--features", features, "--cast", cast, "--batches", "5", "--warmup-batches", "5")
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
			r := run(t, slices.Concat(small, []string{"--budget", budget, "--devices", fmt.Sprint(devices), "--policy", "static-degree"})...)
			if r.Cache.BudgetBytes != devices*want || r.Device.Count != int(devices) {
				t.Errorf("--budget %s --devices %d: budget %d, want %d; device %+v", budget, devices, r.Cache.BudgetBytes, devices*want, r.Device)
			}
		}
	}
}

func TestRun_BudgetLargerThanTheTable(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{"--budget", "200%"}, {"--budget", "1GiB"}, {"--budget", "1TiB"}, {"--budget", "150%", "--devices", "8"}, {"--budget", "200%", "--codec", "none"}} {
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
			return slices.Concat(small, []string{"--policy", "static-freq", "--codec", codec, "--host-tier", tier, "--budget", fmt.Sprint(budget)})
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
	for _, policy := range []string{"static-degree", "static-freq", "static-optimal"} {
		flags := slices.Concat(small, []string{"--policy", policy, "--seed"})
		a, b, other := timeless(run(t, append(flags, "7")...)), timeless(run(t, append(flags, "7", "--workers", "1")...)), timeless(run(t, append(flags, "8")...))
		b.Device.Name = a.Device.Name // says how many workers
		if fmt.Sprint(a) != fmt.Sprint(b) {
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
	for _, policy := range []string{"static-degree", "static-freq", "tinylfu"} {
		if r := run(t, append(flags, policy)...); r.Results.Hits > best.Results.Hits {
			t.Errorf("%s: %d hits, static-optimal %d", policy, r.Results.Hits, best.Results.Hits)
		}
	}
}

func TestRun_IDs(t *testing.T) {
	t.Parallel()
	features := write(t, "f.npy", npyOf(t, npy.Float32, smooth(100*32), 100, 32))
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
		{"", 1, 0, false, 0, 1000},
		{"--batch-size 100", 10, 2, true, 0, 1000},
		{"--batch-size 300", 4, 1, true, 0, 1000}, // the last batch is shorter
		{"--batch-size 100 --warmup-batches 4", 6, 4, false, 400, 1000},
		{"--batch-size 100 --warmup-batches 0", 10, 0, false, 0, 1000},
		{"--batch-size 100 --warmup-batches 4 --batches 2", 2, 4, false, 400, 600},
		{"--batch-size 100 --warmup-batches 9", 1, 9, false, 900, 1000},
		{"--batch-size 100 --batches 3", 3, 0, false, 0, 300},
		{"--batch-size 100 --batches 50", 10, 2, true, 0, 1000},
	} {
		flags := append([]string{"--features", features, "--ids", ids, "--budget", "3KiB", "--codec", "none"}, strings.Fields(c.flags)...)
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
	one := write(t, "one.npy", npyOf(t, npy.Uint8, []byte{42}, 1, 1))
	for name, text := range map[string]string{"one": "0", "same": strings.Repeat("0\n", 5000), "crlf": "\ufeff# rows\r\n\r\n 0\r\n0\r\n"} {
		r := run(t, "--features", one, "--ids", write(t, name, []byte(text)), "--budget", "4KiB")
		if r.Table.Rows != 1 || r.Results.Hits != r.Results.Lookups || r.Workload.IDs != int64(strings.Count(text, "0")) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestRun_IDsWithDegrees: static-degree takes the graph for the degrees only; it may have fewer vertices than the table rows.
func TestRun_IDsWithDegrees(t *testing.T) {
	t.Parallel()
	features := write(t, "f.npy", npyOf(t, npy.Float32, smooth(100*32), 100, 32))
	graph := write(t, "g.npz", npzOf(t, member{"indptr", ints(t, 0, 0, 4)}, member{"indices", ints(t, 0, 1, 1, 1)}))
	ids := write(t, "ids", []byte("1\n1\n99\n"))
	if r := run(t, "--features", features, "--ids", ids, "--graph", graph, "--policy", "static-degree", "--budget", "1KiB"); r.Results.Hits < 2 {
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
		{"plain", file(npyOf(t, npy.Float32, plain, rows, columns)), rows, 4 * columns, nil},
		{"Fortran order", file(rawNPY("'<f4'", "True", shape, fortran)), rows, 4 * columns, nil},
		{"big-endian", file(rawNPY("'>f4'", "False", shape, big)), rows, 4 * columns, nil},
		{"rank 3", file(npyOf(t, npy.Float32, plain, 4, rows/4, columns)), rows, 4 * columns, nil},
		{"npz, the only array", write(t, "t.npz", npzOf(t, member{"x", npyOf(t, npy.Float32, plain, rows, columns)})), rows, 4 * columns, nil},
		{"npz, a named array", write(t, "t.npz", npzOf(t, member{"x", npyOf(t, npy.Float32, plain, rows, columns)}, member{"y", npyOf(t, npy.Float32, nans, rows, columns)})) + ":x", rows, 4 * columns, nil},
		{"NaN payloads", file(npyOf(t, npy.Float32, nans, rows, columns)), rows, 4 * columns, nil},
		{"NaN payloads cast", file(npyOf(t, npy.Float32, nans, rows, columns)), rows, 2 * columns, []string{"--cast", "bf16"}},
		{"rows of 1 byte", file(npyOf(t, npy.Uint8, noise(5000), 5000, 1)), 5000, 1, nil},
		{"rows of 1 bool", file(npyOf(t, npy.Bool, make([]byte, 500), 500, 1)), 500, 1, nil},
		{"rows of 3 bytes", file(npyOf(t, npy.Int8, noise(300), 100, 3)), 100, 3, []string{"--host-tier", "packed"}},
		{"rows of 1 MiB - 1", file(npyOf(t, npy.Uint8, mib, 3, 1<<20-1)), 3, 1<<20 - 1, []string{"--budget", "1100KiB", "--batches", "2"}},
		{"rows of 1 MiB - 1, compressible", file(npyOf(t, npy.Uint8, make([]byte, len(mib)), 3, 1<<20-1)), 3, 1<<20 - 1, []string{"--budget", "1100KiB", "--batches", "2", "--host-tier", "packed"}},
		{"one row", file(npyOf(t, npy.Float64, noise(80), 1, 10)), 1, 80, nil},
	} {
		flags := []string{"--features", c.path, "--budget", "4KiB", "--batches", "4", "--warmup-batches", "2", "--batch-size", "8", "--policy", "static-freq"}
		r := timeless(run(t, append(flags, c.flags...)...))
		if r.Table.Rows != int64(c.rows) || r.Table.RowBytes != c.rowBytes {
			t.Errorf("%s: table %+v", c.name, r.Table)
		}
		r.Table.Name = ""
		results[c.name] = r
	}
	want := fmt.Sprint(results["plain"])
	for _, same := range []string{"Fortran order", "big-endian", "rank 3", "npz, the only array", "npz, a named array"} {
		if got := fmt.Sprint(results[same]); got != want {
			t.Errorf("%s:\n got %s\nwant %s", same, got, want)
		}
	}
}

const supported = "float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool"

func TestRun_BadFiles(t *testing.T) {
	t.Parallel()
	good := npyOf(t, npy.Float32, smooth(80), 10, 8)
	goodNPZ := npzOf(t, member{"features", good})
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	graph := func(indptr, indices []byte) []byte {
		return npzOf(t, member{"indptr", indptr}, member{"indices", indices})
	}
	for name, b := range map[string][]byte{
		"ok.npy":          good,
		"truncated.npy":   good[:len(good)-7],
		"trailing.npy":    append(bytes.Clone(good), 1, 2, 3),
		"header.npy":      good[:30],
		"empty.npy":       nil,
		"text.npy":        []byte("hello world"),
		"truncated.npz":   goodNPZ[:len(goodNPZ)/2],
		"member.npz":      npzOf(t, member{"features", good[:len(good)-4]}),
		"two.npz":         npzOf(t, member{"a", good}, member{"b", good}),
		"object.npy":      rawNPY("'|O'", "False", "(2, 2)", make([]byte, 32)),
		"string.npy":      rawNPY("'<U4'", "False", "(2, 2)", make([]byte, 64)),
		"complex.npy":     rawNPY("'<c8'", "False", "(2, 2)", make([]byte, 32)),
		"void.npy":        rawNPY("'|V2'", "False", "(2, 2)", make([]byte, 8)),
		"fields.npy":      rawNPY("[('a', '<f4')]", "False", "(2, 2)", make([]byte, 16)),
		"rank0.npy":       rawNPY("'<f4'", "False", "()", make([]byte, 4)),
		"rank1.npy":       npyOf(t, npy.Float32, make([]byte, 20), 5),
		"rows0.npy":       npyOf(t, npy.Float32, nil, 0, 4),
		"columns0.npy":    npyOf(t, npy.Float32, nil, 4, 0),
		"mib.npy":         npyOf(t, npy.Uint8, make([]byte, 2<<20), 2, 1<<20),
		"labels.npy":      npyOf(t, npy.Int64, make([]byte, 80), 10, 1),
		"ids":             []byte("0\n1\n9\n1\n"),
		"ids-empty":       nil,
		"ids-comments":    []byte("\n# none\n"),
		"ids-negative":    []byte("0\n-1\n10\n"),
		"ids-beyond":      []byte("0\n3\n10\n11\n9\n"),
		"ids-fraction":    []byte("0\n1.5\n"),
		"g.npz":           graph(ints(t, 0, 2, 3, 3), ints(t, 1, 2, 0)),
		"decreasing.npz":  graph(ints(t, 0, 3, 2, 3), ints(t, 1, 2, 0)),
		"index-high.npz":  graph(ints(t, 0, 2, 3, 3), ints(t, 1, 3, 0)),
		"index-neg.npz":   graph(ints(t, 0, 2, 3, 3), ints(t, 1, -1, 0)),
		"start.npz":       graph(ints(t, 1, 2, 3, 3), ints(t, 1, 2, 0)),
		"end.npz":         graph(ints(t, 0, 2, 3, 9), ints(t, 1, 2, 0)),
		"no-indices.npz":  npzOf(t, member{"indptr", ints(t, 0, 1)}),
		"floats.npz":      graph(npyOf(t, npy.Float32, smooth(3), 3), ints(t, 0)),
		"vertices.npz":    graph(ints(t, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), ints(t, 0)),
		"one-indptr.npz":  graph(ints(t, 0), ints(t, 0)),
		"not-an-npz.json": []byte("{}"),
	} {
		if err := os.WriteFile(in(name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// In a wanted text, @ is the folder of the files.
	for _, c := range []struct{ flag, file, want string }{
		{"features", "missing.npy", "npy: @missing.npy: open: no such file or directory"},
		{"features", "truncated.npy", "npy: @truncated.npy: data bytes (313) must be 320 for shape (10, 8) of float32: truncated"},
		{"features", "trailing.npy", "npy: @trailing.npy: trailing bytes (3) must be 0: shape (10, 8) of float32 needs 320 bytes"},
		{"features", "header.npy", "npy: @header.npy: header bytes (30) must be 128: truncated"},
		{"features", "empty.npy", "npy: @empty.npy: file (0 bytes) must not be empty"},
		{"features", "text.npy", `npy: @text.npy: first bytes ("hello ") must be "\x93NUMPY" of an .npy file or "PK" of an .npz archive`},
		{"features", "truncated.npz", fmt.Sprintf("npy: @truncated.npz: archive (%d bytes) must be a complete zip file: zip: not a valid zip file", len(goodNPZ)/2)},
		{"features", "member.npz", "npy: @member.npz:features: data bytes (316) must be 320 for shape (10, 8) of float32: truncated"},
		{"features", "two.npz", `npy: @two.npz: arrays of rank 2 or more (2) must be one, or be chosen as FILE.npz:ARRAY from "a", "b"`},
		{"features", "two.npz:c", `npy: @two.npz: array ("c") must be one of "a", "b"`},
		{"features", "object.npy", `npy: @object.npy: dtype ("|O") must be one of ` + supported},
		{"features", "string.npy", `npy: @string.npy: dtype ("<U4") must be one of ` + supported},
		{"features", "complex.npy", `npy: @complex.npy: dtype ("<c8") must be one of ` + supported},
		{"features", "fields.npy", `npy: @fields.npy: dtype ([('a', '<f4')]) must be one of ` + supported},
		{"features", "void.npy", `npy: @void.npy: dtype ("|V2") must not be void: npy cannot hold bfloat16; store float32 and use --cast bf16`},
		{"features", "rank0.npy", "npy: @rank0.npy: rank (0) of shape () must be at least 2"},
		{"features", "rank1.npy", "npy: @rank1.npy: rank (1) of shape (5,) must be at least 2"},
		{"features", "rows0.npy", "npy: @rows0.npy: shape (0, 4) must have no axis of length 0"},
		{"features", "columns0.npy", "npy: @columns0.npy: shape (4, 0) must have no axis of length 0"},
		{"features", "mib.npy", "dataset: @mib.npy: row (1048576 bytes) must be shorter than 1 MiB (1048576)"},
		{"features", "labels.npy", "dataset: @labels.npy: element type (int64) must be float32 or float64 to be cast to bf16"},
		{"ids", "missing", "workload: open @missing: no such file or directory"},
		{"ids", "ids-empty", "workload: @ids-empty: row numbers (0) must be at least 1"},
		{"ids", "ids-comments", "workload: @ids-comments: row numbers (0) must be at least 1"},
		{"ids", "ids-negative", "workload: @ids-negative:2: row number (-1) must not be negative; bad lines in all: 2 of 3"},
		{"ids", "ids-beyond", "workload: @ids-beyond:3: row number (10) must be below 10, the rows of the table; bad lines in all: 2 of 5"},
		{"ids", "ids-fraction", `workload: @ids-fraction:2: row number ("1.5") must be decimal digits; bad lines in all: 1 of 2`},
		{"graph", "missing.npz", "workload: graph @missing.npz: array indptr: npy: @missing.npz: open: no such file or directory"},
		{"graph", "decreasing.npz", "workload: graph @decreasing.npz: indptr[2] (2) must be at least indptr[1] (3)"},
		{"graph", "index-high.npz", "workload: graph @index-high.npz: indices[1] (3) must be in [0, 3)"},
		{"graph", "index-neg.npz", "workload: graph @index-neg.npz: indices[1] (-1) must be in [0, 3)"},
		{"graph", "start.npz", "workload: graph @start.npz: indptr[0] (1) must be 0"},
		{"graph", "end.npz", "workload: graph @end.npz: indptr[3] (9) must be the number of indices (3)"},
		{"graph", "one-indptr.npz", "workload: graph @one-indptr.npz: indptr length (1) must be at least 2, for one vertex"},
		{"graph", "no-indices.npz", `workload: graph @no-indices.npz: array indices: npy: @no-indices.npz: array ("indices") must be one of "indptr"`},
		{"graph", "floats.npz", "workload: graph @floats.npz: array indptr: npy: @floats.npz:indptr: dtype (float32) must be an integer"},
		{"graph", "vertices.npz", "graph @vertices.npz: vertices (11) must not outnumber the rows of table @ok.npy (10)"},
		{"graph", "not-an-npz.json", `workload: graph @not-an-npz.json: file type (".json") must be .npz, with arrays indptr and indices`},
	} {
		t.Run(c.flag+"="+c.file, func(t *testing.T) {
			t.Parallel()
			args := []string{"run", "--features", in("ok.npy"), "--" + c.flag, in(c.file)}
			if c.file == "labels.npy" {
				args = append(args, "--cast", "bf16")
			}
			want := strings.ReplaceAll(c.want, "@", dir+string(filepath.Separator))
			refuse(t, want, args...)
			if c.flag == "features" && c.file != "labels.npy" {
				refuse(t, want, "compress", "--features", in(c.file))
			}
		})
	}
}

func TestRun_NoGPU(t *testing.T) {
	t.Parallel()
	why := cuda.Usable()
	if why == nil {
		t.Skip("there is a GPU")
	}
	refuse(t, "--device cuda is not usable: "+why.Error(), "run", "--device", "cuda")
	refuse(t, why.Error(), "gpu-bench")
	if out := succeed(t, "devices"); !strings.Contains(out, why.Error()) {
		t.Errorf("devices says %q, not why there is none: %v", out, why)
	}
	var list struct {
		GPUs  []any
		Error string
	}
	if err := json.Unmarshal([]byte(succeed(t, "devices", "--json")), &list); err != nil || len(list.GPUs) != 0 || list.Error != why.Error() {
		t.Errorf("devices --json: %+v, %v", list, err)
	}
}

func TestRun_BadFlags(t *testing.T) {
	t.Parallel()
	features := write(t, "f.npy", npyOf(t, npy.Float32, smooth(80), 10, 8))
	graph := write(t, "g.npz", npzOf(t, member{"indptr", ints(t, 0, 2, 3, 3)}, member{"indices", ints(t, 1, 2, 0)}))
	ids := write(t, "ids", []byte("0\n1\n9\n"))
	const sizes = " must be a positive percentage of the table or a size such as 64MiB"
	policies := "tinylfu, static-freq, static-degree, static-optimal"
	for _, c := range []struct{ flags, want string }{
		{"--budget 0", `--budget ("0")` + sizes},
		{"--budget 0%", `--budget ("0%")` + sizes},
		{"--budget -1%", `--budget ("-1%")` + sizes},
		{"--budget -5", `--budget ("-5")` + sizes},
		{"--budget NaN%", `--budget ("NaN%")` + sizes},
		{"--budget much", `--budget ("much")` + sizes},
		{"--budget=", `--budget ("")` + sizes},
		{"--budget 99999999999999999999", `--budget ("99999999999999999999")` + sizes},
		{"--policy lru", `unknown policy ("lru") must be one of ` + policies},
		{"--codec zip", `codec: unknown codec ("zip") must be one of auto, none, ibp, ibp4, ibp8`},
		{"--device tpu", `unknown device ("tpu") must be one of auto, host, cuda`},
		{"--cast f8", `dataset: unknown cast ("f8") must be bf16 or f16`},
		{"--host-tier disk", `transfer: unknown host tier ("disk") must be inplace or packed`},
		{"--devices 0", "--devices (0) must be 1 to 8"},
		{"--devices 9", "--devices (9) must be 1 to 8"},
		{"--batches 0", "--batches (0) must be at least 1"},
		{"--batches -1", "--batches (-1) must not be negative"},
		{"--batches -2", "--batches (-2) must not be negative"},
		{"--warmup-batches -1", "--warmup-batches (-1) must not be negative"},
		{"--batch-size 0", "--batch-size (0) must be at least 1"},
		{"--batch-size -3", "--batch-size (-3) must be at least 1"},
		{"--workers -1", "--workers (-1) must not be negative"},
		{"--vertices 0", "--vertices (0) must be 1 to 2147483647"},
		{"--vertices -1", "--vertices (-1) must be 1 to 2147483647"},
		{"--fanouts 5,0", "--fanouts (0) must be at least 1"},
		{"--seed -1", `invalid argument "-1" for "--seed" flag: strconv.ParseUint: parsing "-1": invalid syntax`},
		{"--batches many", `invalid argument "many" for "--batches" flag: strconv.ParseInt: parsing "many": invalid syntax`},
		{"--budget", "flag needs an argument: --budget"},
		{"--bogus", "unknown flag: --bogus"},
		{"-x", "unknown shorthand flag: 'x' in -x"},
		{"extra", `unknown command "extra" for "cachebench run"`},
		{"--policy lru --codec zip --devices 9", `unknown policy ("lru") must be one of ` + policies + "\n" +
			`codec: unknown codec ("zip") must be one of auto, none, ibp, ibp4, ibp8` + "\n--devices (9) must be 1 to 8"},
		{"--vertices 10 --features FEATURES", "--vertices and --features contradict each other"},
		{"--vertices 10 --graph GRAPH", "--vertices and --graph contradict each other"},
		{"--fanouts 2 --ids IDS", "--fanouts and --ids contradict each other"},
		{"--features FEATURES --graph GRAPH --ids IDS", "--graph (GRAPH) and --ids (IDS) contradict each other: the workload is one or the other"},
		{"--features FEATURES --ids IDS --policy static-degree", "--policy static-degree needs a --graph: none is generated for --ids (IDS)"},
		{"--features FEATURES --ids IDS --warmup-batches 1", "--warmup-batches (1) must leave some of the 1 batches of IDS to measure"},
		{"--features FEATURES --ids IDS --budget 100", "--budget (100): cache: budget too small: Budget (100 B) must hold at least one slot (16 B) and its metadata: 288 B in all"},
		{"--features FEATURES --ids IDS --budget 1%", "--budget (1%): cache: budget too small: Budget (3 B) must hold at least one slot (16 B) and its metadata: 288 B in all"},
	} {
		t.Run(c.flags, func(t *testing.T) {
			t.Parallel()
			files := strings.NewReplacer("FEATURES", features, "GRAPH", graph, "IDS", ids)
			refuse(t, files.Replace(c.want), append([]string{"run", "--json"}, strings.Fields(files.Replace(c.flags))...)...)
		})
	}
}

func TestRoot_Commands(t *testing.T) {
	t.Parallel()
	refuse(t, `unknown command "bogus" for "cachebench"`, "bogus")
	refuse(t, "unknown flag: --bogus", "--bogus")
	for _, args := range [][]string{nil, {"--help"}, {"help"}} {
		if out := succeed(t, args...); !strings.Contains(out, "compress") || !strings.Contains(out, "run") {
			t.Errorf("%v: %s", args, out)
		}
	}
	out := succeed(t, "run", "--help")
	for _, flag := range strings.Fields("features graph ids budget policy codec cast host-tier device devices batches warmup-batches seed verify json config") {
		if !strings.Contains(out, " --"+flag+" ") {
			t.Errorf("help lacks --%s", flag)
		}
	}
}

// mask hides what differs from run to run or depends on the machine: numbers with their units, and widths.
func mask(s string) string {
	s = regexp.MustCompile(`\d[\d,.]*( ?(B|[kMG]B|[KMG]iB|ns|µs|ms|s|k|M|G)\b)?`).ReplaceAllString(s, "#")
	s = regexp.MustCompile(`(#m)?#(\.#)?s?`).ReplaceAllString(s, "#")
	s = regexp.MustCompile(`─+`).ReplaceAllString(s, "─")
	s = regexp.MustCompile(`host \([^)]*\)`).ReplaceAllString(s, "host (NAME)")
	return regexp.MustCompile(` +`).ReplaceAllString(s, " ")
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (go test -update rewrites it):\n got\n%s\nwant\n%s", path, got, want)
	}
}

func TestRun_HumanOutput(t *testing.T) {
	t.Parallel()
	golden(t, "run.golden", mask(succeed(t, slices.Concat([]string{"run", "--verify", "--codec", "ibp4", "--policy", "static-degree"}, small)...)))
	ids := write(t, "ids", []byte(strings.Repeat("5\n", 20000)))
	golden(t, "run-ids.golden", mask(succeed(t, "run", "--vertices", "100", "--budget", "200%", "--codec", "ibp4", "--ids", ids)))
}

// TestPrintRun_Mismatches: the result is printed all the same, and the error gives exit status 1.
func TestPrintRun_Mismatches(t *testing.T) {
	res := &experiment.Result{VerifiedRows: 10, Mismatches: 3}
	for _, asJSON := range []bool{false, true} {
		var out bytes.Buffer
		if err := printRun(&out, res, asJSON); err == nil || err.Error() != "rows differ from their source: 3 of 10" {
			t.Errorf("got %v", err)
		}
		if !strings.Contains(out.String(), "3") || asJSON && decode[experiment.Result](t, out.String()).Mismatches != 3 {
			t.Errorf("printed %s", out.String())
		}
	}
	if err := printRun(&bytes.Buffer{}, &experiment.Result{VerifiedRows: 10}, false); err != nil {
		t.Error(err)
	}
}

func TestRun_Interrupt(t *testing.T) {
	for name, args := range map[string][]string{
		"measuring":  {"run", "--json", "--vertices", "1000", "--batches", "100000000", "--warmup-batches", "1"},
		"training":   {"run", "--json", "--vertices", "1000", "--warmup-batches", "100000000"},
		"generating": {"run", "--json", "--vertices", "2000000"},
		"compress":   {"compress", "--json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := command(t, args...)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(700 * time.Millisecond)
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			cmd.Wait()
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("took %v to end", d)
			}
			if status := cmd.ProcessState.ExitCode(); status != 1 || stdout.Len() != 0 || stderr.String() != "cachebench: interrupted\n" {
				t.Errorf("status %d, stdout %q, stderr %q", status, &stdout, &stderr)
			}
		})
	}
}
