//go:build cuda && linux && long

package gpu

import (
	"errors"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/transfer"
)

// oneByOne returns the mean seconds of a batch, one after the other, by the host's clock.
func oneByOne(g gatherer, ids []device.Buffer, out device.Buffer) float64 {
	run := func(n int) {
		for i := range n {
			must(g.gather(ids[i%len(ids)], out))
		}
	}
	run(trainingRuns / 2)
	start := time.Now()
	run(trainingRuns)
	return time.Since(start).Seconds() / trainingRuns
}

// autoTable is a table of TestLong_AutoPicks.
type autoTable struct {
	name     string
	elements dtype.Type
	rowBytes int
	rows     func(t *testing.T) []byte
	batch    int
	large    bool    // in memory that can be adopted, each row once a batch
	budget   float64 // share of the table's bytes
}

// quantised are bytes as quantised embeddings have them: small numbers of either sign.
func quantised(bytes int64) pattern {
	return newPattern(bytes, func(r *rand.Rand) float32 {
		word := uint32(0)
		for range 4 {
			word = word<<8 | uint32(uint8(int8(max(-127, min(127, math.Round(16*r.NormFloat64()))))))
		}
		return math.Float32frombits(word)
	})
}

// autoTables are the tables on which auto's pick is to be within 3 % of the best codec. Large ones have so many bytes.
func autoTables(large int) []autoTable {
	filled := func(values func(int64) pattern, rowBytes int) func(*testing.T) []byte {
		return func(t *testing.T) []byte {
			table, err := unix.Mmap(-1, 0, large/rowBytes*rowBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Munmap(table) })
			values(int64(len(table))).fill(table)
			return table
		}
	}
	loaded := func(make func() (*dataset.Table, error)) func(t *testing.T) []byte {
		return func(t *testing.T) []byte {
			table, err := make()
			if errors.Is(err, fs.ErrNotExist) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			return table.Data
		}
	}
	dir := os.Getenv("TENSORCACHE_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	file := func(name string) func(t *testing.T) []byte {
		return loaded(func() (*dataset.Table, error) { return dataset.Load(filepath.Join(dir, name)) })
	}
	bf16 := func(rows int) func(t *testing.T) []byte {
		return loaded(func() (*dataset.Table, error) {
			table, err := dataset.Generate(rows, 128, 1)
			if err != nil {
				return nil, err
			}
			return table.Cast("bf16")
		})
	}
	return []autoTable{
		{"512B", dtype.Float32, 512, filled(normals, 512), 223_000, true, 0.1},
		{"256B", dtype.BFloat16, 256, filled(halves, 256), 235_000, true, 0.1},
		{"264B", dtype.Int8, 264, filled(quantised, 264), 200_000, true, 0.1},
		{"cora", dtype.Float32, 1433 * 4, file("cora.npz"), 8192, false, 0.05},
		{"reddit", dtype.Float32, 64 * 4, file("reddit.npz"), 8192, false, 0.05},
		{"ncf_user", dtype.Float32, 32 * 4, file("ncf_user.npy"), 8192, false, 0.05},
		{"default", dtype.Float32, 512, loaded(func() (*dataset.Table, error) { return dataset.Generate(300_000, 128, 1) }), 60_000, false, 0.1},
		{"embeddings", dtype.BFloat16, 256, bf16(400_000), 53_248, false, 0.05},
		{"words", dtype.Float32, 4 * 1433, func(t *testing.T) []byte {
			data, err := workload.Words(40_000, 1433, 18, 1)
			if err != nil {
				t.Fatal(err)
			}
			return data
		}, 16_384, false, 0.01},
	}
}

