//go:build cuda && linux

package cache_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// pooledOnDevice is GatherPooledDevice and Wait, from and to Go memory.
func pooledOnDevice(t *testing.T, c *cache.Cache, gpu device.Device, ids []int64, p pooling, size int) ([]byte, error) {
	t.Helper()
	out := make([]byte, size)
	buffer := upload(t, gpu, out)
	b, err := c.On(0).Enqueue(ctx, 0, onDevice(t, gpu, p, len(ids)%2 == 0).device(0, upload(t, gpu, ids), buffer))
	if err != nil {
		t.Fatal(err)
	}
	err = b.Wait()
	if size > 0 {
		if err := device.Download(gpu, out, buffer); err != nil {
			t.Fatal(err)
		}
	}
	return out, err
}

// TestGPU_PooledWritten has rows written and added up part by part: rows of every length, also such as no part has many of, with misses that the
// host's processors gather, against the documented order, to the bit.
func TestGPU_PooledWritten(t *testing.T) {
	gpu := gputest.Open(t)
	cache.ShareAlways(t)
	for i, codec := range []cache.Codec{"none", "ibp4", "rank", "zipnn"} {
		for j, of := range floats {
			for k, columns := range []int{3, 12, 64, 101, 128, 300, 5000} {
				if !gputest.Drawn(7*(len(floats)*i+j)+k, 13) {
					continue
				}
				rows := min(600, 900_000/columns)
				data := floatTable(rows, columns, of, true, uint64(k))
				table, err := cache.FromBytes("x", of, data, columns*of.Size())
				if err != nil {
					t.Fatal(err)
				}
				t.Run(fmt.Sprintf("%s/%s/%d", codec, of, columns), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(columns), uint64(i*8+j)))
					c := newCache(t, cache.Options{
						Tables: []cache.Table{table}, Budget: int64(len(data)/2 + 10_000), Codec: codec, Devices: cache.DeviceOptions{Backend: "cuda"},
						Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency(), Training: batches(0, zipf(r, rows, 2000))},
					})
					for round := range 4 {
						p, ids := drawPooling(r, rows, []int{1, 40, 700, 3000}[(round+k)%4])
						if len(bagsOf(&p, len(ids))) == 0 {
							continue
						}
						undo := cache.WritePooled([]int{1, 100, 1000, 1 << 20}[round] * columns * of.Size())
						launches := []func() func(){cache.ServeApart, cache.ServeHitsFirst, cache.ServeApart, func() func() { return func() {} }}[round]()
						size, _ := pooledOut(&p, of, columns, len(ids))
						before := stats(t, c).Tables[0]
						out := make([]byte, size)
						var err error
						if round%2 == 0 {
							err = c.Gather(ctx, p.host(0, ids, out))
						} else {
							out, err = pooledOnDevice(t, c, gpu, ids, p, size)
						}
						undo()
						launches()
						if err != nil {
							t.Fatal(err)
						}
						checkPooled(t, data, of, columns, ids, &p, out, fmt.Sprint("round ", round))
						s := stats(t, c).Tables[0]
						if n := s.Lookups - before.Lookups; n != int64(len(ids)) && size > 0 || s.Hits+s.Misses != s.Lookups {
							t.Errorf("round %d: %d lookups of %d rows: %+v", round, n, len(ids), s)
						}
					}
				})
			}
		}
	}
}

// TestGPU_PooledWrittenFloat8 is TestGPU_PooledWritten for rows of float8, most of which begin at odd addresses.
func TestGPU_PooledWrittenFloat8(t *testing.T) {
	gpu := gputest.Open(t)
	for j, f := range float8Formats {
		t.Run(name8(f.Float8, f.columns), func(t *testing.T) {
			const rows = 500
			r := rand.New(rand.NewPCG(8, uint64(j)))
			data, wide, rowBytes := float8Rows(r, f.Float8, rows, f.columns)
			c := newCache(t, cache.Options{
				Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: int64(len(data)/2 + 10_000), Codec: "ibp", Devices: cache.DeviceOptions{Backend: "cuda"},
			})
			for round := range 3 {
				p, ids := drawPooling(r, rows, []int{40, 700, 3000}[round])
				p.Float8 = f.Float8
				size, _ := pooledOut(&p, dtype.Float32, f.columns, len(ids))
				undo := cache.WritePooled([]int{1 << 20, 200 * rowBytes}[round%2])
				out, err := pooledOnDevice(t, c, gpu, ids, p, size)
				undo()
				if err != nil {
					t.Fatal(err)
				}
				checkPooled(t, wide, dtype.Float32, f.columns, ids, &p, out, fmt.Sprint("round ", round))
			}
		})
	}
}

