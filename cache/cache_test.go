package cache_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/slab"
)

var ctx = context.Background()

// normalTable returns rows of normally distributed float32. About one row in eight is random bits, which no codec can compress.
func normalTable(rows, columns int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, 0, rows*columns*4)
	for range rows {
		noise := r.IntN(8) == 0
		for range columns {
			x := math.Float32bits(float32(r.NormFloat64()))
			if noise {
				x = r.Uint32()
			}
			b = binary.LittleEndian.AppendUint32(b, x)
		}
	}
	return b
}

func fromBytes(t testing.TB, name string, data []byte, rowBytes int) cache.Table {
	t.Helper()
	table, err := cache.FromBytes(name, dtype.Uint8, data, rowBytes)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func newCache(t testing.TB, o cache.Options) *cache.Cache {
	t.Helper()
	c, err := cache.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func stats(t testing.TB, c *cache.Cache) cache.Stats {
	t.Helper()
	s, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if s.MetadataBytes+s.PayloadBytes > s.BudgetBytes {
		t.Fatalf("metadata (%d) and payload (%d) exceed the budget (%d)", s.MetadataBytes, s.PayloadBytes, s.BudgetBytes)
	}
	return s
}

// zipf draws n row numbers, small ones more often.
func zipf(r *rand.Rand, rows, n int) []int64 {
	z := rand.NewZipf(r, 1.1, 4, uint64(rows-1))
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64(z.Uint64())
	}
	return ids
}

func batches(table int, all ...[]int64) admission.Training {
	return func(yield func(int, []int64) bool) {
		for _, rows := range all {
			if !yield(table, rows) {
				return
			}
		}
	}
}

// checkRows compares a gathered output with the source.
func checkRows(t testing.TB, data []byte, rowBytes int, rows []int64, out []byte) {
	t.Helper()
	for i, r := range rows {
		if !bytes.Equal(out[i*rowBytes:][:rowBytes], data[int(r)*rowBytes:][:rowBytes]) {
			t.Fatalf("row %d at position %d differs from its source", r, i)
		}
	}
}

// TestGather_EqualsMap compares gathered rows with a plain copy of the tables, for combinations of all options.
func TestGather_EqualsMap(t *testing.T) {
	race.SkipSequential(t)
	rapid.Check(t, func(t *rapid.T) {
		policies := map[string]func() admission.Policy{
			"static-freq": admission.NewStaticFrequency, "static-optimal": admission.NewStaticOptimal, "tinylfu": admission.NewTinyLFU,
			"freq": admission.NewFrequency, "lru": admission.NewLRU,
			"static-degree": nil,
		}
		policy := rapid.SampledFrom([]string{"static-freq", "static-optimal", "tinylfu", "freq", "lru", "static-degree"}).Draw(t, "policy")
		seed := rapid.Uint64().Draw(t, "seed")
		r := rand.New(rand.NewPCG(seed, 2))
		var tables []cache.Table
		var data [][]byte
		var degrees [][]uint32
		for i := range rapid.IntRange(1, 3).Draw(t, "tables") {
			rows := rapid.IntRange(1, 300).Draw(t, "rows")
			rowBytes := rapid.OneOf(rapid.IntRange(1, 40), rapid.SampledFrom([]int{256, 400, 1001})).Draw(t, "row bytes")
			d := normalTable(rows, (rowBytes+3)/4, seed+uint64(i))[:rows*rowBytes]
			table, err := cache.FromBytes(fmt.Sprint("table", i), dtype.Uint8, d, rowBytes)
			if err != nil {
				t.Fatal(err)
			}
			tables, data = append(tables, table), append(data, d)
			deg := make([]uint32, rows)
			for j := range deg {
				deg[j] = r.Uint32N(5)
			}
			degrees = append(degrees, deg)
		}
		o := cache.Options{
			Tables: tables, Budget: rapid.Int64Range(8000, 100_000).Draw(t, "budget"),
			Devices:   cache.DeviceOptions{Count: rapid.IntRange(1, 8).Draw(t, "devices")},
			Codec:     rapid.SampledFrom([]cache.Codec{"auto", "none", "ibp", "ibp4", "ibp8"}).Draw(t, "codec"),
			Host:      cache.HostOptions{Tier: rapid.SampledFrom([]cache.HostTier{cache.InPlace, cache.Packed}).Draw(t, "host tier"), Workers: rapid.IntRange(0, 3).Draw(t, "workers")},
			Admission: cache.AdmissionOptions{Training: batches(0, zipf(r, len(data[0])/tables[0].RowBytes(), 200))},
			Seed:      seed,
		}
		if policy == "static-degree" {
			o.Admission.Policy = admission.NewStaticDegree(degrees...)
		} else {
			o.Admission.Policy = policies[policy]()
		}
		c, err := cache.New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		lookups := make([]int64, len(tables))
		for range 6 {
			i := r.IntN(len(tables))
			rowBytes := c.RowBytes(i)
			rows := zipf(r, int(c.Rows(i)), r.IntN(700))
			out := make([]byte, len(rows)*rowBytes)
			if err := c.Gather(ctx, cache.Request{Table: i, Rows: rows, Out: out}); err != nil {
				t.Fatal(err)
			}
			for j, row := range rows {
				if !bytes.Equal(out[j*rowBytes:][:rowBytes], data[i][int(row)*rowBytes:][:rowBytes]) {
					t.Fatalf("table %d row %d at position %d differs", i, row, j)
				}
			}
			lookups[i] += int64(len(rows))
		}
		s, err := c.Stats()
		if err != nil {
			t.Fatal(err)
		}
		if s.MetadataBytes+s.PayloadBytes > s.BudgetBytes || s.BudgetBytes != o.Budget*int64(o.Devices.Count) {
			t.Fatalf("metadata %d + payload %d, budget %d", s.MetadataBytes, s.PayloadBytes, s.BudgetBytes)
		}
		for i, ts := range s.Tables {
			sum := int64(0)
			for _, n := range ts.MissesByReason {
				sum += n
			}
			if ts.Lookups != lookups[i] || ts.Hits+ts.Misses != ts.Lookups || sum != ts.Misses || ts.CachedRows > ts.Rows {
				t.Fatalf("table %d: %+v, want %d lookups", i, ts, lookups[i])
			}
		}
	})
}

func TestGather_EveryDeviceGivesTheSameBytes(t *testing.T) {
	race.SkipSequential(t)
	const rows, rowBytes = 5000, 512
	data := normalTable(rows, rowBytes/4, 3)
	r := rand.New(rand.NewPCG(4, 4))
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "features", data, rowBytes)}, Budget: 100_000, Devices: cache.DeviceOptions{Count: 8},
		Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency(), Training: batches(0, zipf(r, rows, 4000))},
	})
	ids := zipf(r, rows, 3000)
	var hits int64
	for d := range c.Devices() {
		before := stats(t, c)
		out := make([]byte, len(ids)*rowBytes)
		if err := c.On(d).Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
			t.Fatal(err)
		}
		checkRows(t, data, rowBytes, ids, out)
		got := stats(t, c).Sub(before).Tables[0]
		if d == 0 {
			hits = got.Hits
		}
		if got.Hits != hits || got.Hits == 0 || got.Misses == 0 {
			t.Fatalf("device %d: %d hits and %d misses, device 0 had %d hits", d, got.Hits, got.Misses, hits)
		}
	}
}

