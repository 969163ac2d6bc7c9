package kernels

import (
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// Serve is Lookup, Decode and Fetch in one launch, for rows shorter than LongRow. It writes no list of hits and misses. It reads misses in the
// batch's order. It publishes the counters.
type Serve struct {
	// Lookup says what to look up and where the rows go; its Found is not used.
	Lookup Lookup
	// Slabs are the data store's, by slab ID; Tier holds the rows that miss.
	Slabs []device.Buffer
	Codec Codec
	Tier  HostRows
	// Result and Batch are as in Ending.
	Result device.Buffer
	Batch  uint64

	// host is what the host execution reads. It lies here so that a batch allocates nothing.
	host struct {
		table hashmap.Map
		rows  rowNumbers
		count *Counters
	}
}

// Name implements device.Kernel.
func (k *Serve) Name() string { return "serve" }

// RunHost implements device.Kernel.
func (k *Serve) RunHost(w device.Workers) {
	h := &k.host
	h.rows, h.count = k.Lookup.rowNumbers(), CountersView(k.Lookup.Counters)
	h.table.Read(k.Lookup.Map.Bytes(), k.Lookup.Layout)
	w.Range(h.rows.len(), rowGrain, k)
	publish(h.count, k.Result, k.Batch)
}

// Range implements device.Ranger: it serves rows from to to-1.
func (k *Serve) Range(from, to int) {
	var done Counters
	for i := from; i < to; i++ {
		k.serve(&k.host.table, k.host.rows.at(i), i, &done)
	}
	count := k.host.count
	atomic.AddUint32(&count.Hits, done.Hits)
	atomic.AddUint32(&count.Misses, done.Misses)
	atomic.AddUint32(&count.Peers, done.Peers)
	atomic.AddUint64(&count.HostBytes, done.HostBytes)
	for r, n := range done.Reasons {
		atomic.AddUint32(&count.Reasons[r], n)
	}
}

// serve writes row i of the batch and counts it in done. It counts a corrupt row and a row number out of range in the batch's counters.
func (k *Serve) serve(m *hashmap.Map, row int64, i int, done *Counters) {
	out := k.Lookup.Out.Bytes()[i*k.Lookup.RowBytes:][:k.Lookup.RowBytes]
	count := CountersView(k.Lookup.Counters)
	if uint64(row) >= uint64(k.Lookup.Limit) {
		clear(out)
		count.outOfRange(uint32(i))
		return
	}
	l := k.Lookup.find(m, row, uint32(i))
	if l.Valid() {
		done.Hits++
		done.Peers += k.Lookup.peer(l)
		want := l.Stored(len(out))
		n, ok := restore(k.Codec.Codec, out, k.Slabs[l.Slab()].Bytes()[l.Offset():][:want], l.Compressed())
		if !ok || n != want || l.Compressed() && want >= len(out) { // as in Decode
			count.corrupt(uint32(i))
		}
		return
	}
	done.Misses++
	done.Reasons[min(l.Reason(), slab.NumReasons-1)]++
	stored, compressed := k.Tier.Stored(row)
	n, ok := restore(k.Codec.Codec, out, stored, compressed)
	if exact := k.Tier.Stride == 0; !ok || exact && n != len(stored) {
		count.corrupt(uint32(i))
		return
	}
	done.HostBytes += uint64(n)
}