// TestLong_AutoPicks opens each table with auto, which measures the GPU; once more, which takes what the first cache kept; and with every
// codec that is predicted to take at most 1.4 times the least, or with those of them that TENSORCACHE_AUTO_CODECS names. A batch with auto's pick is to take
// at most 3 % longer than with any.
func TestLong_AutoPicks(t *testing.T) {
	gputest.Require(t)
	large := 30_000_000 * 512
	if testing.Short() {
		large = 4 << 20
	}
	for _, of := range autoTables(large) {
		t.Run(of.name, func(t *testing.T) {
			if testing.Short() {
				of.batch = 2048
			}
			t.Setenv(transfer.KeptEnv, filepath.Join(t.TempDir(), "costs.json"))
			if err := try(func() { of.check(t) }); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func (of *autoTable) check(t *testing.T) {
	d := gputest.Open(t).(*cuda.Device)
	begin := time.Now()
	table := of.rows(t)
	rows := int64(len(table) / of.rowBytes)
	lists := make([][]int64, trainingBatches+trainingSets)
	parallel(len(lists), func(from, to int) {
		for i := from; i < to; i++ {
			if of.large {
				lists[i] = uniqueRows(min(of.batch, int(rows/8)), rows, uint64(i))
				continue
			}
			rng := rand.New(rand.NewPCG(uint64(i), 6))
			lists[i] = make([]int64, of.batch)
			for k := range lists[i] {
				lists[i][k] = scatter(min(rows-1, int64(float64(rows)*math.Pow(rng.Float64(), 1/trainingSkew))), rows)
			}
		}
	})
	stream := get(d.NewStream())
	defer stream.Close()
	n := len(lists[0])
	alloc := func(bytes int) device.Buffer {
		b := get(d.Alloc(int64(bytes), "benchmark"))
		t.Cleanup(func() { d.Free(b) })
		return b
	}
	out := alloc(n * of.rowBytes)
	ids := make([]device.Buffer, trainingSets)
	for i := range ids {
		ids[i] = alloc(8 * n)
		must(device.Upload(d, ids[i], asBytes(lists[trainingBatches+i])))
	}
	t.Logf("%d rows of %d bytes, batches of %d rows, made in %.1f s", rows, of.rowBytes, n, time.Since(begin).Seconds())
	// serve returns what a cache says of its table, and the median time of a batch, of several rounds.
	serve := func(name string, open func(string, dtype.Type, []byte, int) (cache.Table, error), rounds int) (cache.TableStats, float64) {
		begin := time.Now()
		c := get(cache.New(cache.Options{
			Tables: []cache.Table{get(open("features", of.elements, table, of.rowBytes))}, Devices: cache.DeviceOptions{Backend: "cuda"},
			Codec: cache.Codec(name), Seed: seed, Budget: int64(float64(len(table)) * of.budget), Host: cache.HostOptions{NoEqualRows: true},
			Admission: cache.AdmissionOptions{Training: func(yield func(int, []int64) bool) {
				for _, rows := range lists[:trainingBatches] {
					if !yield(0, rows) {
						return
					}
				}
			}},
		}))
		opened := time.Since(begin)
		g := gathererOf(c, 0, stream)
		var all []float64
		for range rounds {
			all = append(all, oneByOne(g, ids, out)*1e6)
		}
		if rounds > 0 {
			check(d, "Gather", out, table, lists[trainingBatches+(trainingRuns-1)%trainingSets], of.rowBytes)
		}
		s := get(c.Stats()).Tables[0]
		must(c.Close())
		if rounds == 0 {
			return s, 0
		}
		slices.Sort(all)
		hits := float64(s.Hits) / float64(max(1, s.Lookups))
		t.Logf("%-8s %8.1f µs a batch (%.1f to %.1f of %d rounds); %.3f hits; misses %s, %.2f by the host; opened in %.1f s", name, all[len(all)/2], all[0], all[len(all)-1],
			len(all), hits, s.MissStrategy[0].Strategy, s.MissStrategy[0].Fraction, opened.Seconds())
		return s, all[len(all)/2]
	}
	const rounds = 5
	first, _ := serve(registry.Auto, cache.FromBytes, 0)
	choice := first.Choice
	if choice == nil {
		t.Fatal("there is no choice")
	}
	tell := func(table string, choice *registry.Choice) {
		t.Logf("%s: auto picks %s: %s (%s); measured in %.0f ms; costs %+v", table, choice.Codec, choice.Reason, choice.Basis, 1000*choice.MeasuredSeconds, choice.Costs)
		for _, k := range choice.Candidates {
			t.Logf("  %-8s predicted %8.1f µs, hits %.3f, hit %.2f ns, miss %.2f ns, ratio %.3f, measured %t %s", k.Codec, k.BatchMicroseconds, k.HitRatio,
				k.HitNanoseconds, k.MissNanoseconds, k.Ratio, k.Measured, k.Skipped)
		}
	}
	tell("copied", choice)
	least := math.Inf(1)
	for _, k := range choice.Candidates {
		if k.Skipped == "" {
			least = min(least, k.BatchMicroseconds)
		}
	}
	again, took := serve(registry.Auto, cache.FromBytes, rounds)
	if len(table) > 1<<20 && !testing.Short() && (choice.MeasuredSeconds > 0.3 || choice.MeasuredSeconds <= 0 || !again.Choice.Kept || again.Choice.Codec != choice.Codec) {
		t.Errorf("measured in %.3f s; again: kept %t, %s", choice.MeasuredSeconds, again.Choice.Kept, again.Choice.Codec)
	}
	times := map[string]float64{again.Choice.Codec: took}
	only := os.Getenv("TENSORCACHE_AUTO_CODECS")
	for _, k := range choice.Candidates {
		if only != "" && !slices.Contains(strings.Fields(only), k.Codec) {
			continue
		}
		if _, have := times[k.Codec]; !have && k.Skipped == "" && k.BatchMicroseconds <= 1.4*least {
			_, times[k.Codec] = serve(k.Codec, cache.FromBytes, rounds)
		}
	}
	if of.large { // after this the rows are the cache's
		adopted, _ := serve(registry.Auto, cache.Adopt, 0)
		tell("adopted", adopted.Choice)
		if took, ok := times[adopted.Choice.Codec]; !ok && only == "" || ok && !testing.Short() && took > 1.03*slices.Min(slices.Collect(maps.Values(times))) {
			t.Errorf("of adopted memory auto picks %s: %.1f µs a batch", adopted.Choice.Codec, took)
		}
	}
	for name, took := range times {
		if name != choice.Codec && !testing.Short() && times[choice.Codec] > 1.03*took {
			t.Errorf("%s takes %.1f µs, auto's %s %.1f µs", name, took, choice.Codec, times[choice.Codec])
		}
	}
}
