package kernels

import (
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
)

// Fetch reads the misses of a batch from the host tier and writes their rows to the output.
type Fetch struct {
	// Misses holds the batch's misses: at its front, as Order leaves them, or, if AtBack, at its back, as Lookup does. Counters says how many
	// there are and receives HostBytes and Corrupt. A GPU reads a row once for several misses of it near each other at the front.
	// HostBytes counts the row for each of them.
	Misses, Counters device.Buffer
	AtBack           bool
	Tier             HostRows
	Codec            Codec
	// Out receives row i of the batch at i × Tier.RowBytes.
	Out device.Buffer
	// Begun, if not nil, is recorded when the reading has begun. So a kernel that waits for it cannot occupy the multiprocessors first.
	Begun device.Event
	// End is how the batch ends, if this kernel is one of those that end it.
	End Ending
	// Absent receives the misses that the tier does not hold. It may be nil if the tier holds all rows.
	Absent *Absent
}

// Name implements device.Kernel.
func (k *Fetch) Name() string { return "fetch" }

// RunHost implements device.Kernel.
func (k *Fetch) RunHost(w device.Workers) {
	count, misses := CountersView(k.Counters), FoundView(k.Misses)
	if k.AtBack {
		misses = misses[len(misses)-int(count.Misses):]
	}
	out, rowBytes := k.Out.Bytes(), k.Tier.RowBytes
	w.For(int(count.Misses), rowGrain, func(from, to int) {
		for _, m := range misses[from:to] {
			n, ok := k.Tier.read(k.Codec.Codec, int64(m.Word), out[int(m.Position)*rowBytes:][:rowBytes])
			if n == isAbsent {
				k.Absent.add(int64(m.Word), m.Position)
				continue
			}
			if !ok {
				count.corrupt(m.Position)
				continue
			}
			atomic.AddUint64(&count.HostBytes, uint64(n))
		}
	})
	k.End.runHost(count)
}
