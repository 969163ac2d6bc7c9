//go:build cuda && linux

package gpu

import (
	"fmt"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// buddyHits reads resident rows that lie in their slots whole, beside a plain gather of the rows, uncompressed; beside the same rows in a slab, found through
// a hashmap; and by other kernels and from several ranges.
func (r *runner) buddyHits() {
	r.eachResident(false, buddyCodecs, func(x *resident, codec cache.Codec) {
		found := x.hashed()
		var tables []variant
		switch n := x.table.RowBytes; {
		case codec == "rank": // which has none of these kernels
		case n > 512 && n < 768:
			tables = []variant{{Double, x.by(kernels.DoubleKernel)}}
		case n > 512 && n <= 1024:
			tables = []variant{{Wide, x.by(kernels.WideKernel)}}
		}
		if codec == codecName && x.table.RowBytes <= 1024 {
			tables = append(tables, variant{TwoRanges, x.ranged(2)}, variant{MostRanges, x.ranged(buddy.MostParts)})
		}
		kept := len(r.buffers)
		for _, n := range buddyBatches {
			if n = min(n, 6*r.o.Batch); n*x.table.RowBytes > 2*decodedBytes {
				n = 2 * decodedBytes / x.table.RowBytes
			}
			out := r.alloc(int64(n * x.table.RowBytes))
			t := r.batches(func(set uint64) []int64 { return randomRows(n, 0, x.rows, set) })
			plain, hashed := r.launches(t.plain(x.of.mem, out, x.table.RowBytes)), r.launches(found(t, out))
			seconds := x.time(t, out)
			speed := func(seconds float64) float64 { return float64(n*x.table.RowBytes) / 1e9 / seconds }
			own := x.result("buddy-hits", codec, n, seconds)
			own.Baseline, own.BaselineValue = "plain gather, uncompressed", speed(plain)
			r.add(own)
			own.Variant, own.Baseline, own.BaselineValue = ThroughHashmap, "the same rows found through a hashmap", speed(hashed)
			r.add(own)
			for _, v := range tables {
				other := x.timeOf(&v.table, t, out)
				res := x.result("buddy-hits", codec, n, other)
				res.Variant, res.Baseline, res.BaselineValue = v.name, "the usual kernel, one range", speed(seconds)
				r.add(res)
			}
			r.freeFrom(kept)
		}
	})
}

// A variant is a table to be read otherwise.
type variant struct {
	name  string
	table kernels.Resident
}

// by returns the table to be read by another kernel.
func (x *resident) by(kernel kernels.ResidentKernel) kernels.Resident {
	t := x.table
	t.Kernel = kernel
	return t
}

// ranged returns the rows in so many ranges, every second with slots that are 16 bytes longer. No row overflows.
func (x *resident) ranged(n int) kernels.Resident {
	parts := make([]buddy.Part, n)
	for i := range parts {
		parts[i] = buddy.Part{From: x.rows * int64(i) / int64(n), To: x.rows * int64(i+1) / int64(n), Target: x.table.Target + i%2*buddy.MinTarget}
	}
	return x.lay(x.table.Layout, parts, false, x.stored)
}

// stored returns a row's stored form, and whether the codec shrank it.
func (x *resident) stored(row int64) ([]byte, bool) {
	s, compressed, err := x.tier.Stored(row)
	must(err)
	return s, compressed
}

// hashed returns a function that makes kernels that find the rows of batches in a hashmap and decode them: the slots are a slab.
func (x *resident) hashed() func(turns, device.Buffer) [sets]device.Kernel {
	layout := hashmap.LayoutFor(x.rows)
	entries := make([]hashmap.Entry, x.rows)
	for row := range x.rows {
		s, compressed, err := x.tier.Stored(row)
		must(err)
		l := slab.Raw(0, x.table.Slot(row))
		if compressed {
			l = slab.Compressed(0, x.table.Slot(row), len(s))
		}
		entries[row] = hashmap.Entry{Key: hashmap.Key(0, row), Location: l}
	}
	m, failed := x.alloc(layout.Bytes()), x.alloc(4)
	build := &kernels.Build{Map: m, Layout: layout, Failed: failed}
	list, scratch := putOn(x.d, asBytes(entries)), get(x.d.Alloc(build.ScratchBytes(x.rows), "benchmark"))
	build.Entries, build.Scratch = list, scratch
	must(x.stream.Launch(build))
	must(x.stream.Synchronize())
	x.d.Free(list)
	x.d.Free(scratch)
	var bad [1]uint32
	must(device.Download(x.d, asBytes(bad[:]), failed))
	if bad[0] != 0 {
		must(fmt.Errorf("hashmap: %d of %d rows do not fit", bad[0], x.rows))
	}
	tier, codec, err := x.tier.Attach(x.d)
	must(err)
	x.runner.buffers = append(x.runner.buffers, codec.Meta)
	return func(t turns, out device.Buffer) (all [sets]device.Kernel) {
		result := get(x.d.AllocHost(kernels.CountersBytes, "benchmark"))
		x.runner.buffers = append(x.runner.buffers, result)
		counters, found := x.put(make([]byte, kernels.CountersBytes)), x.alloc(int64(t.size())*kernels.FoundBytes)
		for i := range all {
			all[i] = &kernels.Find{
				Lookup: kernels.Lookup{Map: m, Layout: layout, Limit: x.rows, Rows: t.rows[i], Out: out, RowBytes: x.table.RowBytes, Found: found, Counters: counters},
				Slabs:  []device.Buffer{x.table.Slots[0]}, Codec: codec, Tier: tier, End: kernels.Ending{Result: result, Batch: 1, Kernels: 1},
			}
		}
		return all
	}
}
