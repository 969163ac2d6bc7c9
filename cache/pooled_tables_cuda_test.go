//go:build cuda && linux

package cache_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// pooledTable is one of several tables whose rows are added up together.
type pooledTable struct {
	of      dtype.Type // of what is added up
	columns int
	data    []byte // rows as they are added up
	stored  dtype.Type
	codec   cache.Codec
	table   cache.Table
}

// pooledTables returns tables of which some share kernels: of two codecs and none, of two lengths, of float8 with scales as parts and without, and a resident one.
func pooledTables(t *testing.T, r *rand.Rand, rows int) (all []pooledTable) {
	t.Helper()
	parts, err := dtype.Parse("float8_e4m3fn*64,float8_e8m0fnu*2")
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range []pooledTable{
		{of: dtype.Float32, columns: 64, codec: "ibp4"}, {of: dtype.Float32, columns: 48, codec: "ibp4"}, {of: dtype.BFloat16, columns: 100, codec: "none"},
		{of: dtype.Float32, columns: 64, codec: "none"}, {of: dtype.Float32, columns: 64, stored: dtype.Float8E5M2, codec: "ibp"}, {of: dtype.Float32, columns: 64, codec: "rank"},
		{of: dtype.Float32, columns: 64, stored: parts, codec: "none"}, {of: dtype.Float32, columns: 300, codec: "none"}, {of: dtype.Float32, columns: 300, codec: "none"},
		{of: dtype.Float16, columns: 32, codec: "none"},
	} {
		name := fmt.Sprint("t", i)
		if x.stored == dtype.Invalid {
			x.data = floatTable(rows, x.columns, x.of, true, r.Uint64())
			x.table = floatsOf(t, name, x.of, x.data, x.columns)
		} else {
			f := cache.Float8{Values: x.stored}
			if x.stored.IsRow() {
				f = cache.Float8{Values: dtype.Float8E4M3FN, Scales: dtype.Float8E8M0FNU, Block: 32}
			}
			stored, wide, rowBytes := float8Rows(r, f, rows, x.columns)
			x.data = wide
			if x.table, err = fromBytes(t, name, stored, rowBytes).WithDType(x.stored); err != nil {
				t.Fatal(err)
			}
		}
		if x.table = x.table.WithCodec(x.codec); i == 9 {
			x.table = x.table.ResidentWith(cache.ResidentOptions{Target: 48})
		}
		all = append(all, x)
	}
	return all
}

func tablesOf(all []pooledTable) (tables []cache.Table) {
	for _, x := range all {
		tables = append(tables, x.table)
	}
	return tables
}

// guarded is device memory with outputs of several batches, and bytes around each that must stay as they are.
type guarded struct {
	device device.Device
	memory device.Buffer
	at     []int64
	sizes  []int
}

const guard = 48

func newGuarded(t *testing.T, d device.Device, sizes []int) *guarded {
	t.Helper()
	g := &guarded{device: d, sizes: sizes}
	at := int64(guard)
	for _, n := range sizes {
		g.at = append(g.at, at)
		at += (int64(n)+15)&^15 + guard
	}
	g.memory = upload(t, d, bytes.Repeat([]byte{0xee}, int(at)))
	return g
}

func (g *guarded) out(i int) device.Buffer {
	if g.sizes[i] == 0 {
		return device.Buffer{}
	}
	return g.memory.Slice(g.at[i], g.at[i]+int64(g.sizes[i]))
}

// read returns the outputs, and fails the test if something else was written.
func (g *guarded) read(t *testing.T) (all [][]byte) {
	t.Helper()
	mem := make([]byte, g.memory.Size())
	if err := device.Download(g.device, mem, g.memory); err != nil {
		t.Fatal(err)
	}
	for i, n := range g.sizes {
		all = append(all, bytes.Clone(mem[g.at[i]:][:n]))
		copy(mem[g.at[i]:][:n], bytes.Repeat([]byte{0xee}, n))
	}
	if len(bytes.Trim(mem, "\xee")) != 0 {
		t.Fatal("memory around the outputs was written")
	}
	return all
}

