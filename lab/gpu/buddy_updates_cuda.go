//go:build cuda && linux

package gpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
)

// updateBatch is the rows of an Update, and updateRuns how many are timed.
const updateBatch, updateRuns = 200_000, 6

// updatesOf returns Updates of n rows that follow each other of a resident table, which is opened with a codec: each writes other rows, with what they have.
func (r *runner) updatesOf(source []byte, rowBytes, n int, codec cache.Codec) (c *cache.Cache, update func(i int) error) {
	x := get(cache.FromBytes("normals", dtype.Float32, source, rowBytes)).ResidentWith(cache.ResidentOptions{MaxOverflow: 1})
	c = get(cache.New(cache.Options{
		Tables: []cache.Table{x}, Budget: 2 * r.o.TableBytes, Codec: codec, Seed: seed, Devices: cache.DeviceOptions{Backend: "cuda"},
		Host: cache.HostOptions{Overlay: int64(4 * n * (rowBytes + 32))},
	}))
	return c, func(i int) error {
		first := i * n % max(1, len(source)/rowBytes-n)
		ids := make([]int64, n)
		for k := range ids {
			ids[k] = int64(first + k)
		}
		return c.Update(context.Background(), 0, ids, source[first*rowBytes:][:n*rowBytes])
	}
}

// buddyUpdates measures Updates of a resident table from host memory, and Gathers beside them. GPUs encode rows of codecName; beside these are Updates of rows
// that need not be encoded, and of a codec that processors encode.
func (r *runner) buddyUpdates() {
	const rowBytes = 256
	source := whole(r.normalRows().host.Bytes(), rowBytes)
	n := min(updateBatch, len(source)/rowBytes)
	var further []Further
	for _, codec := range []cache.Codec{"none", "zipnn"} {
		c, update := r.updatesOf(source, rowBytes, n, codec)
		var took float64
		err := try(func() { took = clock(updateRuns, update) })
		must(errors.Join(err, c.Close()))
		further = append(further, Further{Name: string(codec), Value: float64(n) / took / 1e6})
	}
	c, update := r.updatesOf(source, rowBytes, n, codecName)
	err := try(func() {
		batches := r.batches(func(set uint64) []int64 { return randomRows(r.o.Batch, 0, int64(len(source)/rowBytes), set) })
		out := r.alloc(int64(batches.size() * rowBytes))
		g := gathererOf(c, 0, r.stream)
		reads := func() float64 {
			return r.time(func(i int) error { return g.gather(batches.rows[i%sets], out) })
		}
		alone := reads()
		took := clock(updateRuns, update)
		var stop atomic.Bool
		var updates atomic.Int64
		var failed error
		var others sync.WaitGroup
		start := time.Now()
		others.Go(func() {
			for i := 0; !stop.Load() && failed == nil; i++ {
				failed = update(i)
				updates.Add(1)
			}
			stop.Store(true)
		})
		var all []float64
		for updates.Load() < updateRuns && !stop.Load() {
			all = append(all, reads())
		}
		beside := median(all)
		rate := float64(updates.Load()) * float64(n) / time.Since(start).Seconds()
		stop.Store(true)
		others.Wait()
		must(failed)
		must(c.Check(true))
		r.add(Result{
			Case: "buddy-updates", RowBytes: rowBytes, Codec: codecName, TableBytes: int64(len(source)), Batch: n, Unit: "M rows/s", Value: float64(n) / took / 1e6,
			Further: further, Detail: fmt.Sprintf("Updates alone; with none %.2f, with zipnn, which processors encode, %.2f M rows/s", further[0].Value, further[1].Value),
		})
		speed := func(seconds float64) float64 { return float64(batches.size()*rowBytes) / 1e9 / seconds }
		r.add(Result{
			Case: "buddy-updates", RowBytes: rowBytes, Codec: codecName, TableBytes: int64(len(source)), Batch: batches.size(), Unit: readUnit, Value: speed(beside),
			Baseline: "Gathers alone", BaselineValue: speed(alone), Detail: fmt.Sprintf("Gathers beside updates of %.2f M rows/s", rate/1e6),
		})
		r.free()
	})
	must(errors.Join(err, c.Close()))
}
