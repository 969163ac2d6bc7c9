package kernels

import (
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// Ending makes a kernel one of the last kernels of its batch, of which there are one or two. The kernel that ends last copies the counters and
// the batch's number to Result, page-locked memory of CountersBytes, and leaves the counters zero for the next batch. The zero value does
// nothing.
type Ending struct {
	Result device.Buffer
	Batch  uint64
	// Kernels is the number of last kernels: 2 for Decode and Fetch, 1 for Fetch alone.
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
