package cache_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
)

// TestCache_Cached: Cached reports exactly the rows that the next Gather hits, before and after changes.
func TestCache_Cached(t *testing.T) {
	const rows, rowBytes = 500, 64
	for _, devices := range []int{1, 3} {
		c := newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", normalTable(rows, rowBytes/4, 1), rowBytes)}, Budget: 20_000, Devices: cache.DeviceOptions{Count: devices, Backend: "host"},
		})
		ids := make([]int64, rows)
		for i := range ids {
			ids[i] = int64(i)
		}
		compare := func() {
			t.Helper()
			cached, err := c.Cached(0, ids, []bool{true})
			if err != nil || len(cached) != rows+1 || !cached[0] {
				t.Fatalf("%d answers, %v", len(cached), err)
			}
			hits := int64(0)
			for _, hit := range cached[1:] {
				if hit {
					hits++
				}
			}
			before := stats(t, c)
			if err := c.Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, rows*rowBytes)}); err != nil {
				t.Fatal(err)
			}
			if n := stats(t, c).Sub(before).Tables[0]; n.Hits != hits || hits == 0 || hits == rows {
				t.Errorf("%d devices: %d rows said to be cached, %d hits", devices, hits, n.Hits)
			}
		}
		compare()
		if err := c.Invalidate(0, []int64{0, 1, 2, 3, 4, 5, 6, 7}); err != nil {
			t.Fatal(err)
		}
		compare()
		if err := c.Update(ctx, 0, []int64{0, 100, 200, 499}, make([]byte, 4*rowBytes)); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); stats(t, c).OverlayRows > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) { // new versions are hits until the host tier has them
				t.Fatal("updated rows do not arrive")
			}
		}
		compare()
		if _, err := c.Cached(1, ids, nil); err == nil || err.Error() != "cache: table (1) must be 0 to 0" {
			t.Errorf("no such table: %v", err)
		}
		if got, err := c.Cached(0, []int64{-1, rows, 1 << 60}, nil); err != nil || got[0] || got[1] || got[2] {
			t.Errorf("rows out of range: %v, %v", got, err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Cached(0, ids, nil); !errors.Is(err, cache.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// TestCache_Capture: every sampled access is passed on once, also those just before Close, and lost samples are counted.
func TestCache_Capture(t *testing.T) {
	const rows = 70_000 // more than a ring holds
	handed, lost := int64(0), int64(0)
	tables := map[int]int{}
	c := newCache(t, cache.Options{
		Host:    cache.HostOptions{Workers: 1}, // of several, one that falls a whole ring behind leaves an old record, where reading waits
		Tables:  []cache.Table{fromBytes(t, "x", make([]byte, 4*rows), 4), fromBytes(t, "y", make([]byte, 40), 4)},
		Budget:  200_000,
		Refresh: cache.RefreshOptions{Accesses: 1},
		Capture: func(samples []cache.Sample, n int64) {
			handed += int64(len(samples))
			lost += n
			for _, s := range samples {
				tables[s.Table]++
				if !s.ByAccess || s.ByKey || s.Row < 0 || s.Row >= rows {
					t.Errorf("sample %+v", s)
				}
			}
		},
	})
	ids := make([]int64, rows)
	for range 3 {
		if err := c.Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, 4*rows)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Gather(ctx, cache.Request{Table: 1, Rows: ids[:10], Out: make([]byte, 40)}); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if handed+lost != 3*rows+10 || tables[1] != 10 {
		t.Errorf("%d accesses handed over and %d lost of %d; %v", handed, lost, 3*rows+10, tables)
	}
}
