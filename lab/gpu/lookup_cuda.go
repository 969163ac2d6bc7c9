//go:build cuda && linux

package gpu

import (
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// lookup measures lookups of keys that are in a hashmap, and of keys that are not.
func (r *runner) lookup() {
	layout := hashmap.LayoutFor(int64(r.o.Entries))
	image := make([]uint64, layout.Bytes()/8)
	entries := make([]hashmap.Entry, r.o.Entries)
	for i := range entries {
		entries[i] = hashmap.Entry{Key: hashmap.Key(0, int64(2*i)), Location: slab.Raw(0, int64(i)*16)}
	}
	get(hashmap.View(asBytes(image), layout).Build(entries))
	m := r.put(asBytes(image))
	batch := min(1<<20, r.o.Entries)
	found, counters := r.alloc(int64(batch)*kernels.FoundBytes), r.alloc(kernels.CountersBytes)
	for odd, what := range []string{"hits", "misses"} { // only even rows are in the map
		rows := r.batches(func(set uint64) []int64 {
			rows := randomRows(batch, 0, int64(r.o.Entries), set)
			for i := range rows {
				rows[i] = 2*rows[i] + int64(odd)
			}
			return rows
		})
		var lookups [sets]device.Kernel
		for i := range lookups {
			lookups[i] = &kernels.Lookup{Map: m, Layout: layout, Limit: 1 << 40, Rows: rows.rows[i], Found: found, Counters: counters}
		}
		// No hashmap can read less than one random slot a key.
		slots := r.batches(func(set uint64) []int64 { return randomRows(batch, 0, layout.Slots(), set) })
		plain := r.launches(slots.plain(m, found, hashmap.SlotBytes))
		took := r.time(func(i int) error {
			return errors.Join(r.stream.Fill(counters, 0), r.stream.Launch(lookups[i%sets]))
		})
		r.add(Result{
			Case: "lookup", RowBytes: 8, Codec: what, TableBytes: layout.Bytes(), Batch: batch, Value: float64(batch) / took / 1e9, Unit: "Gkeys/s",
			Baseline: "plain gather of one random slot a key", BaselineValue: float64(batch) / plain / 1e9,
			Detail: fmt.Sprintf("%.1f M entries, load %.2f, %.2f bytes an entry", float64(r.o.Entries)/1e6, float64(r.o.Entries)/float64(layout.Slots()), float64(layout.Bytes())/float64(r.o.Entries)),
		})
	}
}
