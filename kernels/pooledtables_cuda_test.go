//go:build cuda && linux

package kernels_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/transfer"
)

// TestGPU_PooledTablesShareLaunches pins which tables share a launch: those with one kernel; of windows those of the same offsets that have no position in common.
func TestGPU_PooledTablesShareLaunches(t *testing.T) {
	gpu := gputest.Open(t)
	s, err := gpu.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	batch := func(of dtype.Type, columns, rows int) *kernels.Serve {
		return &kernels.Serve{
			Lookup: kernels.Lookup{RowBytes: columns * of.Size(), Rows: device.DeviceBuffer(1<<20, int64(rows)*8)},
			Pool:   &reduce.Batch{Row: of, Out: of, Columns: columns, Rows: rows, Bags: rows / 10, Size: 10, Padding: reduce.NoPadding, Stride: int64(columns * of.Size())},
		}
	}
	offsets := device.DeviceBuffer(1<<22, 101*8)
	window := func(whole device.Buffer, first, bags int) *kernels.Serve {
		w := batch(dtype.Float32, 64, 1000)
		w.Pool.Size, w.Pool.Bags, w.Pool.Whole, w.Pool.Offsets = 0, bags, whole, whole.Slice(int64(first)*8, int64(first+bags+1)*8)
		return w
	}
	other := device.DeviceBuffer(1<<23, 101*8)
	many := make([]*kernels.Serve, 70)
	for i := range many {
		many[i] = batch(dtype.Float32, 64, 100)
	}
	for name, c := range map[string]struct {
		tables []*kernels.Serve
		want   string
	}{
		"lengths with one tile":      {[]*kernels.Serve{batch(dtype.Float32, 64, 100), batch(dtype.Float32, 60, 20), batch(dtype.Float32, 64, 10)}, "[[0 1 2]]"},
		"element types and tiles":    {[]*kernels.Serve{batch(dtype.Float32, 64, 100), batch(dtype.BFloat16, 64, 100), batch(dtype.Float32, 128, 100), batch(dtype.BFloat16, 60, 10)}, "[[0] [1 3] [2]]"},
		"windows":                    {[]*kernels.Serve{window(offsets, 0, 20), window(offsets, 20, 20), window(offsets, 80, 20)}, "[[0 1 2]]"},
		"overlapping windows":        {[]*kernels.Serve{window(offsets, 0, 20), window(offsets, 19, 20), window(offsets, 40, 20), window(offsets, 0, 20)}, "[[0 2] [1] [3]]"},
		"windows of other offsets":   {[]*kernels.Serve{window(offsets, 0, 20), window(other, 20, 20), window(offsets, 20, 10), batch(dtype.Float32, 64, 100)}, "[[0] [1] [2] [3]]"},
		"more positions than 32 bit": {[]*kernels.Serve{batch(dtype.Float32, 64, math.MaxInt32-9), batch(dtype.Float32, 64, 10)}, "[[0] [1]]"},
		"more tables than a launch":  {many, ""},
	} {
		k := &kernels.PooledTables{Tables: c.tables, Partials: device.DeviceBuffer(1<<24, 1<<40)}
		got, err := k.TablesOfLaunches(s.(*cuda.Stream))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if text := fmt.Sprint(got); c.want != "" && text != c.want || c.want == "" && (len(got) != 2 || len(got[0]) != 64 || len(got[1]) != 6) {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
}

// TestGPU_PooledTablesFailedLaunch pins that replays end of a batch of several tables that is in a graph in part, as a launch behind the first one failed.
func TestGPU_PooledTablesFailedLaunch(t *testing.T) {
	gpu := gputest.Open(t)
	const rows, rowBytes, n = 90, 144, 200
	in := newServeInputOf(t, gputest.FloatRows(dtype.Float32, rows, rowBytes, 7), rowBytes, n, "none", dtype.Float32, transfer.InPlace, .6, rand.New(rand.NewPCG(1, 2)))
	both(t, gpu, nil, func(b *bench) (got string) {
		in.attached(b, func(tier kernels.HostRows, codec kernels.Codec) {
			// Elements of each type are one launch. That of one table needs no memory for arguments; that of two fails for want of it.
			for _, types := range [][]dtype.Type{{dtype.Float32, dtype.BFloat16, dtype.BFloat16}, {dtype.Float32, dtype.Float32, dtype.BFloat16}} {
				k := &kernels.PooledTables{}
				for _, of := range types {
					serve := kernels.Serve{
						Lookup: kernels.Lookup{
							Map: b.put(asBytes(in.image)), Layout: in.layout, Table: serveTable, Limit: rows, Rows: b.put(asBytes(in.batch)), RowBytes: rowBytes,
							Rejected: b.put(asBytes(in.rejected)), Oversize: b.put(asBytes(in.oversize)), Out: b.output(n/10*rowBytes, 0).rows,
						},
						Codec: codec, Tier: tier,
						Pool: &reduce.Batch{Row: of, Out: of, Columns: rowBytes / of.Size(), Rows: n, Bags: n / 10, Size: 10, Padding: reduce.NoPadding, Stride: rowBytes},
					}
					for _, s := range in.slabs {
						serve.Slabs = append(serve.Slabs, b.put(s))
					}
					replay := &kernels.Replay{Serve: serve, State: b.alloc(kernels.ReplayStateBytes)}
					views := make([]byte, kernels.ReplayViewsBytes)
					if b.d.NeedsStaging() {
						serve.WriteView(views[kernels.ReplayViewAt(0):][:kernels.ReplayViewBytes])
					}
					replay.Views = b.put(views)
					k.Replays = append(k.Replays, replay)
				}
				err := b.s.Launch(k)
				if failed := err != nil; failed != b.d.NeedsStaging() {
					b.t.Errorf("%v: %v", types, err)
				}
				copied, err := b.d.AllocHost(kernels.ReplayStateBytes, "test")
				b.check(err)
				b.launch(&kernels.ReplayLook{States: k.Replays[0].State, Copies: copied})
				begun, ended := k.Replays[0].Progress(copied.Bytes())
				got += fmt.Sprintf("%v: %d begun, %d ended; ", types, begun, ended)
				b.d.Free(copied)
			}
		})
		return got
	}, func(t *testing.T, _, got string) {
		if want := "[float32 bfloat16 bfloat16]: 1 begun, 1 ended; [float32 float32 bfloat16]: 0 begun, 0 ended; "; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// TestGPU_PooledTablesEqualHost runs batches of several tables on the host and on a GPU, windows among them, with offsets in order and out of order. Results are equal where
// offsets are in order; where not, both say so, and nothing around outputs and the sums of runs is written.
func TestGPU_PooledTablesEqualHost(t *testing.T) {
	gpu := gputest.Open(t)
	const rows, columns, n, bags, batches = 90, 36, 900, 12, 5
	for i, name := range []string{"none", "ibp4", "rank"} {
		for round := range gputest.Few(12, 4) {
			t.Run(fmt.Sprint(name, round), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(i), uint64(round)))
				in := newServeInputOf(t, gputest.FloatRows(dtype.Float32, rows, columns*4, 7), columns*4, n, name, dtype.Float32, []transfer.Mode{transfer.InPlace, transfer.Packed}[round%2], .6, r)
				for i := range in.batch { // those out of range are counted
					if r.IntN(50) != 0 {
						in.batch[i] = r.Int64N(rows)
					}
				}
				offsets := []int64{0}
				for range bags * batches {
					offsets = append(offsets, min(n, offsets[len(offsets)-1]+[]int64{0, 1, 7, 33, 64, 100}[r.IntN(6)]))
				}
				bad := round%2 == 1
				if at := 1 + r.IntN(len(offsets)-2); bad {
					if at > 3*bags && at < 4*bags { // which no batch has
						at -= bags
					}
					offsets[at] = []int64{-1, n + 1, 1 << 40, offsets[at-1] - 5, -1 << 63}[r.IntN(5)]
				}
				narrow := r.IntN(2) == 0 && !bad
				type result struct {
					outs     [batches][]byte
					counters [batches]kernels.Counters
					guarded  bool
				}
				both(t, gpu, nil, func(b *bench) (got result) {
					in.attached(b, func(tier kernels.HostRows, codec kernels.Codec) {
						var whole device.Buffer
						if narrow {
							short := make([]int32, len(offsets))
							for i, x := range offsets {
								short[i] = int32(x)
							}
							whole = b.put(asBytes(short))
						} else {
							whole = b.put(asBytes(offsets))
						}
						width := whole.Size() / int64(len(offsets))
						numbers := b.put(asBytes(in.batch))
						k := &kernels.PooledTables{Counters: b.alloc(batches * kernels.CountersBytes), Batch: 9}
						pools, outs := make([]*reduce.Batch, batches), make([]output, batches)
						var slabs []device.Buffer
						for _, s := range in.slabs {
							slabs = append(slabs, b.put(s))
						}
						image, rejected, oversize := b.put(asBytes(in.image)), b.put(asBytes(in.rejected)), b.put(asBytes(in.oversize))
						for i := range batches {
							p := &reduce.Batch{Mode: reduce.Mode(i % 3), Row: dtype.Float32, Out: dtype.Float32, Columns: columns, Rows: n, Bags: bags, Padding: 3, Stride: columns * 4, Narrow: narrow}
							p.Whole, p.Offsets = whole, whole.Slice(int64(i*bags)*width, int64((i+1)*bags+1)*width)
							if i == 3 { // no window
								p.Whole, p.Offsets, p.Narrow, p.Size, p.Bags = device.Buffer{}, device.Buffer{}, false, 45, n/45
							}
							pools[i], outs[i] = p, b.output(int64(p.Bags)*p.Stride, 0)
							k.Tables = append(k.Tables, &kernels.Serve{
								Lookup: kernels.Lookup{Map: image, Layout: in.layout, Table: serveTable, Limit: rows, Rows: numbers, Rejected: rejected, Oversize: oversize, Out: outs[i].rows, RowBytes: columns * 4},
								Slabs:  slabs, Codec: codec, Tier: tier, Pool: p,
							})
						}
						const guard = 1 << 10
						size := kernels.PooledPartialBytes(batches, func(i int) *reduce.Batch { return pools[i] })
						partials := b.put(bytes.Repeat([]byte{0xee}, int(size)+2*guard))
						k.Partials = partials.Slice(guard, guard+size)
						memory, err := b.d.AllocHost(batches*(kernels.CountersBytes+kernels.PooledTableBytes), "test")
						b.check(err)
						defer b.d.Free(memory)
						k.Results, k.Args = memory.Slice(0, batches*kernels.CountersBytes), memory.Slice(batches*kernels.CountersBytes, memory.Size())
						b.launch(k)
						for i := range batches {
							got.outs[i], got.counters[i] = outs[i].read(b), *kernels.CountersView(k.Result(i))
						}
						around := b.get(partials)
						got.guarded = len(bytes.Trim(around[:guard], "\xee")) == 0 && len(bytes.Trim(around[guard+size:], "\xee")) == 0
						if !k.Published() || len(bytes.Trim(b.get(k.Counters), "\x00")) != 0 {
							t.Error("counters are not published, or left")
						}
					})
					return got
				}, func(t *testing.T, want, got result) {
					if !got.guarded {
						t.Fatal("memory around the sums of runs was written")
					}
					for i := range batches {
						w, g := want.counters[i], got.counters[i]
						if bad && i != 3 {
							continue
						}
						if w != g || !bytes.Equal(want.outs[i], got.outs[i]) {
							t.Errorf("batch %d: counted %+v, on the host %+v; outputs equal: %v", i, g, w, bytes.Equal(want.outs[i], got.outs[i]))
						}
					}
					saw := func(r result) (all uint32) {
						for i := range batches {
							if i != 3 {
								all += r.counters[i].OutOfRange
							}
						}
						return all
					}
					if bad && (saw(want) == 0 || saw(got) == 0) {
						t.Errorf("offsets out of order are not reported: on the host %d, on the GPU %d", saw(want), saw(got))
					}
				})
			})
		}
	}
}
