package kernels

import "github.com/tensorcache/tensorcache/device"

// Gather copies uncompressed rows from wherever the device can address them: for the sample that a
// codec is trained on, and as the baseline of benchmarks.
type Gather struct {
	// Mem holds rows of RowBytes back to back, and Rows the int64 row numbers, all within it.
	Mem, Rows device.Buffer
	// Out receives row i of the batch at i × RowBytes.
	Out      device.Buffer
	RowBytes int
}

// Name implements device.Kernel.
func (k *Gather) Name() string { return "gather" }

// RunHost implements device.Kernel.
func (k *Gather) RunHost(w device.Workers) {
	rows, mem, out := view[int64](k.Rows), k.Mem.Bytes(), k.Out.Bytes()
	w.For(len(rows), rowGrain, func(from, to int) {
		for i := from; i < to; i++ {
			copy(out[i*k.RowBytes:][:k.RowBytes], mem[rows[i]*int64(k.RowBytes):])
		}
	})
}
