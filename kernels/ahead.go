package kernels

import (
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/slab"
)

// aheadFrom is from how many bytes on memory is asked for ahead of its use: shorter memory lies in the processor's caches. Tests set it.
var aheadFrom = 1 << 20

const (
	// aheadBytes is how much of a row is asked for: the processor asks for the rest itself when it sees that memory is read in order.
	aheadBytes = 256
	// packedAhead is how many rows ahead the memory of a row that is not in place is asked for, once its index word has come.
	packedAhead = 8
)

// hostAhead is what the host execution asks for of rows that miss, ahead of its use, so that the processor waits for the memory of several rows at the same
// time. What is too short for that is empty. Hits are not asked for: those of skewed batches lie in the processor's caches.
type hostAhead struct {
	bits       [3][]byte // a bit a row: oversize, rejected, compressed
	index, mem []byte    // of the host tier
	stride     int64
	rowBytes   int
	packed     bool // rows are not in place, and long enough together
}

func long(b device.Buffer) []byte {
	if mem := b.Bytes(); len(mem) >= aheadFrom {
		return mem
	}
	return nil
}

// read finds out what is worth asking for.
func (a *hostAhead) read(k *Serve) {
	a.bits = [3][]byte{long(k.Lookup.Oversize), long(k.Lookup.Rejected), long(k.Tier.Compressed)}
	a.index, a.mem = long(k.Tier.Index), long(k.Tier.Mem)
	a.stride, a.rowBytes = k.Tier.Stride, k.Lookup.RowBytes
	a.packed = a.mem != nil && a.stride == 0
}

// rows asks for those of the rows from position from on that miss. locations are what the hashmap has of them.
func (a *hostAhead) rows(k *Serve, from int, locations []slab.Location) {
	if a.mem == nil {
		return
	}
	for j, l := range locations {
		row := k.host.rows.at(from + j)
		if l.Valid() || uint64(row) >= uint64(k.Lookup.Limit) {
			continue
		}
		a.miss(row)
	}
}

// miss asks for what is read first of a row that misses.
func (a *hostAhead) miss(row int64) {
	for _, bits := range a.bits {
		if bits != nil {
			reduce.Prefetch(bits[row>>6<<3:][:8])
		}
	}
	if !a.packed {
		reduce.Prefetch(a.mem[row*a.stride:][:min(a.rowBytes, aheadBytes)])
	} else if a.index != nil {
		reduce.Prefetch(a.index[row*8:][:8])
	}
}

// row asks for the memory of a row that misses, if it is not in place.
func (a *hostAhead) row(k *Serve, row int64) {
	if uint64(row) >= uint64(k.Lookup.Limit) {
		return
	}
	if l := k.Tier.at(row); l.Valid() {
		reduce.Prefetch(a.mem[l.Offset():][:min(l.Stored(a.rowBytes), aheadBytes)])
	}
}
