//go:build cuda && linux

package gpu

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/kernels"
)

// gathers measures whole batches of a cache that holds about half of its table, the rows of the smallest numbers.
func (r *runner) gathers(rowBytes int) error {
	small := r.has("small-batch") && rowBytes == 512
	if !r.has("gather-hits") && !r.has("gather-misses") && !r.has("gather-80") && !small {
		return nil
	}
	rows := r.o.TableBytes / int64(rowBytes)
	data := make([]byte, rows*int64(rowBytes))
	if _, err := r.source(rowBytes).Read(data); err != nil {
		return err
	}
	table, err := cache.FromBytes("normals", cache.Float32, data, rowBytes)
	if err != nil {
		return err
	}
	c, err := cache.New(cache.Options{
		Tables: []cache.Table{table}, Budget: r.o.TableBytes / 2, Device: "cuda", Codec: "ibp4", Admission: admission.NewStaticFrequency(), Seed: 1,
	})
	if err != nil {
		return err
	}
	defer c.Close()
	stats, err := c.Stats()
	if err != nil {
		return err
	}
	cached := stats.Tables[0].CachedRows
	raw, err := r.alloc(int64(len(data)))
	if err != nil {
		return err
	}
	host, err := r.d.AllocHost(int64(len(data)), "benchmark")
	if err != nil {
		return err
	}
	defer r.d.Free(host)
	copy(host.Bytes(), data)
	data = nil
	measure := func(name string, batch int, hitShare float64, mem device.Buffer, baseline, unit string) error {
		out, err := r.alloc(int64(batch * rowBytes))
		if err != nil {
			return err
		}
		var ids []device.Buffer
		gathers := make([]kernels.Gather, sets)
		for s := range sets {
			hits := int(hitShare * float64(batch))
			rowNumbers := append(randomRows(hits, 0, cached, uint64(s)), randomRows(batch-hits, cached, rows, uint64(s))...)
			rng := rand.New(rand.NewPCG(uint64(s), 3))
			rng.Shuffle(batch, func(i, j int) { rowNumbers[i], rowNumbers[j] = rowNumbers[j], rowNumbers[i] })
			b, err := r.put(asBytes(rowNumbers))
			if err != nil {
				return err
			}
			ids = append(ids, b)
			gathers[s] = kernels.Gather{Mem: mem, Rows: b, Out: out, RowBytes: rowBytes}
		}
		view := c.On(0)
		plain, err := r.time(func(i int) error { return r.stream.Launch(&gathers[i%sets]) })
		if err != nil {
			return err
		}
		handle := r.stream.(*cuda.Stream).Handle()
		var pending []*cache.Batch
		own, err := r.time(func(i int) error {
			b, err := view.GatherDevice(context.Background(), handle, 0, ids[i%sets], out)
			if err == nil {
				pending = append(pending, b)
			}
			return err
		})
		for _, b := range pending {
			err = errors.Join(err, b.Wait())
		}
		if err != nil {
			return err
		}
		x := Result{
			Case: name, RowBytes: rowBytes, Codec: "ibp4", TableBytes: rows * int64(rowBytes), Batch: batch, Unit: unit, Baseline: baseline,
			Value: float64(batch*rowBytes) / 1e9 / own, BaselineValue: float64(batch*rowBytes) / 1e9 / plain,
		}
		if unit == "us" {
			x.Value, x.BaselineValue = own*1e6, plain*1e6
		}
		r.add(x)
		return nil
	}
	for _, m := range []struct {
		name     string
		hits     float64
		mem      device.Buffer
		baseline string
	}{
		{"gather-hits", 1, raw, "plain gather, uncompressed"},
		{"gather-misses", 0, host, "plain zero-copy, unsorted, uncompressed"},
		{"gather-80", 0.8, host, "plain zero-copy of all rows, unsorted, uncompressed"},
	} {
		if r.has(m.name) {
			if err := measure(m.name, r.o.Batch, m.hits, m.mem, m.baseline, "GB/s"); err != nil {
				return err
			}
		}
	}
	if small {
		for _, n := range []int{1, 32, 1024, 8192} {
			if err := measure("small-batch", n, 0.8, host, "plain zero-copy of all rows, uncompressed", "us"); err != nil {
				return err
			}
		}
	}
	return nil
}
