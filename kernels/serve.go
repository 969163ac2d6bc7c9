package kernels

import (
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/reduce"
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
	// Pool is used by the kernel of Pooled only. Partials is device memory of Pool.PartialBytes for it; its execution on the host needs none.
	Pool     *reduce.Batch
	Partials device.Buffer
	// Absent is as in Fetch.
	Absent *Absent
	// Resident, if not nil, is where the rows of a resident table lie. Then Tier and Lookup's Map, Rejected, Oversize and samples are not used,
	// and Slabs only for rows that are in the overlay.
	Resident *Resident

	// host is what the host execution reads. It lies here so that a batch allocates nothing.
	host struct {
		table  hashmap.Map
		rows   rowNumbers
		count  *Counters
		out    []byte
		slabs  [slab.MaxSlabs + 1][]byte // of raw rows
		pooled *pooledHost               // of Pooled

		ahead hostAhead

		resident residentHost
	}
}

// Name implements device.Kernel.
func (k *Serve) Name() string { return "serve" }

// RunHost implements device.Kernel.
func (k *Serve) RunHost(w device.Workers) {
	k.readHost()
	w.Range(k.host.rows.len(), rowGrain, k)
	publish(k.host.count, k.Result, k.Batch)
}

// readHost sets what the host execution reads.
func (k *Serve) readHost() {
	h := &k.host
	h.rows, h.count = k.Lookup.rowNumbers(), CountersView(k.Lookup.Counters)
	h.out = k.Lookup.Out.Bytes()
	if k.Resident != nil {
		h.resident.read(k.Resident)
		return
	}
	h.table.Read(k.Lookup.Map.Bytes(), k.Lookup.Layout)
	for i, s := range k.Slabs {
		h.slabs[i] = s.Bytes()
	}
	h.ahead.read(k)
}

// Range implements device.Ranger: it serves rows from to to-1.
func (k *Serve) Range(from, to int) {
	if k.Resident != nil {
		k.rangeResident(from, to)
		return
	}
	var done Counters
	var keys [serveAhead]uint64
	var locations [serveAhead]slab.Location
	out, rowBytes, packed := k.host.out, k.Lookup.RowBytes, k.host.ahead.packed
	for ; from < to; from += serveAhead {
		n := min(serveAhead, to-from)
		for j := range n {
			keys[j] = hashmap.Key(k.Lookup.Table, k.host.rows.at(from+j))
		}
		all := k.host.table.FindAll(keys[:n], locations[:n])
		if k.Lookup.Ring != nil {
			for j, key := range keys[:n] {
				if row := k.host.rows.at(from + j); uint64(row) < uint64(k.Lookup.Limit) {
					k.Lookup.sample(key, uint32(from+j), !locations[j].Valid())
				}
			}
		}
		if !all {
			k.host.ahead.rows(k, from, locations[:n])
		}
		for j, l := range locations[:n] {
			row := k.host.rows.at(from + j)
			if l.Valid() && !l.Compressed() && uint64(row) < uint64(k.Lookup.Limit) {
				copy(out[(from+j)*rowBytes:][:rowBytes], k.host.slabs[l.Slab()][l.Offset():][:rowBytes])
				done.Hits++
				done.Peers += k.Lookup.peer(l)
				continue
			}
			if next := j + packedAhead; packed && next < n && !locations[next].Valid() {
				k.host.ahead.row(k, k.host.rows.at(from+next))
			}
			k.serve(row, from+j, l, &done)
		}
	}
	k.host.count.addPart(&done)
}

// serveAhead is how many rows are looked up before the first of them is read, so that the processor's cache misses overlap.
const serveAhead = 64

// serve writes row i of the batch, which lies at l, and counts it in done. It counts a corrupt row and a row number out of range in the batch's counters.
func (k *Serve) serve(row int64, i int, l slab.Location, done *Counters) {
	out := k.Lookup.Out.Bytes()[i*k.Lookup.RowBytes:][:k.Lookup.RowBytes]
	count := k.host.count
	if uint64(row) >= uint64(k.Lookup.Limit) {
		clear(out)
		count.outOfRange(uint32(i))
		return
	}
	if l = k.Lookup.reason(l, row); l.Valid() {
		done.Hits++
		done.Peers += k.Lookup.peer(l)
		if !readSlot(k.Codec.Codec, k.Slabs, l, out) {
			count.corrupt(uint32(i))
		}
		return
	}
	done.Misses++
	done.Reasons[min(l.Reason(), slab.NumReasons-1)]++
	n, ok := k.Tier.read(k.Codec.Codec, row, out)
	if n == isAbsent {
		k.Absent.add(row, uint32(i))
		return
	}
	if !ok {
		count.corrupt(uint32(i))
		return
	}
	done.HostBytes += uint64(n)
}
