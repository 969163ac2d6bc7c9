//go:build cuda && linux

package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/attempt"
	"github.com/tensorcache/tensorcache/kernels"
)

const (
	// warmups is how often what is timed runs untimed before.
	warmups = 3
	// sets is how many batches take turns, so that no run finds its rows in the device's caches.
	sets = 4
)

// must, get and try end what is being measured at an error: see package attempt.
var (
	must = attempt.Must
	try  = attempt.Try
)

func get[T any](v T, err error) T { return attempt.Get(v, err) }

// alloc returns device memory until the case ends.
func (r *runner) alloc(n int64) device.Buffer {
	b := get(r.d.Alloc(n, "benchmark"))
	r.buffers = append(r.buffers, b)
	return b
}

// allocHost returns page-locked memory until the case ends.
func (r *runner) allocHost(n int64) device.Buffer {
	b := get(r.d.AllocHost(n, "benchmark"))
	r.buffers = append(r.buffers, b)
	return b
}

// put returns device memory with the data until the case ends.
func (r *runner) put(data []byte) device.Buffer {
	b := r.alloc(int64(len(data)))
	must(device.Upload(r.d, b, data))
	return b
}

// putOn returns memory of any device with the data. The caller frees it.
func putOn(d *cuda.Device, data []byte) device.Buffer {
	b := get(d.Alloc(int64(len(data)), "benchmark"))
	must(device.Upload(d, b, data))
	return b
}

// download returns what device memory holds.
func (r *runner) download(from device.Buffer) []byte {
	data := make([]byte, from.Size())
	must(device.Download(r.d, data, from))
	return data
}

// staging returns page-locked memory of so many bytes, with any contents. The next call may return the same memory.
func (r *runner) staging(bytes int64) device.Buffer {
	if r.stage.Size() < bytes {
		r.d.Free(r.stage)
		r.stage = device.Buffer{}
		r.stage = get(r.d.AllocHost(max(bytes, r.o.TableBytes+r.o.TableBytes/16), "benchmark"))
	}
	return r.stage.Slice(0, bytes)
}

// free frees the memory of a case, freeFrom all but its first n buffers.
func (r *runner) free() { r.freeFrom(0) }

func (r *runner) freeFrom(n int) {
	for _, b := range r.buffers[n:] {
		r.d.Free(b)
	}
	r.buffers = r.buffers[:n]
}

// forget frees the memory that cases share.
func (r *runner) forget() {
	for _, b := range append(r.kept, r.stage) {
		r.d.Free(b)
	}
	r.kept, r.stage, r.normals, r.sparse, r.halves, r.float16s = nil, device.Buffer{}, nil, nil, nil, nil
}

func (r *runner) release() {
	r.free()
	r.forget()
	for _, t := range r.timers {
		if t != nil {
			t.Close()
		}
	}
	if r.stream != nil {
		r.stream.Close()
	}
}

// time returns the median seconds on the device of what enqueue enqueues. i counts the runs.
func (r *runner) time(enqueue func(i int) error) float64 {
	return r.timeAfter(r.o.Runs, nil, enqueue)
}

// timeAfter is time for so many runs, each after what before enqueues untimed, if it is not nil.
func (r *runner) timeAfter(runs int, before func() error, enqueue func(i int) error) float64 {
	for i := range warmups {
		must(enqueue(i))
	}
	must(r.stream.Synchronize())
	var times []float64
	for i := range runs {
		if before != nil {
			must(before())
		}
		must(r.stream.Record(r.timers[0]))
		must(enqueue(warmups + i))
		must(r.stream.Record(r.timers[1]))
		must(r.timers[1].Synchronize())
		times = append(times, get(r.timers[1].Since(r.timers[0])).Seconds())
	}
	return median(times)
}

// timeBatches is timeAfter for what begins a batch. It waits for all of them.
func (r *runner) timeBatches(runs int, before func() error, begin func(i int) (*cache.Batch, error)) (seconds float64) {
	var pending []*cache.Batch
	err := try(func() {
		seconds = r.timeAfter(runs, before, func(i int) error {
			b, err := begin(i)
			if b != nil {
				pending = append(pending, b)
			}
			return err
		})
	})
	for _, b := range pending {
		err = errors.Join(err, b.Wait())
	}
	must(err)
	return seconds
}

// launches returns the median seconds of kernels that are launched in rotation.
func (r *runner) launches(of [sets]device.Kernel) float64 {
	return r.time(func(i int) error { return r.stream.Launch(of[i%sets]) })
}

// clock returns the median seconds of do by the host's clock.
func clock(runs int, do func(i int) error) float64 {
	var times []float64
	for i := range warmups + runs {
		start := time.Now()
		must(do(i))
		if i >= warmups {
			times = append(times, time.Since(start).Seconds())
		}
	}
	return median(times)
}

func median(times []float64) float64 { return quantile(times, 0.5) }

// quantile sorts the times.
func quantile(times []float64, q float64) float64 {
	slices.Sort(times)
	return times[min(int(float64(len(times))*q), len(times)-1)]
}

// turns are batches of one size that are timed in rotation: their row numbers, and these on the device.
type turns struct {
	numbers [sets][]int64
	rows    [sets]device.Buffer
}

// batches makes batches and puts them on the device.
func (r *runner) batches(numbers func(set uint64) []int64) (t turns) {
	for i := range t.rows {
		t.numbers[i] = numbers(uint64(i))
		t.rows[i] = r.put(asBytes(t.numbers[i]))
	}
	return t
}

// sorted returns the same batches in order of the row numbers.
func (r *runner) sorted(t turns) turns {
	return r.batches(func(set uint64) []int64 { return slices.Sorted(slices.Values(t.numbers[set])) })
}

// size is the rows of a batch.
func (t turns) size() int { return len(t.numbers[0]) }

// last returns the row numbers of the batch that the last of so many timed runs took.
func (t turns) last(runs int) []int64 { return t.numbers[(warmups+runs-1)%sets] }

// plain returns kernels that copy the rows, uncompressed, from where they lie: what operations are compared with.
func (t turns) plain(mem, out device.Buffer, rowBytes int) (all [sets]device.Kernel) {
	out = out.Slice(0, int64(t.size()*rowBytes))
	for i := range all {
		all[i] = &kernels.Gather{Mem: mem, Rows: t.rows[i], Out: out, RowBytes: rowBytes}
	}
	return all
}

// gatherer gathers rows of a cache's only table to one device.
type gatherer struct {
	view   cache.View
	handle uintptr
}

func gathererOf(c *cache.Cache, device int, stream device.Stream) gatherer {
	return gatherer{c.On(device), stream.(*cuda.Stream).Handle()}
}

func (g gatherer) begin(rows, out device.Buffer) (*cache.Batch, error) {
	return g.view.Enqueue(context.Background(), g.handle, cache.Request{DeviceRows: rows, DeviceOut: out})
}

func (g gatherer) gather(rows, out device.Buffer) error {
	b, err := g.begin(rows, out)
	if err != nil {
		return err
	}
	return b.Wait()
}

// check compares the first rows of an output with a table.
func check(d *cuda.Device, what string, out device.Buffer, table []byte, rows []int64, rowBytes int) {
	n := min(len(rows), max(1, 1<<20/rowBytes))
	got := make([]byte, n*rowBytes)
	must(device.Download(d, got, out.Slice(0, int64(len(got)))))
	for i, row := range rows[:n] {
		if !bytes.Equal(got[i*rowBytes:][:rowBytes], table[row*int64(rowBytes):][:rowBytes]) {
			must(fmt.Errorf("%s: row %d at position %d differs from its source", what, row, i))
		}
	}
}
