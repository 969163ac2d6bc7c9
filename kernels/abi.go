package kernels

import (
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/slab"
)

// Found is one hit or one miss of a batch, 16 bytes.
type Found struct {
	// Word is a hit's slab.Location, or a miss's row number.
	Word uint64
	// Position is the index in the batch.
	Position uint32
	// Reason is why a miss's row has no location, as far as the hashmap knows.
	Reason uint32
}

// Counters is what a batch leaves behind, one per batch in device memory. It must be zeroed before the batch.
type Counters struct {
	Hits, Misses uint32
	// Reasons counts the misses by what the hashmap says.
	Reasons [slab.NumReasons]uint32
	// Corrupt counts the rows that did not decode; CorruptPosition is the batch index of one of them.
	Corrupt, CorruptPosition uint32
	_                        uint32
	// HostBytes is the sum of the stored bytes of the missed rows.
	HostBytes uint64
}

// Sizes of the structures in device memory.
const (
	FoundBytes    = int64(unsafe.Sizeof(Found{}))
	CountersBytes = int64(unsafe.Sizeof(Counters{}))
)

// The layouts are fixed: CUDA code reads them too.
var (
	_ = [1]int{}[FoundBytes-16]
	_ = [1]int{}[CountersBytes-48]
)

// FoundView views a buffer as the hits and misses of a batch: hits from the front, misses from the back.
func FoundView(b device.Buffer) []Found { return view[Found](b) }

// CountersView views a buffer as counters.
func CountersView(b device.Buffer) *Counters { return &view[Counters](b)[0] }

// view reinterprets a buffer that the host can address and that is aligned for T.
func view[T any](b device.Buffer) []T {
	mem := b.Bytes()
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/int(unsafe.Sizeof(*new(T))))
}
