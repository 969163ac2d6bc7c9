//go:build cuda && linux

package gpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// hitDecode decodes rows of a slab, beside a plain gather of the same rows uncompressed.
func (r *runner) hitDecode(tier *transfer.Tier) error {
	rows, rowBytes := int(tier.Rows()), tier.RowBytes()
	batch := min(rows, max(1, (512<<20)/rowBytes))
	locations := make([]slab.Location, rows)
	size := int64(0)
	lengths := make([]int32, rows)
	parallel(rows, func(from, to int) {
		for i := from; i < to; i++ {
			s, compressed, err := tier.Stored(int64(i))
			if err != nil {
				panic(err)
			}
			lengths[i] = int32(len(s))
			if !compressed {
				lengths[i] = 0
			}
		}
	})
	for i, n := range lengths {
		locations[i] = slab.Raw(0, size)
		if n != 0 {
			locations[i] = slab.Compressed(0, size, int(n))
		}
		size += int64(slab.SlotBytes(locations[i].Stored(rowBytes)))
	}
	image, err := r.d.AllocHost(size+slab.TailSlack, "benchmark")
	if err != nil {
		return err
	}
	parallel(rows, func(from, to int) {
		for i := from; i < to; i++ {
			s, _, _ := tier.Stored(int64(i))
			copy(image.Bytes()[locations[i].Offset():], s)
		}
	})
	mem, err := r.put(image.Bytes())
	r.d.Free(image)
	if err != nil {
		return err
	}
	codec, err := kernels.AttachCodec(r.d, tier.Codec())
	if err != nil {
		return err
	}
	r.buffers = append(r.buffers, codec.Meta)
	out, err := r.alloc(int64(batch * rowBytes))
	if err != nil {
		return err
	}
	counters, err := r.put(asBytes([]kernels.Counters{{Hits: uint32(batch)}}))
	if err != nil {
		return err
	}
	raw, err := r.alloc(int64(rows * rowBytes))
	if err != nil {
		return err
	}
	decodes, gathers := make([]kernels.Decode, sets), make([]kernels.Gather, sets)
	for s := range sets {
		ids := randomRows(batch, 0, int64(rows), uint64(s))
		hits := make([]kernels.Found, batch)
		for i, id := range ids {
			hits[i] = kernels.Found{Word: uint64(locations[id]), Position: uint32(i)}
		}
		found, err := r.put(asBytes(hits))
		if err != nil {
			return err
		}
		idBuffer, err := r.put(asBytes(ids))
		if err != nil {
			return err
		}
		decodes[s] = kernels.Decode{Found: found, Counters: counters, Slabs: []device.Buffer{mem}, Codec: codec, Out: out, RowBytes: rowBytes}
		gathers[s] = kernels.Gather{Mem: raw, Rows: idBuffer, Out: out, RowBytes: rowBytes}
	}
	plain, err := r.time(func(i int) error { return r.stream.Launch(&gathers[i%sets]) })
	if err != nil {
		return err
	}
	decode, err := r.time(func(i int) error { return r.stream.Launch(&decodes[i%sets]) })
	if err != nil {
		return err
	}
	var check [1]kernels.Counters
	if err := device.Download(r.d, asBytes(check[:]), counters); err != nil {
		return err
	}
	if check[0].Corrupt != 0 {
		return fmt.Errorf("%d rows corrupt", check[0].Corrupt)
	}
	bytes := float64(batch*rowBytes) / 1e9
	r.add(Result{
		Case: "hit-decode", RowBytes: rowBytes, Codec: tier.Codec().Name(), TableBytes: int64(rows * rowBytes), Batch: batch,
		Value: bytes / decode, Unit: "GB/s", Baseline: "plain gather, uncompressed", BaselineValue: bytes / plain,
	})
	return nil
}

// missFetch fetches rows from the host tier, ordered and not, beside a plain kernel reading uncompressed rows.
func (r *runner) missFetch(tier *transfer.Tier) error {
	rows, rowBytes := int(tier.Rows()), tier.RowBytes()
	batch := min(rows, r.o.Batch)
	tierRows, codec, err := tier.Attach(r.d)
	if err != nil {
		return err
	}
	defer transfer.Detach(r.d, tierRows, codec)
	raw, err := r.d.AllocHost(int64(rows*rowBytes), "benchmark")
	if err != nil {
		return err
	}
	defer r.d.Free(raw)
	src := r.source(rowBytes)
	if _, err := src.Read(raw.Bytes()); err != nil {
		return err
	}
	out, err := r.alloc(int64(batch * rowBytes))
	if err != nil {
		return err
	}
	counters, err := r.put(asBytes([]kernels.Counters{{Misses: uint32(batch)}}))
	if err != nil {
		return err
	}
	buckets, err := r.alloc(kernels.OrderBytes)
	if err != nil {
		return err
	}
	orders, fetches, gathers := make([]kernels.Order, sets), make([]kernels.Fetch, sets), make([]kernels.Gather, sets)
	for s := range sets {
		ids := randomRows(batch, 0, int64(rows), uint64(s))
		misses := make([]kernels.Found, batch)
		for i, id := range ids {
			misses[i] = kernels.Found{Word: uint64(id), Position: uint32(i)}
		}
		found, err := r.put(asBytes(misses))
		if err != nil {
			return err
		}
		ordered, err := r.alloc(found.Size())
		if err != nil {
			return err
		}
		slices.Sort(ids)
		idBuffer, err := r.put(asBytes(ids))
		if err != nil {
			return err
		}
		orders[s] = kernels.Order{Found: found, Counters: counters, Ordered: ordered, Buckets: buckets, Tier: tierRows}
		fetches[s] = kernels.Fetch{Misses: ordered, Counters: counters, Tier: tierRows, Codec: codec, Out: out}
		gathers[s] = kernels.Gather{Mem: raw, Rows: idBuffer, Out: out, RowBytes: rowBytes}
	}
	plain, err := r.time(func(i int) error { return r.stream.Launch(&gathers[i%sets]) })
	if err != nil {
		return err
	}
	fetch, err := r.time(func(i int) error {
		return errors.Join(r.stream.Launch(&orders[i%sets]), r.stream.Launch(&fetches[i%sets]))
	})
	if err != nil {
		return err
	}
	bytes := float64(batch*rowBytes) / 1e9
	r.add(Result{
		Case: "miss-fetch", RowBytes: rowBytes, Codec: tier.Codec().Name(), TableBytes: int64(rows * rowBytes), Batch: batch,
		Value: bytes / fetch, Unit: "GB/s", Baseline: "plain zero-copy, sorted, uncompressed", BaselineValue: bytes / plain,
	})
	return nil
}
