package cache_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
)

// TestNew_EqualRowsShareSlots: a slab that holds the rows of a few contents holds all rows that are equal to them.
func TestNew_EqualRowsShareSlots(t *testing.T) { testEqualRowsShareSlots(t, cache.BackendHost) }

// TestGPU_EqualRowsShareSlots is TestNew_EqualRowsShareSlots on a GPU.
func TestGPU_EqualRowsShareSlots(t *testing.T) {
	gputest.Require(t)
	testEqualRowsShareSlots(t, cache.BackendCUDA)
}

func testEqualRowsShareSlots(t *testing.T, backend cache.Backend) {
	const rowBytes, contents = 512, 5
	rows := gputest.Few(4000, 1000)
	data := make([]byte, rows*rowBytes)
	for row := range rows {
		for i := range rowBytes {
			data[row*rowBytes+i] = byte(row%contents*31 + i*i)
		}
	}
	for _, of := range []struct {
		codec cache.Codec
		tier  cache.HostTier
	}{{"none", cache.Packed}, {"ibp4", cache.Packed}, {"none", cache.InPlace}, {"ibp4", cache.InPlace}} {
		codec := of.codec
		c := newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: 120_000, Codec: codec,
			Host: cache.HostOptions{Tier: of.tier}, Devices: cache.DeviceOptions{Backend: backend},
		})
		s := stats(t, c)
		if of := s.Tables[0]; of.CachedRows != int64(rows) || of.SlotsSaved != int64(rows-contents) || s.PayloadBytes > 2*contents*rowBytes {
			t.Errorf("%s: %d rows cached, %d slots saved, %d bytes used", codec, of.CachedRows, of.SlotsSaved, s.PayloadBytes)
		}
		ids := make([]int64, rows)
		for i := range ids {
			ids[i] = int64(i)
		}
		out := make([]byte, len(data))
		if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil || !bytes.Equal(out, data) {
			t.Fatalf("%s: rows differ, %v", codec, err)
		}
		if of := stats(t, c).Tables[0]; of.Misses != 0 {
			t.Errorf("%s: %d misses", codec, of.Misses)
		}
		c.Close()
	}
}

// TestRefresh_EqualRowsFillMaps: cycles admit equal rows as long as the maps, not the slabs, have room, and evict others for them.
func TestRefresh_EqualRowsFillMaps(t *testing.T) {
	const rows, rowBytes, part = 4000, 512, 1500
	data := make([]byte, rows*rowBytes)
	for i := range data {
		data[i] = byte(i / rowBytes % 3 * (i % rowBytes))
	}
	policy := &scripted{}
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: 40_000, Codec: "none", Host: cache.HostOptions{Tier: cache.Packed},
		Devices: cache.DeviceOptions{Backend: cache.BackendHost}, Admission: cache.AdmissionOptions{Cold: true, Policy: policy}, Refresh: cache.RefreshOptions{MaxChurn: 1},
	})
	for _, first := range []int64{0, 2000} {
		var ranking []uint64
		var ids []int64
		for row := first; row < first+part; row++ {
			ranking, ids = append(ranking, hashmap.Key(0, row)), append(ids, row)
		}
		policy.set("", ranking)
		if err := c.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
		before, out := stats(t, c).Tables[0], make([]byte, part*rowBytes)
		if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil || !bytes.Equal(out, data[first*rowBytes:][:part*rowBytes]) {
			t.Fatalf("rows differ, %v", err)
		}
		s := stats(t, c)
		if hits := s.Tables[0].Hits - before.Hits; hits < part*9/10 || s.PayloadBytes > 6*rowBytes {
			t.Errorf("rows from %d on: %d of %d hit, %d bytes of slots, %+v", first, hits, part, s.PayloadBytes, s.Changes)
		}
	}
}