// TestGPU_PooledWrittenReports: row numbers out of range and bad offsets are reported with their positions, whichever part has them, and left out; the next
// batch does not see them.
func TestGPU_PooledWrittenReports(t *testing.T) {
	gpu := gputest.Open(t)
	const rows, columns, n = 500, 64, 1000
	data := floatTable(rows, columns, dtype.Float32, false, 4)
	table, err := cache.FromBytes("x", dtype.Float32, data, columns*4)
	if err != nil {
		t.Fatal(err)
	}
	c := newCache(t, cache.Options{Tables: []cache.Table{table}, Budget: int64(len(data) / 3), Codec: "ibp4", Devices: cache.DeviceOptions{Backend: "cuda"}})
	ids := zipf(rand.New(rand.NewPCG(3, 3)), rows, n)
	defer cache.WritePooled(300 * columns * 4)()
	for _, x := range []struct {
		wrong   []int
		offsets []int64
		want    string // "": no error
	}{
		{nil, []int64{0, 100, 100, 900}, ""},
		{[]int{5, 950}, []int64{0, 100, 100, 900}, "2 row numbers are not 0 to 499 of table x, or offsets are bad, the first at position 5"},
		{[]int{999}, []int64{0, 100, 100, 900}, "1 row numbers are not 0 to 499 of table x, or offsets are bad, the first at position 999"},
		{nil, []int64{0, 100, 50, 900}, "1 row numbers are not 0 to 499 of table x, or offsets are bad, the first at position 2"},
		{nil, []int64{1, 100, 200, 1001}, "2 row numbers are not 0 to 499 of table x, or offsets are bad, the first at position 0"},
		{nil, []int64{900, 800, 700, -1}, "4 row numbers are not 0 to 499 of table x, or offsets are bad, the first at position 0"},
		{nil, []int64{0, 0, 990, 1000}, ""},
	} {
		p := pooling{Pooling: cache.Pooling{Offsets: x.offsets, Padding: true, PaddingRow: ids[3]}}
		wrong, left := append([]int64(nil), ids...), append([]int64(nil), ids...)
		for i, at := range x.wrong {
			wrong[at], left[at] = []int64{rows, -1}[i%2], ids[3]
		}
		out, err := pooledOnDevice(t, c, gpu, wrong, p, 4*columns*4)
		if x.want == "" && err != nil || x.want != "" && (!errors.Is(err, cache.ErrRows) || err.Error() != "cache: row numbers out of range: "+x.want+"; they are left out") {
			t.Errorf("%v, offsets %v: %v", x.wrong, x.offsets, err)
		}
		if x.want == "" || x.wrong != nil {
			checkPooled(t, data, dtype.Float32, columns, left, &p, out, fmt.Sprint(x.wrong))
		}
	}
}