func TestGather_ConcurrentAndAsync(t *testing.T) {
	const rows, rowBytes = 4000, 256
	data := normalTable(rows, rowBytes/4, 5)
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "a", data, rowBytes), fromBytes(t, "b", data[rowBytes:], rowBytes)}, Budget: 200_000, Devices: cache.DeviceOptions{Count: 2},
	})
	var wg sync.WaitGroup
	for g := range 12 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 6))
			for range 20 {
				table := r.IntN(2)
				source := data[table*rowBytes:]
				a, b := zipf(r, rows-1, r.IntN(400)), zipf(r, rows-1, r.IntN(400))
				outA, outB := make([]byte, len(a)*rowBytes), make([]byte, len(b)*rowBytes)
				p := c.GatherAsync(ctx, cache.Request{Table: table, Rows: a, Out: outA})
				if err := c.On(g%2).Gather(ctx, cache.Request{Table: table, Rows: b, Out: outB}); err != nil {
					t.Error(err)
				}
				<-p.Done()
				if err := p.Wait(); err != nil {
					t.Error(err)
				}
				checkRows(t, source, rowBytes, a, outA)
				checkRows(t, source, rowBytes, b, outB)
			}
		})
	}
	wg.Wait()
}

func TestGather_BadInputLeavesOutputUntouched(t *testing.T) {
	data := normalTable(10, 4, 7)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "features", data, 16)}, Budget: 1000})
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	for _, b := range []struct {
		ctx   context.Context
		table int
		rows  []int64
		bytes int
		want  string
		is    error
	}{
		{ctx, 0, []int64{3, -1, 4, 10, 1 << 40}, 80, "cache: row numbers out of range: row number (-1) at position 1 must be 0 to 9 of table features; 3 of 5 are out of range", cache.ErrRows},
		{ctx, 0, []int64{1}, 15, "cache: wrong size: 15 bytes for 1 rows of table features must be 16", cache.ErrOutput},
		{ctx, 0, nil, 1, "cache: wrong size: 1 bytes for 0 rows of table features must be 0", cache.ErrOutput},
		{ctx, 1, nil, 0, "cache: table (1) must be 0 to 0", nil},
		{ctx, -1, nil, 0, "cache: table (-1) must be 0 to 0", nil},
		{canceled, 0, []int64{1}, 16, "context canceled", context.Canceled},
	} {
		out := bytes.Repeat([]byte{0xee}, b.bytes)
		err := c.Gather(b.ctx, cache.Request{Table: b.table, Rows: b.rows, Out: out})
		if err == nil || err.Error() != b.want || b.is != nil && !errors.Is(err, b.is) {
			t.Errorf("got %v, want %s", err, b.want)
		}
		if !bytes.Equal(out, bytes.Repeat([]byte{0xee}, b.bytes)) {
			t.Errorf("%s: output was written", b.want)
		}
		if aerr := c.GatherAsync(b.ctx, cache.Request{Table: b.table, Rows: b.rows, Out: out}).Wait(); aerr == nil || aerr.Error() != b.want {
			t.Errorf("async: got %v, want %s", aerr, b.want)
		}
	}
	if err := c.Gather(ctx, cache.Request{Rows: nil, Out: nil}); err != nil {
		t.Errorf("empty batch: %v", err)
	}
}