// TestGPU_PooledTables compares batches of several tables in one call, drawn at random or chosen from one array of row numbers, with the documented order,
// to the bit, and with what the batches count. Rows are updated in between.
func TestGPU_PooledTables(t *testing.T) {
	gpu := gputest.Open(t)
	const rows = 300
	for seed := range uint64(gputest.Few(4, 1)) {
		r := rand.New(rand.NewPCG(seed, 24))
		all := pooledTables(t, r, rows)
		c := newCache(t, cache.Options{
			Tables: tablesOf(all), Budget: 900 << 10, Devices: cache.DeviceOptions{Backend: "cuda"},
			Host:      cache.HostOptions{Tier: []cache.HostTier{cache.InPlace, cache.Packed}[seed%2]},
			Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency(), Training: batches(0, zipf(r, rows, 2000))},
		})
		for round := range gputest.Few(6, 4) {
			n := []int{4, 300, 40}[round%3]
			ids, offsets := keyed(r, 4, n/4, rows)
			bounds, numbers := upload(t, gpu, offsets), upload(t, gpu, ids)
			which := r.Perm(len(all))[:1+r.IntN(len(all))]
			which = append(which, which[0]) // a table twice
			batches, sizes := make([]cache.Request, len(which)), make([]int, len(which))
			poolings, numbersOf := make([]pooling, len(which)), make([][]int64, len(which))
			for i, k := range which {
				x := &all[k]
				p, own := drawPooling(r, rows, n)
				if r.IntN(2) == 0 {
					p = pooling{Pooling: cache.Pooling{Mode: cache.PoolMode(r.IntN(3))}, Output: p.Output}
					feature := r.IntN(4)
					q := p
					q.DeviceOffsets, q.FirstBag, q.Bags = bounds, feature*(n/4), n/4
					batches[i] = q.device(k, numbers, device.Buffer{})
					p, own = ofFeature(p, ids, offsets, feature, n/4)
				} else {
					batches[i] = onDevice(t, gpu, p, r.IntN(2) == 0).device(k, upload(t, gpu, own), device.Buffer{})
				}
				poolings[i], numbersOf[i] = p, own
				sizes[i], _ = pooledOut(&p, x.of, x.columns, len(own))
			}
			before := stats(t, c)
			g := newGuarded(t, gpu, sizes)
			for i := range batches {
				batches[i].DeviceOut = g.out(i)
			}
			b, err := c.On(0).Enqueue(ctx, 0, batches...)
			if err == nil {
				err = errors.Join(b.Wait(), c.Check(true))
			}
			if err != nil {
				t.Fatal(err)
			}
			wanted := make([]int64, len(all))
			for i, out := range g.read(t) {
				x := &all[which[i]]
				checkPooled(t, x.data, x.of, x.columns, numbersOf[i], &poolings[i], out, fmt.Sprintf("seed %d, round %d, batch %d of table %d", seed, round, i, which[i]))
				p := &poolings[i]
				for _, bag := range bagsOf(p, len(numbersOf[i])) {
					for _, id := range numbersOf[i][bag[0]:bag[1]] {
						if !p.Padding || id != p.PaddingRow {
							wanted[which[i]]++
						}
					}
				}
			}
			after := stats(t, c)
			for k := range all {
				if got := after.Tables[k].Lookups - before.Tables[k].Lookups; got != wanted[k] && k != 9 { // of a resident table rows are written first, padding too
					t.Errorf("seed %d, round %d: table %d: %d lookups of %d rows", seed, round, k, got, wanted[k])
				}
			}
			for k := range 4 {
				fresh := floatTable(1, all[k].columns, all[k].of, true, r.Uint64())
				row := int64(r.IntN(5))
				if err := c.Update(ctx, k, []int64{row}, fresh); err != nil {
					t.Fatal(err)
				}
				copy(all[k].data[int(row)*len(fresh):], fresh)
			}
		}
	}
}