// TestRefresh_EqualRows: rows that share slots of many lengths are admitted, evicted, updated and moved by cycles, in a cache of one device and of three
// whose hot rows are copied, and stay right. A cache that is restored from a snapshot shares the slots again.
func TestRefresh_EqualRows(t *testing.T) {
	race.SkipSequential(t)
	const rows, rowBytes = 3000, 256
	for _, o := range []cache.Options{
		{Budget: 130_000, Host: cache.HostOptions{Tier: cache.Packed}},
		{Budget: 130_000, Host: cache.HostOptions{Tier: cache.InPlace}},
		{Budget: 60_000, Host: cache.HostOptions{Tier: cache.InPlace}, Devices: cache.DeviceOptions{Count: 3, Rates: hotRates}},
		{Budget: 90_000, Host: cache.HostOptions{Tier: cache.Packed}, Devices: cache.DeviceOptions{Count: 2, Placement: cache.PlacementReplicate}},
	} {
		r := rand.New(rand.NewPCG(1, uint64(o.Devices.Count)))
		data := make([]byte, rows*rowBytes)
		for row := range rows {
			of := data[row*rowBytes:][:rowBytes]
			if row >= rows/2 && r.IntN(8) != 0 { // like another, and often like many
				copy(of, data[int(float64(rows/2)*r.Float64()*r.Float64()*r.Float64())*rowBytes:][:rowBytes])
				continue
			}
			for i := range of[:8+r.IntN(rowBytes-8)] {
				of[i] = byte(r.Uint32())
			}
		}
		path := filepath.Join(t.TempDir(), "snapshot")
		o.Codec, o.Devices.Backend = "ibp4", "host"
		policy := &scripted{}
		o.Refresh.MaxChurn, o.Admission.Policy = 0.5, policy
		o.Tables = []cache.Table{fromBytes(t, "x", data, rowBytes)}
		c := newCache(t, o)
		ids, out := make([]int64, rows), make([]byte, rows*rowBytes)
		for i := range ids {
			ids[i] = int64(i)
		}
		check := func(c *cache.Cache) {
			t.Helper()
			if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
				t.Fatal(err)
			}
			for row := range rows {
				if !bytes.Equal(out[row*rowBytes:][:rowBytes], data[row*rowBytes:][:rowBytes]) {
					t.Fatalf("row %d differs", row)
				}
			}
		}
		most := int64(0)
		for round := range 40 {
			var ranking []uint64
			if round%4 == 3 { // holes, which nothing fills
				var some []int64
				for _, row := range r.Perm(rows)[:rows*2/3] {
					some = append(some, int64(row))
				}
				if err := c.Invalidate(0, some); err != nil {
					t.Fatal(err)
				}
			} else {
				for _, row := range r.Perm(rows)[:rows/2] {
					ranking = append(ranking, hashmap.Key(0, int64(row)))
				}
			}
			policy.set("", ranking)
			if err := c.Refresh(ctx); err != nil {
				t.Fatal(err)
			}
			check(c)
			if most = max(most, stats(t, c).Tables[0].SlotsSaved); round%4 == 1 {
				for range 20 {
					row := r.IntN(rows)
					of := data[row*rowBytes:][:rowBytes]
					for i := range of[:r.IntN(rowBytes)] {
						of[i] = byte(r.Uint32())
					}
					if err := c.Update(ctx, 0, []int64{int64(row)}, of); err != nil {
						t.Fatal(err)
					}
				}
				check(c)
			}
		}
		s := stats(t, c)
		if n := s.Changes; n.MovedRows == 0 || n.EvictedRows == 0 || n.AdmittedRows == 0 || most < 200 {
			t.Errorf("%+v, at most %d slots saved", n, most)
		}
		t.Logf("%+v, at most %d slots saved, %d rows cached", s.Changes, most, s.Tables[0].CachedRows)
		if err := c.Snapshot(path); err != nil {
			t.Fatal(err)
		}
		c.Close()
		o.Tables = []cache.Table{fromBytes(t, "x", data, rowBytes)}
		o.Admission = cache.AdmissionOptions{Cold: true, Restore: path, Policy: &scripted{}}
		again := newCache(t, o)
		check(again)
		before, now := s.Tables[0], stats(t, again).Tables[0]
		if now.CachedRows < before.CachedRows/2 || now.SlotsSaved < before.SlotsSaved/3 {
			t.Errorf("%d rows and %d slots saved, restored %d and %d", before.CachedRows, before.SlotsSaved, now.CachedRows, now.SlotsSaved)
		}
		again.Close()
	}
}

// TestNew_EqualRowsTakeNoMemoryEach: what opening a table allocates for groups of equal rows does not grow with their number but by a few bytes each, and no object.
func TestNew_EqualRowsTakeNoMemoryEach(t *testing.T) {
	race.SkipSequential(t)
	const rows, rowBytes = 40_000, 512
	open := func(contents int, apart bool) (objects, bytes float64) {
		data := make([]byte, rows*rowBytes)
		for row := range rows {
			r := rand.New(rand.NewPCG(uint64(row%contents), 1))
			for i := 0; i < rowBytes; i += 8 {
				binary.LittleEndian.PutUint64(data[row*rowBytes+i:], r.Uint64())
			}
		}
		table := fromBytes(t, "x", data, rowBytes)
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c := newCache(t, cache.Options{
			Tables: []cache.Table{table}, Budget: 2 * rows * rowBytes, Codec: "none", Host: cache.HostOptions{NoEqualRows: apart}, Devices: cache.DeviceOptions{Backend: cache.BackendHost},
		})
		runtime.ReadMemStats(&after)
		if saved := stats(t, c).Tables[0].SlotsSaved; !apart && saved < (rows-int64(contents))*9/10 {
			t.Errorf("%d contents: %d slots saved", contents, saved)
		}
		c.Close()
		return float64(after.Mallocs - before.Mallocs), float64(after.TotalAlloc - before.TotalAlloc)
	}
	for _, contents := range []int{rows / 2, rows / 10, rows / 1000, 1} {
		objects, bytes := open(contents, false)
		plainObjects, plainBytes := open(contents, true)
		if objects-plainObjects > rows/20 {
			t.Errorf("%d contents of %d rows: %.0f objects more than without groups", contents, rows, objects-plainObjects)
		}
		if more := bytes - plainBytes; more > 400*float64(contents)+40*rows {
			t.Errorf("%d contents of %d rows: %.0f bytes more than without groups", contents, rows, more)
		}
	}
}