func TestClose_IdempotentAndFinal(t *testing.T) {
	data := normalTable(1000, 64, 8)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "features", data, 256)}, Budget: 50_000})
	rows := zipf(rand.New(rand.NewPCG(9, 9)), 1000, 900)
	out := make([]byte, len(rows)*256)
	p := c.GatherAsync(ctx, cache.Request{Rows: rows, Out: out})
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Wait(); err != nil {
		t.Errorf("a Gather under way when Close came: %v", err)
	} else {
		checkRows(t, data, 256, rows, out)
	}
	if err := c.Gather(ctx, cache.Request{Rows: rows, Out: out}); !errors.Is(err, cache.ErrClosed) {
		t.Errorf("Gather after Close: %v", err)
	}
	if err := c.GatherAsync(ctx, cache.Request{Rows: rows, Out: out}).Wait(); !errors.Is(err, cache.ErrClosed) {
		t.Errorf("GatherAsync after Close: %v", err)
	}
	if _, err := c.Stats(); !errors.Is(err, cache.ErrClosed) {
		t.Errorf("Stats after Close: %v", err)
	}
}

// TestClose_RefusesWhileItWaits: while Close waits for calls under way, later calls return ErrClosed at once.
func TestClose_RefusesWhileItWaits(t *testing.T) {
	data := normalTable(1000, 64, 8)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "features", data, 256)}, Budget: 50_000})
	started, release := make(chan bool), make(chan bool)
	var wg sync.WaitGroup
	slow := &slowContext{Context: ctx, started: started, release: release}
	out := make([]byte, 256)
	wg.Go(func() {
		if err := c.Gather(slow, cache.Request{Rows: []int64{1}, Out: out}); err != nil {
			t.Errorf("the Gather under way: %v", err)
		}
	})
	<-started // it is inside
	wg.Go(func() { c.Close() })
	for c.Gather(ctx, cache.Request{Rows: nil, Out: nil}) == nil { // until Close has begun
		runtime.Gosched()
	}
	if err := c.GatherAsync(ctx, cache.Request{Rows: []int64{1}, Out: make([]byte, 256)}).Wait(); !errors.Is(err, cache.ErrClosed) {
		t.Errorf("GatherAsync while Close waits: %v", err)
	}
	close(release)
	wg.Wait()
	checkRows(t, data, 256, []int64{1}, out)
}