// TestGPU_PooledTablesReport: what is wrong with one of several batches is reported with its table, and the others are right.
func TestGPU_PooledTablesReport(t *testing.T) {
	gpu := gputest.Open(t)
	const rows, bags = 200, 12
	r := rand.New(rand.NewPCG(4, 4))
	all := pooledTables(t, r, rows)[:4]
	c := newCache(t, cache.Options{Tables: tablesOf(all), Budget: 100 << 10, Devices: cache.DeviceOptions{Backend: "cuda"}})
	ids, offsets := keyed(r, 4, bags, rows)
	bounds := upload(t, gpu, offsets)
	gather := func(ids []int64, offsets device.Buffer) ([][]byte, error) {
		batches, sizes := make([]cache.Request, 4), make([]int, 4)
		numbers := upload(t, gpu, ids)
		for i := range batches {
			sizes[i] = bags * all[i].columns * all[i].of.Size()
			batches[i] = pooling{Pooling: cache.Pooling{DeviceOffsets: offsets, FirstBag: i * bags, Bags: bags}}.device(i, numbers, device.Buffer{})
		}
		g := newGuarded(t, gpu, sizes)
		for i := range batches {
			batches[i].DeviceOut = g.out(i)
		}
		b, err := c.On(0).Enqueue(ctx, 0, batches...)
		if err != nil {
			t.Fatal(err)
		}
		err = b.Wait()
		return g.read(t), err
	}
	wrong := append([]int64(nil), ids...)
	at := int(offsets[bags]) // the first of table 1
	for i := range 2 {
		wrong[at+i] = rows + int64(i)
	}
	outs, err := gather(wrong, bounds)
	if !errors.Is(err, cache.ErrRows) || !strings.Contains(err.Error(), "2 row numbers are not 0 to 199 of table t1") || !strings.Contains(err.Error(), "the first at position 0") {
		t.Errorf("%v", err)
	}
	if err := c.Check(true); !errors.Is(err, cache.ErrRows) || strings.Contains(err.Error(), "more such errors") {
		t.Errorf("Check: %v", err)
	}
	for _, i := range []int{0, 2, 3} {
		p, own := ofFeature(pooling{}, ids, offsets, i, bags)
		checkPooled(t, all[i].data, all[i].of, all[i].columns, own, &p, outs[i], fmt.Sprint("table ", i))
	}
	for _, change := range []func(x []int64){
		func(x []int64) { x[3], x[4] = x[4]+5, x[3] }, func(x []int64) { x[2*bags] = -7 }, func(x []int64) { x[4*bags] = 1 << 40 }, func(x []int64) { x[0] = 1 << 50 },
		func(x []int64) { clear(x); x[bags] = int64(len(ids)) }, func(x []int64) { x[bags] = x[4*bags] }, func(x []int64) { x[1*bags], x[3*bags] = x[3*bags], x[1*bags] },
	} {
		bad := append([]int64(nil), offsets...)
		change(bad)
		if _, err := gather(ids, upload(t, gpu, bad)); !errors.Is(err, cache.ErrRows) {
			t.Errorf("offsets %v: %v", bad, err)
		}
	}
	if _, err := gather(ids, bounds); err != nil {
		t.Errorf("the batch behind: %v", err)
	}
}

