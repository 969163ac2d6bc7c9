package kernels

import (
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/internal/reduce"
)

// PooledTables is Serve.Pooled of several tables, with one launch for all tables that have the same kernel. Windows (reduce.Batch.Whole) are served by it
// only.
type PooledTables struct {
	// Tables are the batches. Their Result, Batch and Partials and their Lookup.Counters are not used. Replays, in place of them, are such batches as parts
	// of a captured graph: the blocks of all announce themselves in the first one's State, and count in the State of each.
	Tables  []*Serve
	Replays []*Replay
	// Counters is device memory of CountersBytes for each of Tables, zero at first, and Results as much page-locked memory. Result says where in it a table has
	// its counters when the batch has ended, with the lower half of Batch.
	Counters, Results device.Buffer
	Batch             uint64
	// Partials is device memory of PooledPartialBytes, and Args page-locked memory of PooledTableBytes for each table. The execution on the host needs none.
	Partials, Args device.Buffer

	slots []int
	args  []abi.PooledTable
}

// PooledTableBytes is the size of a table's arguments.
const PooledTableBytes = abi.PooledTableBytes

// PooledPartialBytes returns the device memory that the sums of runs of n batches in a PooledTables take.
func PooledPartialBytes(n int, batch func(i int) *reduce.Batch) int64 {
	var rows, window, stride int64 // window: of the batch with the most rows of which others are windows
	joins := false
	for i := range n {
		b := batch(i)
		joins = joins || b.PartialBytes() > 0
		stride = max(stride, b.PartialStride())
		if b.Whole.Size() > 0 {
			window = max(window, int64(b.Rows))
		} else {
			rows += int64(b.Rows)
		}
	}
	if !joins {
		return 0
	}
	return 2 * (max(rows, window)/reduce.Run + int64(n) + 1) * stride
}

// Name implements device.Kernel.
func (k *PooledTables) Name() string { return "pooled-tables" }

// Result returns the counters of table i. REQUIRES: the kernel was launched.
func (k *PooledTables) Result(i int) device.Buffer {
	at := int64(k.slots[i]) * CountersBytes
	return k.Results.Slice(at, at+CountersBytes)
}

// Published reports whether all counters of the batch are in Results.
func (k *PooledTables) Published() bool {
	for i := range k.Tables {
		if !(Ending{Result: k.Result(i), Batch: k.Batch}).Published() {
			return false
		}
	}
	return true
}

// len returns the number of tables.
func (k *PooledTables) len() int { return max(len(k.Tables), len(k.Replays)) }

func (k *PooledTables) serve(i int) *Serve {
	if k.Replays != nil {
		return &k.Replays[i].Serve
	}
	return k.Tables[i]
}

// takeSlots gives all tables their places in Results, in their order.
func (k *PooledTables) takeSlots() {
	k.slots = slices.Grow(k.slots[:0], k.len())[:k.len()]
	for i := range k.slots {
		k.slots[i] = i
	}
}

// RunHost implements device.Kernel. Of Replays it runs one replay.
func (k *PooledTables) RunHost(w device.Workers) {
	k.takeSlots()
	if k.Replays != nil {
		state := replayState(k.Replays[0].State)
		n := atomic.AddUint64(&state.Begun, 1) - 1
		for _, r := range k.Replays {
			r.countHost(w, n, func() device.Kernel { return r.Serve.ownWindow().Pooled() })
		}
		atomic.AddUint64(&state.Ended, 1)
		return
	}
	for i, serve := range k.Tables {
		at := int64(i) * CountersBytes
		serve.Lookup.Counters, serve.Result, serve.Batch = k.Counters.Slice(at, at+CountersBytes), k.Results.Slice(at, at+CountersBytes), k.Batch
		serve.ownWindow().Pooled().RunHost(w)
	}
}

// ownWindow returns the kernel for the batch of a window as one of its own; for other batches k. REQUIRES: the host addresses the batch's memory.
func (k *Serve) ownWindow() *Serve {
	b := k.Pool
	if b.Whole.Size() == 0 {
		return k
	}
	offsets := reduce.NewView(b)
	own, at := b.Window(offsets.Offset(0), offsets.Offset(b.Bags))
	cut, width := *k, int64(8)
	if k.Lookup.Int32 {
		width = 4
	}
	cut.Pool, cut.Lookup.Rows = &own, k.Lookup.Rows.Slice(at*width, (at+int64(own.Rows))*width)
	return &cut
}

// buffer returns the counters as memory.
func (c *Counters) buffer() device.Buffer {
	return device.HostBuffer(unsafe.Slice((*byte)(unsafe.Pointer(c)), CountersBytes))
}
