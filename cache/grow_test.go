package cache_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/slab"
)

// TestSetBudget_GrowsBeyondTheFirst: a budget above Options.Budget takes more memory, while batches, updates and withdrawals go on.
func TestSetBudget_GrowsBeyondTheFirst(t *testing.T) {
	race.SkipSequential(t)
	for _, devices := range []int{1, 3, slab.MaxSlabs} {
		for _, placement := range []cache.PlacementMode{cache.PlacementPartition, cache.PlacementReplicate} {
			if devices > 1 || placement == cache.PlacementPartition {
				if testing.Short() && devices == 3 {
					continue
				}
				t.Run(fmt.Sprint(devices, "/", placement), func(t *testing.T) { testGrowsBeyondTheFirst(t, "host", devices, placement) })
			}
		}
	}
}

func TestGPU_SetBudgetGrowsBeyondTheFirst(t *testing.T) {
	gputest.Open(t)
	testGrowsBeyondTheFirst(t, "cuda", 1, cache.PlacementPartition)
}

func testGrowsBeyondTheFirst(t *testing.T, backend cache.Backend, devices int, placement cache.PlacementMode) {
	const rows, rowBytes, first = 4000, 64, 20_000
	data := normalTable(rows, rowBytes/4, 1)
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Codec: "ibp4", Budget: first, Refresh: cache.RefreshOptions{Accesses: 1, MaxChurn: 1},
		Devices: cache.DeviceOptions{Backend: backend, Count: devices, Placement: placement},
	})
	small := stats(t, c)
	end := make(chan struct{})
	var others sync.WaitGroup
	stop := sync.OnceFunc(func() { close(end); others.Wait() })
	defer stop()
	for i := range 3 {
		others.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			out := make([]byte, 200*rowBytes)
			for {
				select {
				case <-end:
					return
				default:
				}
				ids := zipf(r, rows, 200)
				if i == 2 { // rows are updated by what they are, and withdrawn
					for j, id := range ids {
						copy(out[j*rowBytes:], data[id*rowBytes:][:rowBytes])
					}
					if err := errors.Join(c.Update(ctx, 0, ids[:50], out[:50*rowBytes]), c.Invalidate(0, ids[50:60])); err != nil {
						t.Error(err)
						return
					}
					continue
				}
				if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
					t.Error(err)
					return
				}
				checkRows(t, data, rowBytes, ids, out)
			}
		})
	}
	for _, budget := range []int64{30_000, 100_000, 80_000, 400_000} {
		if err := errors.Join(c.SetBudget(ctx, budget), c.Refresh(ctx)); err != nil {
			t.Fatal(err)
		}
		if s := stats(t, c); s.BudgetBytes != budget*int64(devices) || s.PayloadBytes+s.MetadataBytes > s.BudgetBytes {
			t.Errorf("budget %d: %d in all, %d and %d taken", budget, s.BudgetBytes, s.PayloadBytes, s.MetadataBytes)
		}
	}
	stop()
	all, out := make([]int64, rows), make([]byte, rows*rowBytes)
	for i := range all {
		all[i] = int64(i)
	}
	for range 4 {
		if err := errors.Join(c.Gather(ctx, cache.Request{Rows: all, Out: out}), c.Refresh(ctx)); err != nil {
			t.Fatal(err)
		}
		checkRows(t, data, rowBytes, all, out)
	}
	s := stats(t, c)
	if s.Tables[0].CachedRows < rows*19/20 {
		t.Errorf("%d of %d rows are cached, %d with the first budget", s.Tables[0].CachedRows, rows, small.Tables[0].CachedRows)
	}
	if hits, _ := reasonsOf(t, c, data, 0, rows); hits != s.Tables[0].CachedRows {
		t.Errorf("%d hits, %d rows cached", hits, s.Tables[0].CachedRows)
	}
}

// TestSetBudget_NoRoomToGrow: without memory for a larger budget nothing changes.
func TestSetBudget_NoRoomToGrow(t *testing.T) {
	limit := &limited{}
	cache.OpenHostWith(t, func(n, workers int) []device.Device {
		devices := host.Open(n, workers)
		limit.Device = devices[1]
		devices[1] = limit
		return devices
	})
	const rows, rowBytes = 4000, 64
	data := normalTable(rows, rowBytes/4, 1)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: 20_000, Devices: cache.DeviceOptions{Backend: "host", Count: 2}})
	before := stats(t, c)
	for _, what := range []string{"slab", "hashmap"} {
		limit.no = what
		if err := c.SetBudget(ctx, 100_000); !errors.Is(err, device.ErrOutOfMemory) || !strings.HasPrefix(err.Error(), "cache: budget (100000 B): ") {
			t.Errorf("no memory for a %s: %v", what, err)
		}
		if s := stats(t, c); s.BudgetBytes != before.BudgetBytes || s.MetadataBytes != before.MetadataBytes || s.Tables[0].CachedRows != before.Tables[0].CachedRows {
			t.Errorf("%+v, before %+v", s, before)
		}
		checkAll(t, c, data, rowBytes)
	}
	limit.no = ""
	if err := c.SetBudget(ctx, 100_000); err != nil {
		t.Fatal(err)
	}
	checkAll(t, c, data, rowBytes)
}

// limited has no memory for one purpose.
type limited struct {
	device.Device
	no string
}

func (d *limited) Alloc(bytes int64, what string) (device.Buffer, error) {
	if what == d.no {
		return device.Buffer{}, device.ErrOutOfMemory
	}
	return d.Device.Alloc(bytes, what)
}

func checkAll(t *testing.T, c *cache.Cache, data []byte, rowBytes int) {
	t.Helper()
	ids, out := make([]int64, len(data)/rowBytes), make([]byte, len(data))
	for i := range ids {
		ids[i] = int64(i)
	}
	if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
		t.Fatal(err)
	}
	checkRows(t, data, rowBytes, ids, out)
}
