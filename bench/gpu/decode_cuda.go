//go:build cuda && linux

package gpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// sparseDecode is hitDecode of rows that compress well.
func (r *runner) sparseDecode(rowBytes int) error {
	tier, err := r.load(r.sparseRows, rowBytes)
	if err != nil {
		return err
	}
	defer tier.Close()
	if tier.Codec() == nil {
		return fmt.Errorf("rows of %d bytes stay raw", rowBytes)
	}
	return r.hitDecode(tier, r.sparseRows, "hit-decode", SparseCodec, r.d)
}

// hitDecode decodes rows of a slab in a device's memory, for the case of that name, beside a plain gather of the same rows
// uncompressed from there.
func (r *runner) hitDecode(tier *transfer.Tier, of func() (*filled, error), name, label string, in *cuda.Device) error {
	table, err := of()
	if err != nil {
		return err
	}
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
	image, err := r.staging(size + slab.TailSlack)
	if err != nil {
		return err
	}
	parallel(rows, func(from, to int) {
		for i := from; i < to; i++ {
			s, _, _ := tier.Stored(int64(i))
			copy(image.Bytes()[locations[i].Offset():], s)
		}
	})
	mem, err := putOn(in, image.Bytes())
	if err != nil {
		return err
	}
	defer in.Free(mem)
	plainMem := table.mem
	if in != r.d {
		if plainMem, err = putOn(in, table.host.Bytes()); err != nil {
			return err
		}
		defer in.Free(plainMem)
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
	decodes, gathers, numbers := make([]kernels.Decode, sets), make([]kernels.Gather, sets), make([][]int64, sets)
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
		gathers[s] = kernels.Gather{Mem: plainMem, Rows: idBuffer, Out: out, RowBytes: rowBytes}
		numbers[s] = ids
	}
	if in != r.d {
		for s := range decodes {
			decodes[s].Peers = 1
		}
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
	if err := r.check("decode", out, table.host.Bytes(), numbers[r.lastSet(r.o.Runs)], rowBytes); err != nil {
		return err
	}
	bytes, total := float64(batch*rowBytes)/1e9, tier.Totals()
	x := Result{
		Case: name, RowBytes: rowBytes, Codec: label, TableBytes: int64(rows * rowBytes), Batch: batch, Value: bytes / decode, Unit: "GB/s",
		Baseline: "plain gather, uncompressed", BaselineValue: bytes / plain, Compression: float64(total.RawBytes) / float64(total.StoredBytes),
	}
	if in != r.d {
		x.Baseline = "plain gather of the peer's memory, uncompressed"
		x.Detail = fmt.Sprintf("goal × ratio %.3f", x.Compression)
	}
	if label == SparseCodec {
		x.Detail = fmt.Sprintf("0/1 at %g %% density, ratio %.1f; %.1f in slots", 100*density, x.Compression, float64(total.RawBytes)/float64(total.SlotBytes))
	}
	r.add(x)
	return nil
}

// putOn puts data in a device's memory.
func putOn(d *cuda.Device, data []byte) (device.Buffer, error) {
	b, err := d.Alloc(int64(len(data)), "benchmark")
	if err != nil {
		return b, err
	}
	return b, device.Upload(d, b, data)
}

// lastSet is the set of batches that the last of so many timed runs took.
func (r *runner) lastSet(runs int) int { return (warmups + runs - 1) % sets }

// missFetch fetches rows from the host tier, ordered and not, beside a plain kernel reading uncompressed rows.
func (r *runner) missFetch(tier *transfer.Tier) error {
	rows, rowBytes := int(tier.Rows()), tier.RowBytes()
	batch := min(rows, r.o.Batch)
	tierRows, codec, err := tier.Attach(r.d)
	if err != nil {
		return err
	}
	defer transfer.Detach(r.d, tierRows, codec)
	table, err := r.normalRows()
	if err != nil {
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
	orders, fetches, gathers, numbers := make([]kernels.Order, sets), make([]kernels.Fetch, sets), make([]kernels.Gather, sets), make([][]int64, sets)
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
		numbers[s] = slices.Clone(ids)
		slices.Sort(ids)
		idBuffer, err := r.put(asBytes(ids))
		if err != nil {
			return err
		}
		orders[s] = kernels.Order{Found: found, Counters: counters, Ordered: ordered, Pages: kernels.Pages{Buckets: buckets, Tier: tierRows}}
		fetches[s] = kernels.Fetch{Misses: ordered, Counters: counters, Tier: tierRows, Codec: codec, Out: out}
		gathers[s] = kernels.Gather{Mem: table.host, Rows: idBuffer, Out: out, RowBytes: rowBytes}
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
	if err := r.check("fetch", out, table.host.Bytes(), numbers[r.lastSet(r.o.Runs)], rowBytes); err != nil {
		return err
	}
	bytes, total := float64(batch*rowBytes)/1e9, tier.Totals()
	r.add(Result{
		Case: "miss-fetch", RowBytes: rowBytes, Codec: tier.Codec().Name(), TableBytes: int64(rows * rowBytes), Batch: batch, Value: bytes / fetch,
		Unit: "GB/s", Baseline: SortedZeroCopy + ", uncompressed", BaselineValue: bytes / plain,
		Compression: float64(total.RawBytes) / float64(total.StoredBytes),
	})
	return nil
}
