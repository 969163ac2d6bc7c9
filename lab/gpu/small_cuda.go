//go:build cuda && linux

package gpu

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/tensorcache/tensorcache/device"
)

// busyBytes is what the device clears before a batch that is to find it busy. That takes about 150 µs, longer than enqueuing the batch.
const busyBytes = 512 << 20

// busyBytes is smaller for the tiny tables of tests.
func (r *runner) busyBytes() int64 { return min(busyBytes, r.o.TableBytes) }

// smallBatches measures batches that take microseconds: on the device, as their caller sees them, and the caller's own part.
func (s *served) smallBatches(of *table) {
	for _, n := range []int{1, 32, 1024, hitBatch, 8192} {
		hits, label := n*8/10, "80 % hits"
		mem, baseline := of.host, "plain zero-copy of all rows, uncompressed"
		if n == hitBatch {
			hits, label = n, "hits"
			mem, baseline = of.mem, "plain gather, uncompressed"
		}
		t, out := s.mixed(hits, n-hits), s.alloc(int64(n*s.rowBytes))
		if s.has("small-batch") {
			s.smallOnDevice(t, mem, out, label, baseline)
		}
		if s.has("small-batch-caller") {
			s.smallForCaller(t, mem, out, label, baseline)
		}
		if s.has("caller") && n == hitBatch {
			s.caller(t, out, label)
		}
	}
	if s.has("caller") {
		hits := s.o.Batch * 8 / 10
		s.caller(s.mixed(hits, s.o.Batch-hits), s.alloc(int64(s.o.Batch)*int64(s.rowBytes)), "80 % hits")
	}
}

// smallOnDevice is the time between events around a batch: on an idle stream, with the time of enqueuing, and behind other work, where the
// device does not wait for the caller.
func (s *served) smallOnDevice(t turns, mem, out device.Buffer, label, baseline string) {
	plain := s.plain(t, mem, out)
	runs := 5 * s.o.Runs // microseconds vary
	own := s.timeGathers(runs, nil, t, out)
	busy := get(s.d.Alloc(s.busyBytes(), "benchmark"))
	defer s.d.Free(busy)
	after := s.timeGathers(runs, func() error { return s.stream.Fill(busy, 0) }, t, out)
	x := s.result("small-batch", t.size())
	x.Codec, x.Unit, x.Value, x.Baseline, x.BaselineValue = label, "us", own*1e6, baseline, plain*1e6
	x.Further, x.Detail = []Further{{Name: "behind other work", Value: after * 1e6}}, fmt.Sprintf("between events; behind other work %.1f", after*1e6)
	s.add(x)
}

// smallForCaller is the time from before the call until the caller knows that the batch is done.
func (s *served) smallForCaller(t turns, mem, out device.Buffer, label, baseline string) {
	gathers, runs := t.plain(mem, out, s.rowBytes), 20*s.o.Runs
	plain := clock(runs, func(i int) error {
		return errors.Join(s.stream.Launch(gathers[i%sets]), s.stream.Synchronize())
	})
	own := clock(runs, func(i int) error { return s.gather(t.rows[i%sets], out) })
	x := s.result("small-batch-caller", t.size())
	x.Codec, x.Unit, x.Value, x.Baseline, x.BaselineValue = label, "us", own*1e6, baseline, plain*1e6
	x.Detail = "Enqueue and Wait by the host's clock"
	s.add(x)
}

// caller is what one Enqueue costs the thread that calls it: time, and Go allocations.
func (s *served) caller(t turns, out device.Buffer, label string) {
	runs := 20 * s.o.Runs
	var times []float64
	var before, after runtime.MemStats
	allocated := uint64(0)
	for i := range 2 * runs { // the first half is timed; the second half is counted, which stops the world
		counting := i >= runs
		if counting {
			runtime.ReadMemStats(&before)
		}
		start := time.Now()
		b, err := s.begin(t.rows[i%sets], out)
		took := time.Since(start)
		if counting {
			runtime.ReadMemStats(&after)
			allocated += after.Mallocs - before.Mallocs
		}
		must(err)
		must(b.Wait())
		if !counting && i >= warmups {
			times = append(times, took.Seconds())
		}
	}
	x := s.result("caller", t.size())
	x.Codec, x.Unit, x.Value = label, "us", median(times)*1e6
	x.Detail = fmt.Sprintf("one Enqueue; p99 %.1f", quantile(times, 0.99)*1e6)
	s.add(x)
	// The whole number, as of testing.AllocsPerRun: other goroutines allocate now and then.
	x.Unit, x.Value, x.Detail = "allocations", float64(allocated/uint64(runs)), "Go allocations of one Enqueue"
	s.add(x)
}
