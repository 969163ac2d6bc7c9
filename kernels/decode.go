package kernels

import (
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/slab"
)

// Decode reads the hits of a batch from the slabs and writes their rows to the output.
type Decode struct {
	// Found holds the batch's hits at its front; Counters says how many and receives Corrupt.
	Found, Counters device.Buffer
	// Slabs are the data store's, by slab ID.
	Slabs []device.Buffer
	Codec Codec
	// Out receives row i of the batch at i × RowBytes.
	Out      device.Buffer
	RowBytes int
	// Peers has a bit for each slab ID that is another device's.
	Peers uint8
	// Leave is how many of the blocks that each multiprocessor could run are left to kernels on other streams; one always runs.
	Leave int
	// End is how the batch ends, if this kernel is one of those that end it.
	End Ending
	// Lanes, 8, 16 or 32, is how many lanes decode a row of rank planes by the decoders that hits of them have of their own: for measuring. 0: as
	// many as suit the row.
	Lanes int
}

// rowGrain is the number of rows a goroutine decodes at a time: some 100 µs of work at 512 bytes a row.
const rowGrain = 256

// Name implements device.Kernel.
func (k *Decode) Name() string { return "decode" }

// RunHost implements device.Kernel.
func (k *Decode) RunHost(w device.Workers) {
	count := CountersView(k.Counters)
	hits := FoundView(k.Found)[:count.Hits]
	out := k.Out.Bytes()
	w.For(len(hits), rowGrain, func(from, to int) {
		for _, h := range hits[from:to] {
			if !readSlot(k.Codec.Codec, k.Slabs, slab.Location(h.Word), out[int(h.Position)*k.RowBytes:][:k.RowBytes]) {
				count.corrupt(h.Position)
			}
		}
	})
	k.End.runHost(count)
}

func (c *Counters) corrupt(position uint32) {
	atomic.StoreUint32(&c.CorruptPosition, position)
	atomic.AddUint32(&c.Corrupt, 1)
}
