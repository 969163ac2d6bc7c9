//go:build linux

package serve_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/serve"
)

// rates has the rows per second of GatherDevice for batches of hits, of half hits, and of misses.
type rates [3]float64

// measureDevice returns the rates of a cache for rows that hit and rows that miss: all hit of a resident table, where the rates are those of three batches.
func measureDevice(c *cache.Cache, rows, batch, repeats int) (r rates, err error) {
	devices, err := cuda.Open(1)
	if err != nil {
		return r, err
	}
	d := devices[0]
	defer d.Close()
	ids, err := d.Alloc(int64(batch)*8, "row numbers")
	if err != nil {
		return r, err
	}
	defer d.Free(ids)
	out, err := d.Alloc(int64(batch*c.RowBytes(0)), "output")
	if err != nil {
		return r, err
	}
	defer d.Free(out)
	in := make([]bool, 0, rows)
	all := make([]int64, rows)
	for i := range all {
		all[i] = int64(i)
	}
	if in, err = c.Cached(0, all, in); err != nil {
		return r, err
	}
	var hits, misses []int64
	for i, cached := range in {
		if cached {
			hits = append(hits, int64(i))
		} else {
			misses = append(misses, int64(i))
		}
	}
	random := rand.New(rand.NewPCG(4, 4))
	numbers := make([]byte, batch*8)
	for kind := range r {
		for i := range batch {
			from := hits
			if len(misses) > 0 && (kind == 2 || kind == 1 && i%2 == 0) {
				from = misses
			}
			binary.LittleEndian.PutUint64(numbers[8*i:], uint64(from[random.IntN(len(from))]))
		}
		if err := device.Upload(d, ids, numbers); err != nil {
			return r, err
		}
		run := func(n int) (time.Duration, error) {
			begun := time.Now()
			var last *cache.Batch
			for range n {
				var err error
				if last, err = c.On(0).GatherDevice(context.Background(), 0, 0, ids, out); err != nil {
					return 0, err
				}
			}
			err := last.Wait()
			return time.Since(begun), err
		}
		if _, err := run(3); err != nil { // allocates, and the cache learns how many rows miss
			return r, err
		}
		took, err := run(repeats)
		if err != nil {
			return r, err
		}
		r[kind] = float64(batch*repeats) / took.Seconds()
	}
	return r, nil
}

func init() {
	// measure ADDRESS ROWS BATCH REPEATS: for each line of the test, says the rates of an attached cache.
	roles["measure"] = func(p *parent, args []string) error {
		var rows, batch, repeats int
		fmt.Sscan(args[1], &rows)
		fmt.Sscan(args[2], &batch)
		fmt.Sscan(args[3], &repeats)
		begun := time.Now()
		c, err := cache.Attach(context.Background(), args[0], cache.AttachOptions{})
		if err != nil {
			return err
		}
		p.tell(time.Since(begun).Seconds())
		for {
			if _, ok := p.wait(); !ok {
				return c.Close()
			}
			r, err := measureDevice(c, rows, batch, repeats)
			if err != nil {
				return err
			}
			p.tell(r)
		}
	}
}

// TestGPU_AttachedRate: a client gathers about as fast as the owner does. The two take turns.
func TestGPU_AttachedRate(t *testing.T) {
	gputest.Require(t)
	rows, batch, repeats := gputest.Few(2_000_000, 4000), gputest.Few(200_000, 1000), gputest.Few(100, 2)
	const columns = 128 // float32
	values := make([]float32, rows*columns)
	r := rand.New(rand.NewPCG(1, 1))
	noise := make([]float32, 1<<16)
	for i := range noise {
		noise[i] = float32(r.NormFloat64())
	}
	for i := 0; i < len(values); i += columns {
		copy(values[i:i+columns], noise[r.IntN(len(noise)-columns):])
	}
	table, err := cache.FromSlice("rows", values, columns)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("cached", func(t *testing.T) { compareRates(t, table, int64(rows)*columns*4/3, rows, batch, repeats) })
	table, err = cache.FromSlice("rows", values, columns)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("resident", func(t *testing.T) { compareRates(t, table.Resident(), int64(rows)*columns*5, rows, batch, repeats) })
}

// compareRates compares a client of a table with its owner.
func compareRates(t *testing.T, table cache.Table, budget int64, rows, batch, repeats int) {
	c, err := cache.New(cache.Options{
		Tables: []cache.Table{table}, Budget: budget, Codec: "ibp4", Shared: true, Devices: cache.DeviceOptions{Backend: cache.BackendCUDA},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := listen(t, c, serve.Options{})
	client := start(t, "measure", s.Address(), fmt.Sprint(rows), fmt.Sprint(batch), fmt.Sprint(repeats))
	var attached float64
	if err := json.Unmarshal([]byte(client.line()), &attached); err != nil {
		t.Fatal(err)
	}
	var owner, by rates
	for range 3 {
		one, err := measureDevice(c, rows, batch, repeats)
		if err != nil {
			t.Fatal(err)
		}
		client.say("go")
		var other rates
		if err := json.Unmarshal([]byte(client.line()), &other); err != nil {
			t.Fatal(err)
		}
		for i := range one {
			owner[i], by[i] = max(owner[i], one[i]), max(by[i], other[i])
		}
	}
	t.Logf("attached in %.3f s, with loading of the kernels", attached)
	for i, what := range []string{"hits", "half hits", "misses"} {
		ratio := by[i] / owner[i]
		t.Logf("batches of %d rows of %d bytes, %s: owner %.1f M rows/s, client %.1f, ratio %.3f", batch, c.RowBytes(0), what, owner[i]/1e6, by[i]/1e6, ratio)
		if least := 0.9; !testing.Short() && ratio < least {
			t.Errorf("%s: the client has %.3f of the owner's rate, want at least %.2f", what, ratio, least)
		}
	}
}
