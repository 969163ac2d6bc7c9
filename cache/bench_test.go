package cache_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/race"
)

// BenchmarkUpdate updates random rows, a tenth of which are cached, in batches.
func BenchmarkUpdate(b *testing.B) {
	const rows, rowBytes = 100_000, 512
	data := normalTable(rows, rowBytes/4, 1)
	for _, mode := range []cache.HostTier{cache.InPlace, cache.Packed} {
		for _, n := range []int{1, 64, 1024} {
			b.Run(fmt.Sprintf("%v/rows=%d", mode, n), func(b *testing.B) {
				c := newCache(b, cache.Options{
					Tables: []cache.Table{fromBytes(b, "x", data, rowBytes)}, Budget: int64(len(data) / 10), Codec: "ibp4", Host: cache.HostOptions{Tier: mode},
					Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency()}, Devices: cache.DeviceOptions{Backend: "host"},
				})
				r := rand.New(rand.NewPCG(1, 1))
				ids := make([]int64, n)
				b.SetBytes(int64(n * rowBytes))
				for b.Loop() {
					for i := range ids {
						ids[i] = r.Int64N(rows)
					}
					if err := c.Update(ctx, 0, ids, data[:n*rowBytes]); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(stats(b, c).Changes.UpdateWaits)/float64(b.N), "waits/op")
			})
		}
	}
}

// BenchmarkUpdate_Durable updates single rows of a table of pages, by goroutines, with a log on a drive whose sync takes a millisecond.
func BenchmarkUpdate_Durable(b *testing.B) {
	const rowBytes = 64
	for _, goroutines := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			var syncs atomic.Int64
			syncWith(b, func(*os.File) error {
				syncs.Add(1)
				time.Sleep(time.Millisecond)
				return nil
			})
			c := openDirectory(b, packedFiles(b, normalTable(4096, 16, 1), rowBytes), true)
			row, left := make([]byte, rowBytes), atomic.Int64{}
			left.Store(int64(b.N))
			syncs.Store(0)
			b.ResetTimer()
			var all sync.WaitGroup
			for range goroutines {
				all.Go(func() {
					for n := left.Add(-1); n >= 0; n = left.Add(-1) {
						if err := c.Update(context.Background(), 0, []int64{n % 4096}, row); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "updates/s")
			b.ReportMetric(float64(syncs.Load())/float64(b.N), "syncs/update")
		})
	}
}

