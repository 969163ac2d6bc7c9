package kernels

import (
	"sync/atomic"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/device"
)

// Fetch reads the misses of a batch from the host tier and writes their rows to the output.
type Fetch struct {
	// Found holds the batch's misses at its back; Counters says how many and receives HostBytes and Corrupt.
	Found, Counters device.Buffer
	Tier            HostRows
	// Codec is the table's; nil when all its rows are raw.
	Codec codec.Codec
	// Out receives row i of the batch at i × Tier.RowBytes.
	Out device.Buffer
}

// Name implements device.Kernel.
func (k *Fetch) Name() string { return "fetch" }

// RunHost implements device.Kernel.
func (k *Fetch) RunHost(w device.Workers) {
	count := CountersView(k.Counters)
	misses := missesOf(k.Found, k.Counters)
	out := k.Out.Bytes()
	w.For(len(misses), rowGrain, func(from, to int) {
		moved := 0
		for _, m := range misses[from:to] {
			stored, compressed := k.Tier.Stored(int64(m.Word))
			row := out[int(m.Position)*k.Tier.RowBytes:][:k.Tier.RowBytes]
			n, ok := restore(k.Codec, row, stored, compressed)
			if exact := k.Tier.Stride == 0; !ok || exact && n != len(stored) {
				count.corrupt(m.Position)
			}
			moved += n
		}
		atomic.AddUint64(&count.HostBytes, uint64(moved))
	})
}
