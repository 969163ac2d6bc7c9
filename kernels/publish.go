package kernels

import (
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// Ending has a kernel end its batch, alone or as one of two that may run at once: the last one to end copies the counters to Result,
// page-locked memory of CountersBytes, with the batch's number, and leaves them zero for the next batch. The zero value does nothing.
type Ending struct {
	Result device.Buffer
	Batch  uint64
	// Kernels is how many end the batch: Decode and Fetch, or Fetch alone.
	Kernels int
}

func (e *Ending) args() abi.BatchEnd {
	return abi.BatchEnd{Result: e.Result.Addr(), Batch: e.Batch, Kernels: uint32(e.Kernels)}
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

// Published reports whether the batch's last kernel has written the counters to Result. They can be read once that kernel has ended.
func (e Ending) Published() bool {
	return atomic.LoadUint32(&CountersView(e.Result).Batch) == uint32(e.Batch)
}
