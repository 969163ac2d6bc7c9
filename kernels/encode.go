package kernels

import (
	"sync/atomic"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/device"
)

// Encode encodes rows in their places.
type Encode struct {
	// Rows holds Lengths.Size() / 4 rows of Codec.RowBytes(), Stride apart, which is a multiple of 4; slab.TailSlack
	// bytes follow the last. Each row that shrinks is replaced by its stored form.
	Rows   device.Buffer
	Stride int64
	// Lengths receives each row's stored length in 32 bits, 0 where it does not shrink.
	Lengths device.Buffer
	Codec   Codec
}

// CanEncode says whether GPUs encode rows of that length: longer ones do not fit a multiprocessor's memory.
func CanEncode(c codec.Codec) bool {
	_, ok := c.(codec.OnDevice)
	return ok && c.RowBytes() < LongRow
}

// Name implements device.Kernel.
func (k *Encode) Name() string { return "encode" }

// RunHost implements device.Kernel.
func (k *Encode) RunHost(w device.Workers) {
	lengths, mem, rowBytes := view[uint32](k.Lengths), k.Rows.Bytes(), k.Codec.RowBytes()
	w.For(len(lengths), rowGrain, func(from, to int) {
		dst := make([]byte, k.Codec.EncodeBound())
		for i := from; i < to; i++ {
			row := mem[int64(i)*k.Stride:][:rowBytes]
			lengths[i] = 0
			if n, err := k.Codec.Encode(dst, row); err == nil {
				copy(row, dst[:n])
				lengths[i] = uint32(n)
			}
		}
	})
}

// SampleBytes sums what rows back to back would take as stored, those that do not shrink counted raw. The rows' length is
// a multiple of 4.
type SampleBytes struct {
	Rows  device.Buffer
	Codec Codec
	// Sum receives the bytes in 64 bits; it must be zeroed before.
	Sum device.Buffer
}

// Name implements device.Kernel.
func (k *SampleBytes) Name() string { return "sample-bytes" }

// RunHost implements device.Kernel.
func (k *SampleBytes) RunHost(w device.Workers) {
	rows, rowBytes := k.Rows.Bytes(), k.Codec.RowBytes()
	w.For(len(rows)/rowBytes, rowGrain, func(from, to int) {
		dst := make([]byte, k.Codec.EncodeBound())
		sum := uint64(0)
		for i := from; i < to; i++ {
			n, err := k.Codec.Encode(dst, rows[i*rowBytes:][:rowBytes])
			if err != nil {
				n = rowBytes
			}
			sum += uint64(n)
		}
		atomic.AddUint64(&view[uint64](k.Sum)[0], sum)
	})
}
