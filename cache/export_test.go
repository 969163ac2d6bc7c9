package cache

import (
	"context"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/read"
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
func ServeApart() (undo func()) { return serveOnly(read.SideBySide) }

// ServeHitsFirst is ServeApart for the hits first.
func ServeHitsFirst() (undo func()) { return serveOnly(read.HitsFirst) }

func serveOnly(l read.Launches) (undo func()) {
	read.SetLaunches(l)
	return func() { read.SetLaunches(0) }
}

// IsPlaceholder says whether a provider is known as the one of a process that has set none.
func IsPlaceholder(p any) bool { return observe.IsPlaceholder(p) }

// HoldEpoch has a batch begin on the first device that ends when the function that it returns is called.
func HoldEpoch(c *Cache) (end func()) { return c.set.Devices[0].HoldEpoch() }

// Observe does what a Gather of the first device does for telemetry alone, and says whether it would be traced.
func Observe(ctx context.Context, c *Cache) (traced bool) {
	o := c.watch.Gather(ctx, 0, 0, 1000)
	traced = o.Trace() != nil
	o.End(nil)
	return traced
}

// Traced returns what does for telemetry alone what a traced Gather of 1,000 rows of the first device does, all of them misses.
func Traced(ctx context.Context, c *Cache, rows []int64) (run func()) {
	var misses []kernels.Found
	for _, r := range rows {
		reason := c.writer.Find(hashmap.Key(0, r)).Reason()
		misses = append(misses, kernels.Found{Word: uint64(r), Reason: uint32(reason)})
	}
	return func() {
		o := c.watch.Gather(ctx, 0, 0, 1000)
		now := time.Now()
		var times [read.NumPoints]time.Time
		for i := range times {
			times[i] = now
		}
		t := o.Trace()
		t.Misses = append(t.Misses, misses...)
		t.Stages(0, &times)
		o.End(nil)
	}
}
