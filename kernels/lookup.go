package kernels

import (
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// Lookup finds the rows of a batch in the hashmap and splits them into hits and misses.
type Lookup struct {
	// Map is the hashmap's memory, of the given layout.
	Map    device.Buffer
	Layout hashmap.Layout
	// Table is the table's number, and Rows the batch: int64 row numbers, each in the table.
	Table int
	Rows  device.Buffer
	// Found receives the batch's hits from its front and its misses from its back, in any order. It has room for
	// exactly one Found a row.
	Found device.Buffer
	// Counters receives Hits, Misses and Reasons.
	Counters device.Buffer
}

// Name implements device.Kernel.
func (k *Lookup) Name() string { return "lookup" }

// lookupGrain is the number of rows that a goroutine looks up before it claims room for them: few enough to stay on
// its stack.
const lookupGrain = 512

// RunHost implements device.Kernel.
func (k *Lookup) RunHost(w device.Workers) {
	rows, found, count := view[int64](k.Rows), FoundView(k.Found), CountersView(k.Counters)
	m := hashmap.View(k.Map.Bytes(), k.Layout)
	w.For(len(rows), lookupGrain, func(from, to int) {
		var part [lookupGrain]Found
		hits, misses := 0, lookupGrain
		for i := from; i < to; i++ {
			l := m.Find(hashmap.Key(k.Table, rows[i]))
			if l.Valid() {
				part[hits] = Found{Word: uint64(l), Position: uint32(i)}
				hits++
			} else {
				misses--
				part[misses] = Found{Word: uint64(rows[i]), Position: uint32(i), Reason: uint32(l.Reason())}
			}
		}
		end := int(atomic.AddUint32(&count.Hits, uint32(hits)))
		copy(found[end-hits:end], part[:hits])
		n := lookupGrain - misses
		end = int(atomic.AddUint32(&count.Misses, uint32(n)))
		copy(found[len(found)-end:], part[misses:])
		var reasons [slab.NumReasons]uint32
		for _, f := range part[misses:] {
			reasons[min(f.Reason, slab.NumReasons-1)]++
		}
		for r, n := range reasons {
			if n != 0 {
				atomic.AddUint32(&count.Reasons[r], n)
			}
		}
	})
}
