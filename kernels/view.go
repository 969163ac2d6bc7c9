package kernels

import (
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/slab"
)

//go:generate go run ./gen
//go:generate go run ./gen/codecs go

// abi.h has its own copy of what other packages define.
var (
	_ = [1]int{}[abi.MaxSlabs-slab.MaxSlabs]
	_ = [1]int{}[abi.TailSlack-slab.TailSlack]
	_ = [1]int{}[abi.SlotAlign-slab.Align]
	_ = [1]int{}[abi.NumReasons-slab.NumReasons]
	_ = [1]int{}[abi.BucketSlots-hashmap.BucketSlots]
	_ = [1]int{}[abi.MaxProbe-hashmap.MaxProbe]
	_ = [1]int{}[1<<abi.HintShift-2-hashmap.MaxRows]
)

// MaxMasks is the most masks that SampleBytes takes.
const MaxMasks = abi.MaxMasks

// view reinterprets a buffer that the host can address and that is aligned for T.
func view[T any](b device.Buffer) []T {
	mem := b.Bytes()
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/int(unsafe.Sizeof(*new(T))))
}