// slowContext is a context whose Err blocks.
type slowContext struct {
	context.Context
	started, release chan bool
}

func (c *slowContext) Err() error {
	c.started <- true
	<-c.release
	return nil
}

func TestNew_BudgetLargerThanTableCachesAll(t *testing.T) {
	data := normalTable(500, 32, 10)
	for _, tier := range []cache.HostTier{cache.InPlace, cache.Packed} {
		c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "f", data, 128)}, Budget: 1 << 59, Host: cache.HostOptions{Tier: tier}, Devices: cache.DeviceOptions{Count: 2}})
		rows := make([]int64, 500)
		for i := range rows {
			rows[i] = int64(499 - i)
		}
		out := make([]byte, len(data))
		if err := c.Gather(ctx, cache.Request{Rows: rows, Out: out}); err != nil {
			t.Fatal(err)
		}
		checkRows(t, data, 128, rows, out)
		if s := stats(t, c).Tables[0]; s.CachedRows != 500 || s.Misses != 0 {
			t.Errorf("%v: %d rows cached, %d misses", tier, s.CachedRows, s.Misses)
		}
	}
}

func TestNew_LongestAndShortestRows(t *testing.T) {
	race.SkipSequential(t)
	r := rand.New(rand.NewPCG(11, 11))
	longest := slab.MaxRowBytes
	if race.Enabled {
		longest = 1 << 18
	}
	for _, rowBytes := range []int{1, 3, longest} {
		data := make([]byte, 5*rowBytes)
		for i := range data {
			data[i] = byte(r.Uint32()) & 0x0f
		}
		for i := range rowBytes { // one row that does not shrink
			data[i] = byte(r.Uint32())
		}
		c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "f", data, rowBytes)}, Budget: int64(3*rowBytes + 2000), Codec: "ibp4"})
		rows := []int64{4, 0, 1, 2, 3, 0}
		out := make([]byte, len(rows)*rowBytes)
		if err := c.Gather(ctx, cache.Request{Rows: rows, Out: out}); err != nil {
			t.Fatal(err)
		}
		checkRows(t, data, rowBytes, rows, out)
		if s := stats(t, c).Tables[0]; s.CachedRows == 0 || rowBytes > 3 && s.CachedRows == 5 {
			t.Errorf("rows of %d bytes: %d cached", rowBytes, s.CachedRows)
		}
	}
}

// TestNew_FullSlabMetadata: when a slab of 512-byte rows is full, the hashmap costs at most 24 bytes a cached row.
func TestNew_FullSlabMetadata(t *testing.T) {
	data := normalTable(4000, 128, 12)
	for _, devices := range []int{1, 2} {
		c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "f", data, 512)}, Budget: 300_000, Codec: "none", Devices: cache.DeviceOptions{Count: devices}})
		s := stats(t, c)
		perRow := float64(s.MetadataBytes-int64(devices)*slab.TailSlack) / float64(s.Tables[0].CachedRows) / float64(devices)
		if perRow > 24 || s.BudgetBytes-s.MetadataBytes-s.PayloadBytes > int64(devices)*20*512 {
			t.Errorf("%d devices: %.1f map bytes a row, %d of %d bytes unused", devices, perRow, s.BudgetBytes-s.MetadataBytes-s.PayloadBytes, s.BudgetBytes)
		}
	}
}

