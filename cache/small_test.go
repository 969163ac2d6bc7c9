//go:build unix

package cache_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/race"
)

// TestNew_ManySmallTables opens as many tables as a cache can have, whose codecs are picked. Trained on all their rows, that took 5
// seconds of a processor.
func TestNew_ManySmallTables(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector is slow")
	}
	var tables []cache.Table
	for i := range 256 {
		tables = append(tables, fromBytes(t, fmt.Sprint(i), normalTable(2000, 32, uint64(i)), 128))
	}
	before := processorTime(t)
	newCache(t, cache.Options{Tables: tables, Budget: 4 << 20, Codec: "auto", Devices: cache.DeviceOptions{Backend: "host"}})
	if took := processorTime(t) - before; took > 2*time.Second {
		t.Errorf("%v of processor time", took)
	} else {
		t.Log(took)
	}
}

func TestNew_SmallCacheTakesLittleHeap(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	table := fromBytes(t, "x", normalTable(100, 16, 1), 64)
	before := heap()
	c := newCache(t, cache.Options{Tables: []cache.Table{table}, Budget: 8000, Codec: "auto", Devices: cache.DeviceOptions{Backend: "host"}})
	t.Log(heap() - before)
	runtime.KeepAlive(c)
}