// TestGPU_PooledNoRows: batches of empty bags give zeros, whichever way a table's rows are served, and offsets beyond the rows, of which there are none, are reported.
func TestGPU_PooledNoRows(t *testing.T) {
	gpu := gputest.Open(t)
	const rows = 60
	var tables []cache.Table
	columns := []int{32, 32, 3000}
	for i, n := range columns {
		tables = append(tables, floatsOf(t, fmt.Sprint("t", i), dtype.Float32, floatTable(rows, n, dtype.Float32, false, 1), n).WithCodec("none"))
	}
	tables[1] = tables[1].ResidentWith(cache.ResidentOptions{Target: 64})
	c := newCache(t, cache.Options{Tables: tables, Budget: 1 << 20, Devices: cache.DeviceOptions{Backend: cache.BackendCUDA, Count: 1}})
	for table, n := range columns {
		for _, offsets := range [][]int64{{0, 0, 0}, {0, 3, 3}, {0, 0, 0}} {
			size := 2 * n * 4
			out := upload(t, gpu, bytes.Repeat([]byte{0xee}, size))
			b, err := c.On(0).Enqueue(ctx, 0, cache.Request{Table: table, DeviceRows: device.Buffer{}, DeviceOut: out, Pool: &cache.Pooling{DeviceOffsets: upload(t, gpu, offsets), LastOffset: true}})
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Wait(); errors.Is(err, cache.ErrRows) != (offsets[1] != 0) || offsets[1] == 0 && err != nil {
				t.Errorf("table %d, offsets %v: %v", table, offsets, err)
			}
			got := make([]byte, size)
			if err := device.Download(gpu, got, out); err != nil {
				t.Fatal(err)
			}
			if offsets[1] == 0 && len(bytes.Trim(got, "\x00")) != 0 {
				t.Errorf("table %d: sums of no rows are not zeros", table)
			}
		}
		if err := c.Gather(ctx, cache.Request{Table: table, Rows: nil, Out: make([]byte, 2*n*4), Pool: &cache.Pooling{Offsets: []int64{0, 0}}}); err != nil {
			t.Errorf("table %d: %v", table, err)
		}
	}
	if s := stats(t, c); s.Tables[0].Lookups+s.Tables[1].Lookups+s.Tables[2].Lookups != 0 {
		t.Error("lookups of no rows")
	}
}

// TestGPU_PooledResident adds up rows of resident tables in host memory's batches, in device memory's and in captured graphs, while rows are updated.
func TestGPU_PooledResident(t *testing.T) {
	gpu := gputest.Open(t)
	for i, of := range floats {
		for j, columns := range []int{24, 101, 128, 2500} {
			if !gputest.Drawn(i+j, 4) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", of, columns), func(t *testing.T) {
				const rows, n, bag = 300, 640, 20
				r := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				rowBytes := columns * of.Size()
				data := floatTable(rows, columns, of, false, uint64(j))
				table, err := cache.FromBytes("x", of, data, rowBytes)
				if err != nil {
					t.Fatal(err)
				}
				c := newCache(t, cache.Options{
					Tables: []cache.Table{table.WithCodec([]cache.Codec{"ibp", "rank", "none"}[i]).ResidentWith(cache.ResidentOptions{Target: (rowBytes/2 + 15) &^ 15})},
					Budget: 64 << 20, Devices: cache.DeviceOptions{Backend: cache.BackendCUDA, Count: 1},
				})
				s, err := gpu.NewStream()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Close)
				stream := s.(*cuda.Stream)
				q := pooling{Pooling: cache.Pooling{Offsets: []int64{0, 0, 7, 40, 600}, Mode: cache.PoolMean, LastOffset: true}}
				size, _ := pooledOut(&q, of, columns, n)
				numbers, sums := upload(t, gpu, make([]int64, n)), upload(t, gpu, make([]byte, size))
				offsets := upload(t, gpu, q.Offsets)
				var batch *cache.Batch
				var graph *cuda.Graph
				if rowBytes < 8192 {
					graph, err = stream.Capture(true, func() (err error) {
						batch, err = c.On(0).Enqueue(ctx, stream.Handle(), cache.Request{DeviceRows: numbers, DeviceOut: sums, Pool: &cache.Pooling{DeviceOffsets: offsets, Mode: q.Mode, LastOffset: true}})
						return err
					})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(graph.Close)
				}
				for round := range 4 {
					p, ids := drawPooling(r, rows, 700)
					size, _ := pooledOut(&p, of, columns, len(ids))
					out := make([]byte, size)
					if err := c.Gather(ctx, p.host(0, ids, out)); err != nil {
						t.Fatal(err)
					}
					checkPooled(t, data, of, columns, ids, &p, out, fmt.Sprint("round ", round))
					if out, err = pooledOnDevice(t, c, gpu, ids, p, size); err != nil {
						t.Fatal(err)
					}
					checkPooled(t, data, of, columns, ids, &p, out, fmt.Sprint("round ", round, " in device memory"))
					if graph != nil {
						ids := zipf(r, rows, n)
						out := make([]byte, sums.Size())
						before := stats(t, c).Tables[0].Hits
						given := q.Offsets
						bad := round == 2
						if bad {
							given = []int64{0, 50, 7, 40, 600}
						}
						if err := errors.Join(device.Upload(gpu, offsets, cache.AsBytes(given)),
							device.Upload(gpu, numbers, cache.AsBytes(ids)), graph.Launch(stream), stream.Synchronize(), device.Download(gpu, out, sums)); err != nil {
							t.Fatal(err)
						}
						if err := batch.Wait(); errors.Is(err, cache.ErrRows) != bad || !bad && err != nil {
							t.Fatalf("replay %d: %v", round, err)
						}
						if !bad {
							checkPooled(t, data, of, columns, ids, &q, out, fmt.Sprint("replay ", round))
						}
						if hits := stats(t, c).Tables[0].Hits - before; hits != n && !bad {
							t.Errorf("replay %d: %d hits of %d rows", round, hits, n)
						}
					}
					changed := []int64{int64(r.IntN(rows)), int64(r.IntN(rows))}
					fresh := floatTable(len(changed), columns, of, false, r.Uint64())
					if err := c.Update(ctx, 0, changed, fresh); err != nil {
						t.Fatal(err)
					}
					for at, row := range changed {
						copy(data[int(row)*rowBytes:][:rowBytes], fresh[at*rowBytes:])
					}
				}
			})
		}
	}
}