func TestNew_MissesHaveReasons(t *testing.T) {
	const rows, rowBytes = 1000, 64
	data := make([]byte, rows*rowBytes)
	r := rand.New(rand.NewPCG(13, 13))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	seen := make([]int64, 500)
	for i := range seen {
		seen[i] = int64(i)
	}
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "f", data, rowBytes)}, Budget: 20_000, Codec: "none",
		Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency(), Training: batches(0, seen, seen[:100], seen[:100])},
	})
	all := make([]int64, rows)
	for i := range all {
		all[i] = int64(i)
	}
	if err := c.Gather(ctx, cache.Request{Rows: all, Out: make([]byte, len(data))}); err != nil {
		t.Fatal(err)
	}
	s := stats(t, c).Tables[0]
	want := [slab.NumReasons]int64{slab.Cold: 500, slab.Rejected: 500 - s.CachedRows}
	if s.MissesByReason != want || s.CachedRows < 200 {
		t.Errorf("misses by reason %v, want %v (%d rows cached)", s.MissesByReason, want, s.CachedRows)
	}
	// The most frequent rows are cached.
	before := stats(t, c)
	if err := c.Gather(ctx, cache.Request{Rows: seen[:100], Out: make([]byte, 100*rowBytes)}); err != nil {
		t.Fatal(err)
	}
	if got := stats(t, c).Sub(before).Tables[0]; got.Hits != 100 {
		t.Errorf("%d of the 100 most frequent rows hit", got.Hits)
	}
}

func TestNew_OversizeRows(t *testing.T) {
	race.SkipSequential(t)
	// Two zero rows fit, the noisy one does not.
	data := make([]byte, 3*100_000)
	r := rand.New(rand.NewPCG(14, 14))
	for i := range 100_000 {
		data[i] = byte(r.Uint32())
	}
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "f", data, 100_000)}, Budget: 50_000, Codec: "ibp8",
		Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency(), Training: batches(0, []int64{0, 0, 1, 2})}})
	out := make([]byte, len(data))
	if err := c.Gather(ctx, cache.Request{Rows: []int64{0, 1, 2}, Out: out}); err != nil {
		t.Fatal(err)
	}
	if s := stats(t, c).Tables[0]; s.MissesByReason[slab.Oversize] != 1 || s.Hits != 2 {
		t.Errorf("%d hits, misses by reason %v", s.Hits, s.MissesByReason)
	}
}

func TestNew_BadOptions(t *testing.T) {
	good := func() []cache.Table { return []cache.Table{fromBytes(t, "f", make([]byte, 5440), 272)} }
	for want, o := range map[string]cache.Options{
		"cache: Tables (0) must be 1 to 256":                                                     {Budget: 1},
		"cache: GPUMemory (0 B) must be at least one slot (16 B) and its hashmap":                {Tables: good()},
		"cache: Devices.Backend (\"gpu\") must be auto, host or cuda":                            {Tables: good(), Budget: 4096, Devices: cache.DeviceOptions{Backend: "gpu"}},
		"cache: Devices.Count (9) must be 1 to 8\ncache: Host.Workers (-1) must not be negative": {Tables: good(), Budget: 4096, Devices: cache.DeviceOptions{Count: 9}, Host: cache.HostOptions{Workers: -1}},
		"codec: unknown codec (\"zip\") must be one of " + strings.Join(registry.Usage(), ", "):  {Tables: good(), Budget: 4096, Codec: "zip"},
		"cache: Host.Tier (\"flat\") must be inplace or packed":                                  {Tables: good(), Budget: 4096, Host: cache.HostOptions{Tier: "flat"}},
		"cache: table must come from Open, FromSlice, FromBytes or FromReader":                   {Tables: make([]cache.Table, 1), Budget: 4096},
	} {
		_, err := cache.New(o)
		if err == nil || !errors.Is(err, cache.ErrOptions) || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	_, err := cache.New(cache.Options{Tables: good(), Budget: 96, Codec: "none"})
	if want := "cache: budget too small: GPUMemory (96 B) must hold at least one slot (272 B) and its metadata: 472 B in all"; !errors.Is(err, cache.ErrBudget) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := cache.New(cache.Options{Tables: good(), GPUMemory: 2000, Budget: 1000}); err == nil || err.Error() != "cache: Budget (1000 B) is the earlier name of GPUMemory (2000 B): set one of them" {
		t.Errorf("two budgets: %v", err)
	}
	if _, err := cache.New(cache.Options{Tables: good(), Budget: 1<<59 + 1}); err == nil || err.Error() != "cache: GPUMemory (576460752303423489 B) must be at most 2^59 B" {
		t.Errorf("huge budget: %v", err)
	}
	once := good()
	newCache(t, cache.Options{Tables: once, Budget: 4096})
	if _, err := cache.New(cache.Options{Tables: once, Budget: 4096}); err == nil || err.Error() != "cache: table f: must not be given to New twice" {
		t.Errorf("a table given twice: %v", err)
	}
	long := fromBytes(t, "long", make([]byte, 1<<20), 1<<20)
	if _, err := cache.New(cache.Options{Tables: []cache.Table{long}, Budget: 1 << 22}); err == nil ||
		!strings.Contains(err.Error(), "cache: table long: row (1048576 bytes) must be shorter than 1 MiB (1048576)") {
		t.Errorf("row of 1 MiB: %v", err)
	}
	if _, err := cache.New(cache.Options{Tables: good(), Budget: 4096, Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency(), Training: batches(0, []int64{20})}}); !errors.Is(err, cache.ErrRows) {
		t.Errorf("training row out of range: %v", err)
	}
	if _, err := cache.New(cache.Options{Tables: good(), Budget: 4096, Admission: cache.AdmissionOptions{Policy: admission.NewStaticDegree()}}); err == nil {
		t.Error("no in-degrees: no error")
	}
}

