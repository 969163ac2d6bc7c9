//go:build cuda && linux

package gpu

import (
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

func (r *runner) lookup() error {
	layout := hashmap.LayoutFor(int64(r.o.Entries))
	image := make([]uint64, layout.Bytes()/8)
	entries := make([]hashmap.Entry, r.o.Entries)
	for i := range entries {
		entries[i] = hashmap.Entry{Key: hashmap.Key(0, int64(2*i)), Location: slab.Raw(0, int64(i)*16)}
	}
	if _, err := hashmap.View(asBytes(image), layout).Build(entries); err != nil {
		return err
	}
	m, err := r.put(asBytes(image))
	if err != nil {
		return err
	}
	batch := min(1<<20, r.o.Entries)
	found, err := r.alloc(int64(batch) * kernels.FoundBytes)
	if err != nil {
		return err
	}
	counters, err := r.alloc(kernels.CountersBytes)
	if err != nil {
		return err
	}
	for _, hits := range []bool{true, false} {
		lookups := make([]kernels.Lookup, sets)
		for s := range sets {
			rows := randomRows(batch, 0, int64(r.o.Entries), uint64(s))
			for i := range rows {
				rows[i] *= 2
				if !hits {
					rows[i]++
				}
			}
			b, err := r.put(asBytes(rows))
			if err != nil {
				return err
			}
			lookups[s] = kernels.Lookup{Map: m, Layout: layout, Limit: 1 << 40, Rows: b, Found: found, Counters: counters}
		}
		// The floor of any hashmap: one random slot a key, from the same memory.
		slots := make([]kernels.Gather, sets)
		for s := range sets {
			b, err := r.put(asBytes(randomRows(batch, 0, layout.Slots(), uint64(s))))
			if err != nil {
				return err
			}
			slots[s] = kernels.Gather{Mem: m, Rows: b, Out: found, RowBytes: hashmap.SlotBytes}
		}
		plain, err := r.time(func(i int) error { return r.stream.Launch(&slots[i%sets]) })
		if err != nil {
			return err
		}
		took, err := r.time(func(i int) error {
			return errors.Join(r.stream.Fill(counters, 0), r.stream.Launch(&lookups[i%sets]))
		})
		if err != nil {
			return err
		}
		what := "hits"
		if !hits {
			what = "misses"
		}
		r.add(Result{
			Case: "lookup", RowBytes: 8, Codec: what, TableBytes: layout.Bytes(), Batch: batch, Value: float64(batch) / took / 1e9, Unit: "Gkeys/s",
			Baseline: "plain gather of one random slot a key", BaselineValue: float64(batch) / plain / 1e9,
			Detail: fmt.Sprintf("%.1f M entries, load %.2f, %.2f bytes an entry", float64(r.o.Entries)/1e6, float64(r.o.Entries)/float64(layout.Slots()), float64(layout.Bytes())/float64(r.o.Entries)),
		})
	}
	return nil
}
