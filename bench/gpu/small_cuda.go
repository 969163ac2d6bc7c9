//go:build cuda && linux

package gpu

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/kernels"
)

// busyBytes is what the device clears before a small batch that is to find it busy: about 150 µs, longer than enqueuing
// the batch takes.
const busyBytes = 512 << 20

// busyBytes is so much, but for tiny tables, which are for tests.
func (r *runner) busyBytes() int64 { return min(busyBytes, r.o.TableBytes) }

// smallBatches measures batches that are over in microseconds: on the device, as seen by the caller, and the caller's own
// part.
func (s *served) smallBatches(table *filled) error {
	for _, n := range []int{1, 32, 1024, hitBatch, 8192} {
		hits, label := n*8/10, "80 % hits"
		if n == hitBatch {
			hits, label = n, "hits"
		}
		mixed, _, _ := s.batches(hits, n-hits)
		t, err := s.upload(mixed)
		if err != nil {
			return err
		}
		out, err := s.alloc(int64(n * s.rowBytes))
		if err != nil {
			return err
		}
		mem, baseline := table.host, "plain zero-copy of all rows, uncompressed"
		if hits == n {
			mem, baseline = table.mem, "plain gather, uncompressed"
		}
		if s.has("small-batch") {
			if err := s.smallOnDevice(t, mem, out, label, baseline); err != nil {
				return err
			}
		}
		if s.has("small-batch-caller") {
			if err := s.smallForCaller(t, mem, out, label, baseline); err != nil {
				return err
			}
		}
		if s.has("caller") && n == hitBatch {
			if err := s.caller(t, out, label); err != nil {
				return err
			}
		}
	}
	if !s.has("caller") {
		return nil
	}
	hits := s.o.Batch * 8 / 10
	mixed, _, _ := s.batches(hits, s.o.Batch-hits)
	t, err := s.upload(mixed)
	if err != nil {
		return err
	}
	out, err := s.alloc(int64(s.o.Batch) * int64(s.rowBytes))
	if err != nil {
		return err
	}
	return s.caller(t, out, "80 % hits")
}

// smallOnDevice is the time between events around a batch on an idle stream, enqueuing included; and on a busy one, where
// the device does not wait for the caller.
func (s *served) smallOnDevice(t turns, mem, out device.Buffer, label, baseline string) error {
	plain, err := s.plain(t, mem, out)
	if err != nil {
		return err
	}
	runs := 5 * s.o.Runs // microseconds vary
	own, err := s.gatherAfter(runs, func() error { return nil }, t, out)
	if err != nil {
		return err
	}
	busy, err := s.d.Alloc(s.busyBytes(), "benchmark")
	if err != nil {
		return err
	}
	defer s.d.Free(busy)
	after, err := s.gatherAfter(runs, func() error { return s.stream.Fill(busy, 0) }, t, out)
	if err != nil {
		return err
	}
	x := s.result("small-batch", len(t.numbers[0]))
	x.Codec, x.Unit, x.Value, x.Baseline, x.BaselineValue = label, "us", own*1e6, baseline, plain*1e6
	x.Further, x.Detail = []Further{{"behind other work", after * 1e6}}, fmt.Sprintf("between events; behind other work %.1f", after*1e6)
	s.add(x)
	return nil
}

// smallForCaller is the time from before the call until the caller knows that the batch is done.
func (s *served) smallForCaller(t turns, mem, out device.Buffer, label, baseline string) error {
	gathers := make([]kernels.Gather, sets)
	for i := range gathers {
		gathers[i] = kernels.Gather{Mem: mem, Rows: t.rows[i], Out: out, RowBytes: s.rowBytes}
	}
	runs := 20 * s.o.Runs
	plain, err := s.clock(runs, func(i int) error {
		return errors.Join(s.stream.Launch(&gathers[i%sets]), s.stream.Synchronize())
	})
	if err != nil {
		return err
	}
	view, handle := s.cache.On(0), s.stream.(*cuda.Stream).Handle()
	own, err := s.clock(runs, func(i int) error {
		b, err := view.GatherDevice(context.Background(), handle, 0, t.rows[i%sets], out)
		if err != nil {
			return err
		}
		return b.Wait()
	})
	if err != nil {
		return err
	}
	x := s.result("small-batch-caller", len(t.numbers[0]))
	x.Codec, x.Unit, x.Value, x.Baseline, x.BaselineValue = label, "us", own*1e6, baseline, plain*1e6
	x.Detail = "GatherDevice and Wait by the host's clock"
	s.add(x)
	return nil
}