func TestTable_BadInput(t *testing.T) {
	for want, call := range map[string]func() (cache.Table, error){
		"cache: table f: columns (0) must be at least 1":                                 func() (cache.Table, error) { return cache.FromSlice("f", []float32{1}, 0) },
		"cache: table f: data (12 bytes) must be a multiple of the row (8 bytes)":        func() (cache.Table, error) { return cache.FromSlice("f", []float32{1, 2, 3}, 2) },
		"cache: table f: row (6 bytes) must be a positive multiple of float32's 4 bytes": func() (cache.Table, error) { return cache.FromBytes("f", dtype.Float32, nil, 6) },
		"cache: table f: element type (invalid) must be one of package dtype's":          func() (cache.Table, error) { return cache.FromBytes("f", 0, nil, 4) },
	} {
		if _, err := call(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := cache.Open(t.TempDir() + "/none.npy"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestFromSlice_DTypes(t *testing.T) {
	type (
		label  uint16
		weight float32
	)
	a, _ := cache.FromSlice("a", []float64{1, 2}, 1)
	b, _ := cache.FromSlice("b", []label{1, 2, 3, 4}, 2)
	c, _ := cache.FromSlice("c", []weight{1, 2, 3, 4}, 2)
	if a.DType() != dtype.Float64 || a.Rows() != 2 || b.DType() != dtype.Uint16 || b.RowBytes() != 4 {
		t.Errorf("%v %d, %v %d", a.DType(), a.Rows(), b.DType(), b.RowBytes())
	}
	if c.DType() != dtype.Float32 || c.RowBytes() != 8 {
		t.Errorf("a named float32: %v, rows of %d bytes", c.DType(), c.RowBytes())
	}
}

// TestNew_LoadFails: a table that its codec refuses is an error of New, whatever telemetry there is, and the next cache opens.
func TestNew_LoadFails(t *testing.T) {
	const rowBytes = 512
	data := make([]byte, 100*rowBytes)
	o := cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: 1 << 20, Codec: "ibp2"}
	if _, err := cache.New(o); err == nil || !strings.Contains(err.Error(), "table x: ") {
		t.Errorf("error %v", err)
	}
	o.Tables, o.Codec = []cache.Table{fromBytes(t, "x", data, rowBytes)}, "ibp4"
	newCache(t, o)
}

// TestNew_FailedLeavesTables: a table of any source can be given to New again when New has failed, early or late, and is the cache's once it has succeeded.
func TestNew_FailedLeavesTables(t *testing.T) {
	race.SkipSequential(t)
	const rows, columns = 300, 16
	values := make([]float32, rows*columns)
	for i := range values {
		values[i] = float32(i) * 1.37
	}
	dir := t.TempDir()
	write := func(name string, fortran bool, archive bool) string {
		order, data := "False", cache.AsBytes(values)
		if fortran {
			order, data = "True", nil
			for c := range columns {
				for r := range rows {
					data = append(data, cache.AsBytes(values[r*columns+c:][:1])...)
				}
			}
		}
		file := append(fmt.Appendf(nil, "\x93NUMPY\x01\x00\x76\x00%-117s\n", fmt.Sprintf("{'descr': '<f4', 'fortran_order': %s, 'shape': (%d, %d), }", order, rows, columns)), data...)
		path := filepath.Join(dir, name)
		if archive {
			var b bytes.Buffer
			w := zip.NewWriter(&b)
			f, err := w.Create("x.npy") // deflated
			if err == nil {
				_, err = f.Write(file)
			}
			if err = errors.Join(err, w.Close()); err != nil {
				t.Fatal(err)
			}
			file = b.Bytes()
		}
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	closed := 0
	for name, open := range map[string]func() (cache.Table, error){
		"slice": func() (cache.Table, error) { return cache.FromSlice("x", values, columns) },
		"reader": func() (cache.Table, error) {
			return cache.FromReader("x", dtype.Float32, rows, 4*columns, func(row int64, dst []byte) error {
				copy(dst, cache.AsBytes(values[row*columns:]))
				return nil
			}, func() error { closed++; return nil })
		},
		"npy":           func() (cache.Table, error) { return cache.Open(write("a.npy", false, false)) },
		"Fortran order": func() (cache.Table, error) { return cache.Open(write("b.npy", true, false)) },
		"deflated":      func() (cache.Table, error) { return cache.Open(write("c.npz", false, true)) },
		"pages":         func() (cache.Table, error) { return cache.Open(packedFiles(t, cache.AsBytes(values), 4*columns)) },
	} {
		t.Run(name, func(t *testing.T) {
			table, err := open()
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range []cache.Options{
				{Tables: []cache.Table{table}, Budget: -1},         // before the tables are read
				{Tables: []cache.Table{table}, Budget: 100},        // after
				{Tables: []cache.Table{table, table}, Budget: 1e6}, // between
				{Tables: []cache.Table{table}, Budget: 1e6, Admission: cache.AdmissionOptions{Training: batches(0, []int64{rows})}}, // row out of range
			} {
				o.Host.Memory = 1 << 20
				if _, err := cache.New(o); err == nil || strings.Contains(err.Error(), "twice") != (len(o.Tables) > 1) {
					t.Fatalf("%d tables, budget %d: %v", len(o.Tables), o.Budget, err)
				}
			}
			c := newCache(t, cache.Options{Tables: []cache.Table{table}, Budget: 1 << 16, Host: cache.HostOptions{Memory: 1 << 20}})
			gatherAll(t, c, cache.AsBytes(values))
			if _, err := cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 1 << 16}); err == nil || !strings.Contains(err.Error(), "must not be given to New twice") {
				t.Errorf("given again while a cache has it: %v", err)
			}
			gatherAll(t, c, cache.AsBytes(values))
		})
	}
	if closed != 1 {
		t.Errorf("the reader was closed %d times", closed)
	}
}

// TestOpen_FileChangedBeforeNewAgain: what New reads again must be of the same shape.
func TestOpen_FileChangedBeforeNewAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.npy")
	write := func(rows int) {
		file := append(fmt.Appendf(nil, "\x93NUMPY\x01\x00\x76\x00%-117s\n", fmt.Sprintf("{'descr': '<f4', 'fortran_order': True, 'shape': (%d, 2), }", rows)), make([]byte, rows*8)...)
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(5)
	table, err := cache.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	if _, err := cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 10}); !errors.Is(err, cache.ErrBudget) {
		t.Fatal(err)
	}
	os.Remove(path)
	write(6)
	if _, err := cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 4096}); err == nil ||
		!strings.Contains(err.Error(), "file has become 6 rows of 8 bytes of float32: it must have the 5 rows of 8 bytes of float32 that it was opened with") {
		t.Errorf("%v", err)
	}
}

// TestCache_RowsOfNoTable: the panic names the table and what there is.
func TestCache_RowsOfNoTable(t *testing.T) {
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", noise(10, 64, 1), 64)}, Budget: 4096})
	for name, call := range map[string]func(){"Rows": func() { c.Rows(9) }, "RowBytes": func() { c.RowBytes(-1) }} {
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, cache.ErrTable) || !strings.HasSuffix(err.Error(), "must be 0 to 0") {
					t.Errorf("%s: %v", name, err)
				}
			}()
			call()
		}()
	}
}
