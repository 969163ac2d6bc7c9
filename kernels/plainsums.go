package kernels

import (
	"encoding/binary"
	"math"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
)

// plainSums is the kernel of Gather.Sums.
type plainSums struct {
	of      *Gather
	bag     int
	element dtype.Type
}

// Sums returns the kernel that adds up each bag of so many rows, one after the other, and writes the sums to Out as float32, rounding each addition to nearest
// even: what benchmarks of pooled batches compare with. Elements are float32 or bfloat16, RowBytes is a multiple of 16, and Hot is not used.
func (k *Gather) Sums(bag int, element dtype.Type) device.Kernel {
	return &plainSums{k, bag, element}
}

// Name implements device.Kernel.
func (q *plainSums) Name() string { return "plain-sums" }

// RunHost implements device.Kernel.
func (q *plainSums) RunHost(w device.Workers) {
	rowBytes, size := q.of.RowBytes, q.element.Size()
	rows, mem, out := view[int64](q.of.Rows), q.of.Mem.Bytes(), view[float32](q.of.Out)
	columns := rowBytes / size
	w.For(len(rows)/q.bag, 16, func(from, to int) {
		for bag := from; bag < to; bag++ {
			sums := out[bag*columns:][:columns]
			for i := range sums {
				sum := float32(math.Copysign(0, -1))
				for _, row := range rows[bag*q.bag:][:q.bag] {
					at := mem[row*int64(rowBytes)+int64(i*size):]
					if q.element == dtype.BFloat16 {
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