// TestGPU_PooledTablesReplays captures batches of several tables, some of them chosen from one array of row numbers, and replays them for other row numbers, offsets and
// weights, with refreshes and updates in between.
func TestGPU_PooledTablesReplays(t *testing.T) {
	gpu := gputest.Open(t)
	const rows, bags, most = 150, 5, 1200
	r := rand.New(rand.NewPCG(7, 4))
	for _, which := range [][]int{{0, 1, 3, 5, 6, 0}, {2, 9, 3, 9}, {0}} {
		t.Run(fmt.Sprint(which), func(t *testing.T) {
			all := pooledTables(t, r, rows)[:slices.Max(which)+1]
			c := newCache(t, cache.Options{Tables: tablesOf(all), Budget: 400 << 10, Devices: cache.DeviceOptions{Backend: "cuda"}})
			s, err := gpu.NewStream()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			stream := s.(*cuda.Stream)
			numbers, bounds := upload(t, gpu, make([]int64, most)), upload(t, gpu, make([]int64, len(which)*bags+1))
			factors := upload(t, gpu, make([]float32, most))
			sizes := make([]int, len(which))
			batches := make([]cache.Request, len(which))
			for i, k := range which {
				sizes[i] = bags * all[k].columns * all[k].of.Size()
				p := pooling{Pooling: cache.Pooling{Mode: cache.PoolMode(i % 3), DeviceOffsets: bounds, FirstBag: i * bags, Bags: bags}}
				if k == 9 { // a resident table takes no part of others' offsets in a graph
					p = pooling{Pooling: cache.Pooling{Mode: p.Mode, Bag: most / bags}}
				}
				if p.Mode == cache.PoolSum {
					p.DeviceWeights = factors
				}
				batches[i] = p.device(k, numbers, device.Buffer{})
			}
			g := newGuarded(t, gpu, sizes)
			for i := range batches {
				batches[i].DeviceOut = g.out(i)
			}
			var batch *cache.Batch
			scratch := stats(t, c).ScratchBytes
			graph, err := stream.Capture(true, func() (err error) {
				batch, err = c.On(0).Enqueue(ctx, stream.Handle(), batches...)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(graph.Close)
			for replay := range 3 {
				ids, offsets := keyed(r, len(which), bags, rows)
				ids = append(ids, make([]int64, most-len(ids))...)
				weights := make([]float32, most)
				for i := range weights {
					weights[i] = float32(r.NormFloat64())
				}
				before := stats(t, c)
				if err := errors.Join(
					device.Upload(gpu, numbers, cache.AsBytes(ids)), device.Upload(gpu, bounds, cache.AsBytes(offsets)), device.Upload(gpu, factors, cache.AsBytes(weights)),
					graph.Launch(stream), stream.Synchronize(), batch.Wait(),
				); err != nil {
					t.Fatal(err)
				}
				lookups := make([]int64, len(all))
				for i, out := range g.read(t) {
					x, p, own := &all[which[i]], pooling{Pooling: cache.Pooling{Mode: batches[i].Pool.Mode, Bag: batches[i].Pool.Bag}}, ids
					if p.Mode == cache.PoolSum {
						p.Weights = weights
					}
					if p.Bag == 0 {
						p, own = ofFeature(p, ids, offsets, i, bags)
					}
					lookups[which[i]] += int64(len(own))
					checkPooled(t, x.data, x.of, x.columns, own, &p, out, fmt.Sprintf("replay %d, batch %d", replay, i))
				}
				after := stats(t, c)
				for k, want := range lookups {
					if s := after.Tables[k]; s.Lookups-before.Tables[k].Lookups != want || s.Hits+s.Misses != s.Lookups {
						t.Errorf("replay %d, table %d: %d lookups of %d rows", replay, k, s.Lookups-before.Tables[k].Lookups, want)
					}
				}
				fresh := floatTable(1, all[which[0]].columns, all[which[0]].of, true, r.Uint64())
				if err := errors.Join(c.Update(ctx, which[0], ids[:1], fresh), c.Refresh(ctx)); err != nil {
					t.Fatal(err)
				}
				copy(all[which[0]].data[int(ids[0])*len(fresh):], fresh)
			}
			bad := []int64{0}
			for range len(which) * bags {
				bad = append(bad, int64(most+1))
			}
			windows := all[which[0]].columns != 0 && batches[0].Pool.Bags > 0
			if err := errors.Join(device.Upload(gpu, bounds, cache.AsBytes(bad)), graph.Launch(stream), stream.Synchronize()); err != nil {
				t.Fatal(err)
			}
			if err := batch.Wait(); windows && !errors.Is(err, cache.ErrRows) {
				t.Errorf("offsets behind the end: %v", err)
			}
			g.read(t)
			if err := batch.Wait(); err != nil {
				t.Errorf("a second time: %v", err)
			}
			batch.Release()
			if now := stats(t, c).ScratchBytes; now != scratch {
				t.Errorf("%d bytes of scratch memory are taken, %d before the capture", now, scratch)
			}
		})
	}
}

// TestGPU_PooledTablesTraced: metrics and spans of windows of one array of row numbers have the rows of each, and not those of all.
func TestGPU_PooledTablesTraced(t *testing.T) {
	gpu := gputest.Open(t)
	const rows, columns, bags, features = 500, 16, 30, 3
	recorded := newRecorder(t, sdktrace.AlwaysSample())
	c := newCache(t, cache.Options{
		Tables: []cache.Table{floatsOf(t, "x", dtype.Float32, floatTable(rows, columns, dtype.Float32, false, 1), columns)}, Budget: 20_000,
		Devices: cache.DeviceOptions{Backend: "cuda"}, Telemetry: recorded.options(),
	})
	ids, offsets := keyed(rand.New(rand.NewPCG(1, 2)), features, bags, rows)
	numbers, bounds := upload(t, gpu, ids), upload(t, gpu, offsets)
	out := newGuarded(t, gpu, []int{bags * columns * 4, bags * columns * 4})
	batches := make([]cache.Request, 2)
	want := int64(0)
	for i := range batches {
		batches[i] = pooling{Pooling: cache.Pooling{DeviceOffsets: bounds, FirstBag: 2 * i * bags, Bags: bags}}.device(0, numbers, out.out(i))
		want += offsets[(2*i+1)*bags] - offsets[2*i*bags]
	}
	b, err := c.On(0).Enqueue(ctx, 0, batches...)
	if err = errors.Join(err, b.Wait()); err != nil {
		t.Fatal(err)
	}
	const metric = "tensorcache.gather.rows{tensorcache.device.index=0,tensorcache.table.name=x}"
	if v := recorded.collect(t); v[metric] != 2 || v[strings.Replace(metric, "{", ".sum{", 1)] != float64(want) {
		t.Errorf("%v gathers of %v rows, want 2 of %d", v[metric], v[strings.Replace(metric, "{", ".sum{", 1)], want)
	}
	spanned := int64(0)
	for _, s := range recorded.named("gather x") {
		spanned += attributes(s.Attributes())["tensorcache.batch.rows"].AsInt64()
	}
	if spanned != want || want == int64(len(ids)) {
		t.Errorf("spans of %d rows, want %d of %d", spanned, want, len(ids))
	}
}
