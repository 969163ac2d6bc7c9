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
	// Table is the table's number and Limit its number of rows. Rows holds the batch's row numbers: int32 if Int32 is set, else int64.
	Table int
	Limit int64
	Rows  device.Buffer
	Int32 bool
	// Peers has a bit for each slab ID that is another device's: hits there are counted.
	Peers uint8
	// Rejected and Oversize have a bit per row, LSB first in 64-bit words, for the rows that the hashmap does not hold
	// for that reason; empty when there are none.
	Rejected, Oversize device.Buffer
	// Out gets zeros for row numbers out of range, RowBytes each at their position.
	Out      device.Buffer
	RowBytes int
	// Found receives the batch's hits from its front and its misses from its back, in any order. It has room for
	// exactly one Found a row.
	Found device.Buffer
	// Counters receives Hits, Misses, Reasons, Peers and OutOfRange.
	Counters device.Buffer
	// Samples says which accesses to append to which ring: SampleRing.Sampling. The zero value keeps none.
	Samples Sampling
	// Ring is the ring of Samples; the host's execution writes through it.
	Ring *SampleRing
	// Pages, if it has Buckets, are those in which to count the misses for Order.
	Pages Pages
}

// Name implements device.Kernel.
func (k *Lookup) Name() string { return "lookup" }

// lookupGrain is the number of rows that a goroutine looks up before it claims room for them: few enough to stay on
// its stack.
const lookupGrain = 512

// RunHost implements device.Kernel.
func (k *Lookup) RunHost(w device.Workers) {
	rows, found, count := k.rowNumbers(), FoundView(k.Found), CountersView(k.Counters)
	m := hashmap.View(k.Map.Bytes(), k.Layout)
	w.For(rows.len(), lookupGrain, func(from, to int) {
		var part [lookupGrain]Found
		hits, misses, peers := 0, lookupGrain, uint32(0)
		for i := from; i < to; i++ {
			row := rows.at(i)
			if uint64(row) >= uint64(k.Limit) {
				clear(k.Out.Bytes()[i*k.RowBytes:][:k.RowBytes])
				count.outOfRange(uint32(i))
				continue
			}
			if l := k.find(m, row, uint32(i)); l.Valid() {
				part[hits] = Found{Word: uint64(l), Position: uint32(i)}
				hits++
				peers += k.peer(l)
			} else {
				misses--
				part[misses] = Found{Word: uint64(row), Position: uint32(i), Reason: uint32(l.Reason())}
			}
		}
		end := int(atomic.AddUint32(&count.Hits, uint32(hits)))
		copy(found[end-hits:end], part[:hits])
		if peers != 0 {
			atomic.AddUint32(&count.Peers, peers)
		}
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

// find returns the location of the row at a position of the batch, or why it has none, and samples the access.
func (k *Lookup) find(m *hashmap.Map, row int64, position uint32) slab.Location {
	key := hashmap.Key(k.Table, row)
	l := m.Find(key)
	if k.Ring != nil {
		k.sample(key, position, !l.Valid())
	}
	return k.reason(l, row)
}

// sample appends an access to the sample ring if it is to be kept.
func (k *Lookup) sample(key uint64, position uint32, miss bool) {
	if kept := k.Samples.keeps(key, position, miss); kept != 0 {
		k.Ring.append(key, kept)
	}
}

// reason returns what the hashmap found of a row; of rows that it never held, why they have no location.
func (k *Lookup) reason(l slab.Location, row int64) slab.Location {
	if !l.Valid() && l.Reason() == slab.Cold {
		switch {
		case bitAt(k.Oversize, row):
			return slab.NoLocation(slab.Oversize)
		case bitAt(k.Rejected, row):
			return slab.NoLocation(slab.Rejected)
		}
	}
	return l
}

// peer returns 1 for a hit in another device's slab, else 0.
func (k *Lookup) peer(l slab.Location) uint32 { return uint32(k.Peers) >> l.Slab() & 1 }

func bitAt(bits device.Buffer, row int64) bool {
	return bits.Size() != 0 && atomic.LoadUint64(&view[uint64](bits)[row>>6])>>(row&63)&1 != 0
}

func (c *Counters) outOfRange(position uint32) {
	atomic.AddUint32(&c.OutOfRange, 1)
	for {
		have := atomic.LoadUint32(&c.NotFirst)
		if ^position <= have || atomic.CompareAndSwapUint32(&c.NotFirst, have, ^position) {
			return
		}
	}
}

// rowNumbers are the row numbers of a batch that the host can address: the elements of one of the two slices.
type rowNumbers struct {
	int64s []int64
	int32s []int32
}

func (k *Lookup) rowNumbers() rowNumbers { return rowNumbersOf(k.Rows, k.Int32) }

func rowNumbersOf(b device.Buffer, narrow bool) rowNumbers {
	if narrow {
		return rowNumbers{int32s: view[int32](b)}
	}
	return rowNumbers{int64s: view[int64](b)}
}

func (r rowNumbers) len() int { return len(r.int64s) + len(r.int32s) }

func (r rowNumbers) at(i int) int64 {
	if r.int32s != nil {
		return int64(r.int32s[i])
	}
	return r.int64s[i]
}

// numRows returns the number of rows in the batch.
func (k *Lookup) numRows() int {
	if k.Int32 {
		return int(k.Rows.Size() / 4)
	}
	return int(k.Rows.Size() / 8)
}
