//go:build cuda && linux

package cache_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// TestGPU_PooledOffsets tries offsets of every kind, in batches of one table in each way, and of several. Good ones give the sums of the documented order; bad ones are
// reported. Nothing around outputs is written, and no run of a long bag outside its own place: the emulated GPU finds writes beyond allocations, and a good batch of long
// bags beside the bad ones in one call would get other sums.
func TestGPU_PooledOffsets(t *testing.T) {
	gpu := gputest.Open(t)
	const rows, columns = 60, 20
	data := floatTable(rows, columns, dtype.Float32, false, 3)
	tables := []cache.Table{floatsOf(t, "a", dtype.Float32, data, columns), floatsOf(t, "b", dtype.Float32, data, columns), floatsOf(t, "c", dtype.Float32, data, columns).WithCodec("none")}
	c := newCache(t, cache.Options{Tables: tables, Budget: 8000, Codec: "ibp4", Devices: cache.DeviceOptions{Backend: "cuda"}})
	r := rand.New(rand.NewPCG(3, 9))
	for i := range gputest.Few(120, 24) {
		n := []int{0, 1, 31, 33, 200, 1500}[r.IntN(6)]
		ids := randomRows(r, n, rows)
		offsets := []int64{0}
		if r.IntN(6) == 0 {
			offsets[0] = []int64{1, -1, 1 << 40, -1 << 62}[r.IntN(4)]
		}
		for range r.IntN(30) {
			step := []int64{0, 1, 32, 33, 100, 1100}[r.IntN(6)]
			if r.IntN(25) == 0 {
				step = []int64{-1, -1000, 1 << 33, -1 << 33, 1 << 61}[r.IntN(5)]
			}
			offsets = append(offsets, offsets[len(offsets)-1]+step)
		}
		if r.IntN(3) != 0 { // mostly within the batch
			for j := range offsets {
				offsets[j] = min(offsets[j], int64(n))
			}
		}
		p := pooling{Pooling: cache.Pooling{Mode: cache.PoolMode(r.IntN(3)), LastOffset: r.IntN(2) == 0, Offsets: offsets}}
		narrow := r.IntN(2) == 0
		given := slices.Clone(offsets)
		if narrow {
			for j := range given {
				given[j] = int64(int32(given[j]))
			}
		}
		p.Offsets = given
		bags := len(given)
		if p.LastOffset {
			bags--
		}
		if bags == 0 && n > 0 {
			continue
		}
		good := given[0] == 0 && slices.IsSorted(given) && given[len(given)-1] <= int64(n)
		way := i % 3
		undo := func() {}
		if way == 1 {
			undo = cache.WritePooled(90 * columns * 4)
		}
		batches := []cache.Request{onDevice(t, gpu, p, narrow).device(r.IntN(3), upload(t, gpu, ids), device.Buffer{})}
		beside, long := pooling{Pooling: cache.Pooling{Bag: 75}}, randomRows(r, 150, rows)
		sizes := []int{bags * columns * 4}
		if way == 2 {
			batches = append(batches, beside.device(0, upload(t, gpu, long), device.Buffer{}), batches[0])
			sizes = append(sizes, 2*columns*4, sizes[0])
			batches[2].Table = 1
		}
		g := newGuarded(t, gpu, sizes)
		for j := range batches {
			batches[j].DeviceOut = g.out(j)
		}
		b, err := c.On(0).Enqueue(ctx, 0, batches...)
		undo()
		if err != nil {
			t.Fatalf("offsets %v of %d rows: %v", given, n, err)
		}
		err = b.Wait()
		outs := g.read(t)
		if what := fmt.Sprintf("way %d, offsets %v of %d rows", way, given, n); bags == 0 {
			continue
		} else if good && err != nil || !good && !errors.Is(err, cache.ErrRows) {
			t.Fatalf("%s: %v", what, err)
		} else if good {
			checkPooled(t, data, dtype.Float32, columns, ids, &p, outs[0], what)
		}
		if way == 2 {
			checkPooled(t, data, dtype.Float32, columns, long, &beside, outs[1], "a batch beside others")
		}
	}
	_ = c.Check(true)
}
