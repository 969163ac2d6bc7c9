package kernels

import (
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

//go:generate go run ./gen

// abi.h has its own copy of what other packages define.
var (
	_ = [1]int{}[MaxSlabs-slab.MaxSlabs]
	_ = [1]int{}[TailSlack-slab.TailSlack]
	_ = [1]int{}[SlotAlign-slab.Align]
	_ = [1]int{}[NumReasons-slab.NumReasons]
	_ = [1]int{}[BucketSlots-hashmap.BucketSlots]
	_ = [1]int{}[MaxProbe-hashmap.MaxProbe]
	_ = [1]int{}[1<<HintShift-2-hashmap.MaxRows]
)

// FoundView views a buffer as the hits and misses of a batch: hits from the front, misses from the back.
func FoundView(b device.Buffer) []Found { return view[Found](b) }

// CountersView views a buffer as counters.
func CountersView(b device.Buffer) *Counters { return &view[Counters](b)[0] }

// FirstOutOfRange returns the batch index of the first row number out of range. REQUIRES: c.OutOfRange > 0.
func (c *Counters) FirstOutOfRange() int { return int(^c.NotFirst) }

// view reinterprets a buffer that the host can address and that is aligned for T.
func view[T any](b device.Buffer) []T {
	mem := b.Bytes()
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/int(unsafe.Sizeof(*new(T))))
}
