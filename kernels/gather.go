package kernels

import (
	"encoding/binary"
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
	// Bag, if not 0, has each Bag rows added up, one after the other, and Out receive the sums as float32. Elements are float32, or bfloat16 if BFloat16 is
	// set; RowBytes is a multiple of 16, and nothing is hot.
	Bag      int
	BFloat16 bool
}

// Name implements device.Kernel.
func (k *Gather) Name() string { return "gather" }

// RunHost implements device.Kernel.
func (k *Gather) RunHost(w device.Workers) {
	rows, mem, out := view[int64](k.Rows), k.Mem.Bytes(), k.Out.Bytes()
	places := view[uint32](k.Places)
	if k.Bag != 0 {
		k.sumHost(w)
		return
	}
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

// sumHost is RunHost with a Bag.
func (k *Gather) sumHost(w device.Workers) {
	rows, mem, out := view[int64](k.Rows), k.Mem.Bytes(), view[float32](k.Out)
	size := 4
	if k.BFloat16 {
		size = 2
	}
	columns := k.RowBytes / size
	w.For(len(rows)/k.Bag, 16, func(from, to int) {
		for bag := from; bag < to; bag++ {
			sums := out[bag*columns:][:columns]
			for i := range sums {
				sum := float32(math.Copysign(0, -1))
				for _, row := range rows[bag*k.Bag:][:k.Bag] {
					at := mem[row*int64(k.RowBytes)+int64(i*size):]
					if k.BFloat16 {
						sum += math.Float32frombits(uint32(binary.LittleEndian.Uint16(at)) << 16)
					} else {
						sum += math.Float32frombits(binary.LittleEndian.Uint32(at))
					}
				}
				sums[i] = sum
			}
		}
	})
}
