package cache_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
)

// Resident, adopted and cached tables and one of pages are in one cache and one budget: each reads as its array while all are updated, and the budget and the
// resident table's target change.
func TestResident_BesideOtherTables(t *testing.T) {
	const rows, rowBytes = 3000, 128
	r := rand.New(rand.NewPCG(22, 51))
	data := make([][]byte, 4)
	for i := range data {
		data[i] = residentRows(rows, rowBytes, r)
	}
	paged, err := cache.FromPages(packed(t, data[3], rowBytes, "ibp4", nil))
	if err != nil {
		t.Fatal(err)
	}
	const budget = rows * (rowBytes + 8 + 60)
	c := newCache(t, cache.Options{
		Tables: []cache.Table{
			fromBytes(t, "resident", data[0], rowBytes).WithCodec("ibp4").ResidentWith(cache.ResidentOptions{Target: 64, MaxTarget: rowBytes}),
			adopt(t, "adopted", mapped(t, bytes.Clone(data[1])), rowBytes).RestoreOnClose(),
			fromBytes(t, "cached", data[2], rowBytes).WithCodec("ibp4"), paged,
		},
		Budget: budget, Devices: cache.DeviceOptions{Backend: cache.BackendHost, Count: 2},
		Host: cache.HostOptions{Memory: rows * rowBytes * 5 / 2, Overlay: 128 << 10},
	})
	step := func() {
		for table := range data {
			ids := randomRows(r, 40, rows)
			fresh := residentRows(len(ids), rowBytes, r)
			if err := c.Update(ctx, table, ids, fresh); err != nil {
				t.Fatalf("table %d: %v", table, err)
			}
			for i, id := range ids {
				copy(data[table][id*rowBytes:], fresh[i*rowBytes:][:rowBytes])
			}
		}
		for table := range data {
			ids := randomRows(r, 500, rows)
			out := make([]byte, len(ids)*rowBytes)
			if err := c.Gather(ctx, cache.Request{Table: table, Rows: ids, Out: out}); err != nil {
				t.Fatalf("table %d: %v", table, err)
			}
			for i, id := range ids {
				if !bytes.Equal(out[i*rowBytes:][:rowBytes], data[table][id*rowBytes:][:rowBytes]) {
					t.Fatalf("table %d: row %d is %x, want %x", table, id, out[i*rowBytes:][:rowBytes], data[table][id*rowBytes:][:rowBytes])
				}
			}
		}
	}
	for i := range 12 {
		step()
		switch i % 3 {
		case 0:
			err = c.Retarget(ctx, 0, []int{128, 32, 96, 64}[i/3])
		case 1:
			err = c.Refresh(ctx)
		default:
			err = c.SetBudget(ctx, budget+int64(i%2)*rows*10)
		}
		if err != nil {
			t.Fatal(i, err)
		}
	}
	s, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if one := s.Tables; one[0].Misses != 0 || one[0].CachedRows != rows || one[1].Hits == 0 || one[2].Hits == 0 || one[3].Tiers.RowsRead == 0 {
		t.Errorf("hits and misses: %+v", one)
	}
}
