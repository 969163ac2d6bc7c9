//go:build unix

package cache_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/internal/race"
)

// TestNew_ManySmallTables opens as many tables as a cache can have, whose codecs are picked, for GPUs and for processors. Trained on all
// their rows, that took 5 seconds of a processor; when processors were measured for each table, 14.
func TestNew_ManySmallTables(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector is slow")
	}
	for name, link := range map[string]float64{"GPUs": 0, "processors": cache.NoLink} {
		var tables []cache.Table
		for i := range 256 {
			tables = append(tables, fromBytes(t, fmt.Sprint(i), normalTable(2000, 32, uint64(i)), 128))
		}
		before, start := processorTime(t), time.Now()
		newCache(t, cache.Options{Tables: tables, Budget: 4 << 20, Codec: "auto", Link: link, Devices: cache.DeviceOptions{Backend: "host"}})
		if took := processorTime(t) - before; took > 4*time.Second {
			t.Errorf("%s: %v of processor time", name, took)
		} else {
			t.Logf("%s: %v of processor time, %v in all", name, took, time.Since(start))
		}
	}
}

// counting sums the bytes allocated from a device.
type counting struct {
	device.Device
	bytes *atomic.Int64
}

func (d counting) Alloc(bytes int64, what string) (device.Buffer, error) {
	d.bytes.Add(bytes)
	return d.Device.Alloc(bytes, what)
}

func (d counting) AllocHost(bytes int64, what string) (device.Buffer, error) {
	d.bytes.Add(bytes)
	return d.Device.AllocHost(bytes, what)
}

// TestNew_SmallCacheTakesLittleMemory: a cache of a table of 6,400 bytes that learns, changes and serves takes less than 2 MB, not 18 MB.
func TestNew_SmallCacheTakesLittleMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("under the race detector the device's memory is on the Go heap")
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // pools let go of what one collection has spared
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var allocated atomic.Int64
	cache.OpenHostWith(t, func(n, workers int) []device.Device {
		return []device.Device{counting{host.Open(n, workers)[0], &allocated}}
	})
	const rows, rowBytes = 100, 64
	table := fromBytes(t, "x", normalTable(rows, rowBytes/4, 1), rowBytes)
	before := heap()
	c := newCache(t, cache.Options{
		Tables: []cache.Table{table}, Budget: 4000, Codec: "auto", Devices: cache.DeviceOptions{Backend: "host"},
		Refresh: cache.RefreshOptions{Accesses: 1},
	})
	ids, out := make([]int64, rows), make([]byte, rows*rowBytes)
	for i := range ids {
		ids[i] = int64(i)
	}
	if err := errors.Join(c.Gather(ctx, cache.Request{Rows: ids, Out: out}), c.Update(ctx, 0, ids[:10], out[:10*rowBytes]), c.Gather(ctx, cache.Request{Rows: ids[50:], Out: out[:50*rowBytes]}), c.Refresh(ctx)); err != nil {
		t.Fatal(err)
	}
	grown := heap() - before
	// A lane takes a kilobyte of heap, and a processor has two. The first cache of a process takes 25 KB more than later ones. The ring of samples is 1 MiB.
	if heap, device := int64(548<<10+4<<10*runtime.GOMAXPROCS(0)), int64(3<<19); grown > heap || allocated.Load() > device {
		t.Errorf("%d bytes of heap, %d of the device, want at most %d and %d", grown, allocated.Load(), heap, device)
	}
	runtime.KeepAlive(c)
}
