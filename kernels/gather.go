package kernels

import (
	"math"

	"github.com/tensorcache/tensorcache/device"
)

// Gather copies uncompressed rows from wherever the device can address them: for the sample that a
// codec is trained on, and as the baseline of benchmarks.
type Gather struct {
	// Mem holds rows of RowBytes back to back, and Rows the int64 row numbers, all within it.
	Mem, Rows device.Buffer
	// Out receives row i of the batch at i × RowBytes.
	Out      device.Buffer
	RowBytes int
	// Hot, if not empty, holds copies of some rows, and Places has a uint32 for each row of Mem: where in Hot its copy is, or 2³²-1. Then
	// CUDA needs rows of a multiple of 16 bytes.
	Hot, Places device.Buffer
}

// Name implements device.Kernel.
func (k *Gather) Name() string { return "gather" }

// RunHost implements device.Kernel.
func (k *Gather) RunHost(w device.Workers) {
	rows, mem, out := view[int64](k.Rows), k.Mem.Bytes(), k.Out.Bytes()
	places := view[uint32](k.Places)
	w.For(len(rows), rowGrain, func(from, to int) {
		for i := from; i < to; i++ {
			src := mem[rows[i]*int64(k.RowBytes):]
			if len(places) > 0 && places[rows[i]] != math.MaxUint32 {
				src = k.Hot.Bytes()[int(places[rows[i]])*k.RowBytes:]
			}
			copy(out[i*k.RowBytes:][:k.RowBytes], src)
		}
	})
}
