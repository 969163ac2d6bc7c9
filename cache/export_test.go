package cache

import (
	"context"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/kernels"
)

// OpenHostWith has caches on the host backend use other devices until the test ends.
func OpenHostWith(t testing.TB, open func(n, workers int) []device.Device) {
	was := openHost
	openHost = open
	t.Cleanup(func() { openHost = was })
}

// ReadMachineFrom has caches read the machine's memory nodes under root until the test ends.
func ReadMachineFrom(t testing.TB, root string) {
	was := sysRoot
	sysRoot = root
	t.Cleanup(func() { sysRoot = was })
}

// ServeApart has every batch served by a launch a stage until the function that it returns is called. No Gather may be under
// way.
func ServeApart() (undo func()) { return serveOnly(sideBySide) }

// ServeHitsFirst is ServeApart for the hits first.
func ServeHitsFirst() (undo func()) { return serveOnly(hitsFirst) }

func serveOnly(s strategy) (undo func()) {
	only = s
	return func() { only = 0 }
}

// IsPlaceholder says whether a provider is known as the one of a process that has set none.
func IsPlaceholder(p any) bool { return isPlaceholder(p) }

// HoldEpoch has a batch begin on the first device that ends when the function that it returns is called.
func HoldEpoch(c *Cache) (end func()) {
	e := &c.devices[0].epochs
	n := e.begin()
	return func() { e.end(n) }
}

// Observe does what a Gather of the first device does for telemetry alone, and says whether it would be traced.
func Observe(ctx context.Context, c *Cache) (traced bool) {
	o := c.devices[0].observe(ctx, 0, 1000)
	traced = o.traced != nil
	o.end(nil)
	return traced
}

// Traced returns what does for telemetry alone what a traced Gather of 1,000 rows of the first device does, all of them misses.
func Traced(ctx context.Context, c *Cache, rows []int64) (run func()) {
	var misses []kernels.Found
	for _, r := range rows {
		reason := c.changes.mu.index.Find(hashmap.Key(0, r)).Reason()
		misses = append(misses, kernels.Found{Word: uint64(r), Reason: uint32(reason)})
	}
	return func() {
		o := c.devices[0].observe(ctx, 0, 1000)
		now := time.Now()
		var times [numPoints]time.Time
		for i := range times {
			times[i] = now
		}
		o.traced.scratch = missScratches.Get().(*missScratch)
		o.traced.misses = append(o.traced.scratch.misses[:0], misses...)
		o.traced.stages(0, &times)
		o.end(nil)
	}
}