// caller is what one GatherDevice costs the thread that calls it: time, and Go allocations.
func (s *served) caller(t turns, out device.Buffer, label string) error {
	view, handle := s.cache.On(0), s.stream.(*cuda.Stream).Handle()
	runs := 20 * s.o.Runs
	var times []float64
	var before, after runtime.MemStats
	allocated := uint64(0)
	for i := range 2 * runs { // the first half tells time, the second counts: counting stops the world
		counting := i >= runs
		if counting {
			runtime.ReadMemStats(&before)
		}
		start := time.Now()
		b, err := view.GatherDevice(context.Background(), handle, 0, t.rows[i%sets], out)
		took := time.Since(start)
		if counting {
			runtime.ReadMemStats(&after)
			allocated += after.Mallocs - before.Mallocs
		}
		if err == nil {
			err = b.Wait()
		}
		if err != nil {
			return err
		}
		if !counting && i >= warmups {
			times = append(times, took.Seconds())
		}
	}
	slices.Sort(times)
	x := s.result("caller", len(t.numbers[0]))
	x.Codec, x.Unit, x.Value = label, "us", median(times)*1e6
	x.Detail = fmt.Sprintf("one GatherDevice; p99 %.1f", times[len(times)*99/100]*1e6)
	s.add(x)
	// Whole ones, as testing.AllocsPerRun counts: others allocate now and then.
	x.Unit, x.Value, x.Detail = "allocations", float64(allocated/uint64(runs)), "Go allocations of one GatherDevice"
	s.add(x)
	return nil
}

// memory is what a cache and its largest batch take of the device beyond budget and codec tables.
func (r *runner) memory() error {
	const tableBytes = 256 << 20
	table, err := r.normalRows()
	if err != nil {
		return err
	}
	source := table.host.Bytes()[:min(tableBytes, r.o.TableBytes)]
	rows := int64(len(source) / smallRow)
	numbers := make([][]int64, sets)
	for i := range numbers {
		numbers[i] = randomRows(r.o.Batch, 0, rows, uint64(i))
	}
	t, err := r.upload(numbers)
	if err != nil {
		return err
	}
	out, err := r.alloc(int64(r.o.Batch) * smallRow)
	if err != nil {
		return err
	}
	free := func() (int64, error) {
		free, _, err := r.d.Context().MemInfo()
		return free, err
	}
	start, err := free()
	if err != nil {
		return err
	}
	s, err := r.serve(source, smallRow, cache.Options{Budget: int64(len(source) / 2)})
	if err != nil {
		return err
	}
	defer s.cache.Close()
	stats, err := s.cache.Stats()
	if err != nil {
		return err
	}
	const aRow = 32 // bytes
	limit := float64(64<<20+aRow*r.o.Batch) / (1 << 20)
	for _, c := range []struct {
		label   string
		batches int
	}{{oneBatch, 1}, {fmt.Sprintf("%d batches", sets), sets}} {
		var pending []*cache.Batch
		for i := range c.batches {
			b, err := s.cache.On(0).GatherDevice(context.Background(), s.stream.(*cuda.Stream).Handle(), 0, t.rows[i], out)
			if err != nil {
				return err
			}
			pending = append(pending, b)
		}
		for _, b := range pending {
			if err := b.Wait(); err != nil {
				return err
			}
		}
		left, err := free()
		if err != nil {
			return err
		}
		x := s.result("memory", r.o.Batch)
		x.Codec, x.Unit, x.Baseline, x.BaselineValue = c.label, "MiB", fmt.Sprintf("64 MiB + %d B a row", aRow), limit
		x.Value = max(0, float64(start-left-stats.BudgetBytes-stats.CodecBytes)/(1<<20))
		x.Detail = "device memory beyond budget and codec tables, batches under way at once"
		s.add(x)
	}
	return nil
}