// TestGPU_PooledWithoutMemory adds up rows of a codec whose rows are written first on a GPU that has no memory for them: one launch serves the batch instead. Rows of a
// resident table, which have no such launch, are written in shorter parts.
func TestGPU_PooledWithoutMemory(t *testing.T) {
	if !gputest.Emulated(t, "TENSORCACHE_EMULATOR_MEMORY=5242880") {
		return
	}
	gpu := gputest.Open(t)
	const rows, columns, n = 2000, 128, 9000
	data := floatTable(rows, columns, dtype.Float32, false, 5)
	c := newCache(t, cache.Options{Tables: []cache.Table{floatsOf(t, "x", dtype.Float32, data, columns)}, Budget: 512 << 10, Codec: "rank", Devices: cache.DeviceOptions{Backend: "cuda"}})
	r := rand.New(rand.NewPCG(5, 5))
	ids, p := randomRows(r, n, rows), pooling{Pooling: cache.Pooling{Bag: 100}}
	size, _ := pooledOut(&p, dtype.Float32, columns, n)
	for range 2 {
		out, err := pooledOnDevice(t, c, gpu, ids, p, size)
		if err != nil {
			t.Fatal(err)
		}
		checkPooled(t, data, dtype.Float32, columns, ids, &p, out, "without memory for rows")
	}
	if s := stats(t, c); s.ScratchBytes == 0 || s.ScratchBytes > n/2*columns*4 {
		t.Errorf("%d bytes of scratch: rows were written", s.ScratchBytes)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c = newCache(t, cache.Options{
		Tables: []cache.Table{floatsOf(t, "x", dtype.Float32, data, columns).ResidentWith(cache.ResidentOptions{Target: 368})}, Budget: 2 << 20, Codec: "rank", Devices: cache.DeviceOptions{Backend: "cuda"},
	})
	out := make([]byte, size)
	if err := c.Gather(ctx, p.host(0, ids, out)); err != nil {
		t.Fatalf("rows of a resident table: %v", err)
	}
	checkPooled(t, data, dtype.Float32, columns, ids, &p, out, "rows of a resident table")
	if s := stats(t, c); s.ScratchBytes == 0 || s.ScratchBytes > n*columns*4 {
		t.Errorf("%d bytes of scratch: the rows of a resident table were written at once", s.ScratchBytes)
	}
}