// BenchmarkUpdate_Resident updates 200,000 rows that follow each other of a resident table, as the case buddy-updates of module lab does.
func BenchmarkUpdate_Resident(b *testing.B) {
	const rows, rowBytes, n = 1 << 20, 256, 200_000
	data := normalTable(rows, rowBytes/4, 1)
	for _, codec := range []cache.Codec{"none", "ibp4"} {
		b.Run("codec="+string(codec), func(b *testing.B) {
			c := newCache(b, cache.Options{
				Tables: []cache.Table{fromBytes(b, "x", data, rowBytes).Resident()}, Budget: 2 * int64(len(data)), Codec: codec,
				Host: cache.HostOptions{Overlay: 4 * n * (rowBytes + 32)}, Devices: cache.DeviceOptions{Backend: "host"},
			})
			ids := make([]int64, n)
			b.SetBytes(n * rowBytes)
			for i := 0; b.Loop(); i++ {
				first := i * n % (rows - n)
				for k := range ids {
					ids[k] = int64(first + k)
				}
				if err := c.Update(ctx, 0, ids, data[first*rowBytes:][:n*rowBytes]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
		})
	}
}

// BenchmarkRefresh runs cycles that each replace about a tenth of 20,000 cached rows. The policy ranks 200,000 rows.
func BenchmarkRefresh(b *testing.B) {
	const rows, rowBytes = 200_000, 128
	data := normalTable(rows, rowBytes/4, 1)
	p := &scripted{ranking: rowKeys(0, rows)}
	c := newCache(b, cache.Options{
		Tables: []cache.Table{fromBytes(b, "x", data, rowBytes)}, Budget: int64(len(data) / 8), Codec: "ibp4", Admission: cache.AdmissionOptions{Policy: p}, Devices: cache.DeviceOptions{Backend: "host"},
	})
	from := int64(0)
	before := stats(b, c)
	for b.Loop() {
		b.StopTimer()
		from = (from + 2000) % rows
		p.set("", append(rowKeys(from, rows), rowKeys(0, from)...))
		b.StartTimer()
		if err := c.Refresh(ctx); err != nil {
			b.Fatal(err)
		}
	}
	n := stats(b, c).Sub(before).Changes
	b.ReportMetric(float64(n.AdmittedRows)/float64(b.N), "admitted/op")
	b.ReportMetric(float64(n.EvictedRows)/float64(b.N), "evicted/op")
}

// BenchmarkGather_Sampling measures the cost of sampling for a batch on the host backend.
func BenchmarkGather_Sampling(b *testing.B) {
	const rows, rowBytes = 200_000, 128
	data := normalTable(rows, rowBytes/4, 1)
	for _, rate := range []float64{0, 1. / 16, 1} {
		b.Run(fmt.Sprintf("rate=%v", rate), func(b *testing.B) {
			c := newCache(b, cache.Options{
				Tables: []cache.Table{fromBytes(b, "x", data, rowBytes)}, Budget: int64(len(data) / 10), Admission: cache.AdmissionOptions{Policy: &randomPolicy{}}, Devices: cache.DeviceOptions{Backend: "host"},
				Refresh: cache.RefreshOptions{Accesses: rate},
			})
			ids := zipf(rand.New(rand.NewPCG(1, 1)), rows, 20_000)
			out := make([]byte, len(ids)*rowBytes)
			for b.Loop() {
				if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// allCached returns a cache on the host backend whose 20,000 uncompressed rows of 512 bytes are all cached, and 64 batches of 1,000 random
// rows.
func allCached(t testing.TB) (c *cache.Cache, data []byte, batches [64][]int64) {
	const rows, rowBytes = 20_000, 512
	data = noise(rows, rowBytes, 1)
	c = newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: int64(2 * len(data)), Codec: "none",
		Devices: cache.DeviceOptions{Backend: "host"}, Host: cache.HostOptions{Workers: 1},
	})
	r := rand.New(rand.NewPCG(1, 1))
	for i := range batches {
		for range 1000 {
			batches[i] = append(batches[i], r.Int64N(rows))
		}
	}
	return c, data, batches
}

// BenchmarkGather_Hits gathers batches of 1,000 cached rows on one or two goroutines, and compares with a plain Go loop of copies.
func BenchmarkGather_Hits(b *testing.B) {
	c, data, batches := allCached(b)
	for name, gather := range map[string]func(ids []int64, out []byte){
		"cache": func(ids []int64, out []byte) {
			if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
				b.Error(err)
			}
		},
		"copy": func(ids []int64, out []byte) {
			for i, id := range ids {
				copy(out[i*512:][:512], data[id*512:])
			}
		},
	} {
		for _, n := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", name, n), func(b *testing.B) {
				b.SetBytes(1000 * 512)
				b.ReportAllocs()
				var wg sync.WaitGroup
				for g := range n {
					wg.Go(func() {
						out := make([]byte, 1000*512)
						for i := g; i < b.N; i += n {
							gather(batches[i%len(batches)], out)
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// TestGather_SteadyStateAllocatesNothing: once a lane is open, a Gather on the host backend allocates no memory.
func TestGather_SteadyStateAllocatesNothing(t *testing.T) {
	race.SkipSequential(t)
	c, _, batches := allCached(t)
	out := make([]byte, 1000*512)
	if n := testing.AllocsPerRun(100, func() {
		if err := c.Gather(ctx, cache.Request{Rows: batches[0], Out: out}); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a Gather allocates %v times", n)
	}
}

// BenchmarkGather_Misses gathers batches of 4,000 random rows, nearly all of which miss, of tables that are longer than the processor's caches.
func BenchmarkGather_Misses(b *testing.B) {
	const rows, rowBytes, batch = 400_000, 256, 4000
	data := make([]byte, rows*rowBytes)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range data {
		data[i] = byte(60 + i%4)
		if i%4 < 2 {
			data[i] = byte(r.Uint32())
		}
	}
	for _, o := range []cache.Options{{Codec: "none"}, {Codec: "ibp4"}, {Codec: "ibp4", Host: cache.HostOptions{Tier: cache.Packed}}} {
		b.Run(string(o.Codec)+"/"+string(cmp.Or(o.Host.Tier, cache.InPlace)), func(b *testing.B) {
			table, err := cache.FromBytes("x", dtype.Uint8, data, rowBytes)
			if err != nil {
				b.Fatal(err)
			}
			o.Tables, o.Budget, o.Devices.Backend, o.Host.Workers = []cache.Table{table}, 1<<20, cache.BackendHost, 1
			c := newCache(b, o)
			var lists [64][]int64
			for i := range lists {
				lists[i] = randomRows(r, batch, rows)
			}
			out := make([]byte, batch*rowBytes)
			b.SetBytes(int64(len(out)))
			for i := 0; b.Loop(); i++ {
				if err := c.Gather(ctx, cache.Request{Rows: lists[i%len(lists)], Out: out}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkNew_EqualRows opens tables of 1 M rows with equal rows.
func BenchmarkNew_EqualRows(b *testing.B) { benchmarkEqualRows(b, cache.BackendHost, 1<<20) }

// benchmarkEqualRows opens tables of 512-byte rows in which each content is that of a number of rows, scattered over the table, with and without the search for
// equal rows. The budget is half of the table.
func benchmarkEqualRows(b *testing.B, backend cache.Backend, rows int) {
	const rowBytes, drawn = 512, 4096
	data, table := normalTable(drawn, rowBytes/4, 1), make([]byte, rows*rowBytes)
	for _, contents := range []int{rows, rows / 2, rows / 10, rows / 1000, 1} {
		for row := range rows {
			content := row % contents
			copy(table[row*rowBytes:], data[content%drawn*rowBytes:][:rowBytes])
			binary.LittleEndian.PutUint32(table[row*rowBytes:], uint32(content)) // no two contents are equal
		}
		for _, codec := range []cache.Codec{"none", "ibp4", cache.CodecAuto} {
			for _, apart := range []bool{true, false} {
				b.Run(fmt.Sprintf("contents=%d/codec=%s/shared=%t", contents, codec, !apart), func(b *testing.B) {
					b.SetBytes(int64(len(table)))
					for b.Loop() {
						c := newCache(b, cache.Options{
							Tables: []cache.Table{fromBytes(b, "x", table, rowBytes)}, Budget: int64(len(table) / 2), Codec: codec,
							Host: cache.HostOptions{NoEqualRows: apart}, Devices: cache.DeviceOptions{Backend: backend},
						})
						b.StopTimer()
						c.Close()
						b.StartTimer()
					}
				})
			}
		}
	}
}
