package kernels

import (
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
)

// Ending has a kernel end its batch, alone or as one of two that may run at once: the last one to end copies the counters to Result,
// page-locked memory of CountersBytes, with the batch's number, and leaves them zero for the next batch. The zero value does nothing.
type Ending struct {
	Result device.Buffer
	Batch  uint64
	// Kernels is how many end the batch: Decode and Fetch, or Fetch alone.
	Kernels int
}

func (e *Ending) args() BatchEnd {
	return BatchEnd{Result: e.Result.Addr(), Batch: e.Batch, Kernels: uint32(e.Kernels)}
}

// runHost is called at a kernel's end.
func (e *Ending) runHost(count *Counters) {
	if e.Kernels != 0 && int(atomic.AddUint32(&count.Batch, 1)) == e.Kernels {
		publish(count, e.Result, e.Batch)
	}
}

func publish(count *Counters, result device.Buffer, batch uint64) {
	to := CountersView(result)
	*to = *count
	atomic.StoreUint32(&to.Batch, uint32(batch))
	*count = Counters{}
}

// Published says whether a batch's last kernel is at its end. The result can be read once the kernel has ended.
func Published(result device.Buffer, batch uint64) bool {
	return atomic.LoadUint32(&CountersView(result).Batch) == uint32(batch)
}
