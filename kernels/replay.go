package kernels

import (
	"sync/atomic"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// Replay is Serve as a part of a captured graph: each replay of the graph is a batch. The GPU announces a replay in Words before it reads
// what other kernels and the host may change meanwhile, and notes its end there. The map, the slabs, the host tier and the table's length are
// those of the record that the word at View names when the replay begins. Replays of one Replay must not overlap.
type Replay struct {
	// Serve says what to serve. Its Lookup.Counters, Result and Batch are not used, and of the rest, what WriteReplayView writes is used by the
	// host execution only.
	Serve Serve
	// State is device memory of ReplayStateBytes, zero at first. Words is page-locked memory of ReplayWordsBytes, zero at first.
	State, Words device.Buffer
	// View is a word of device memory: the address of the record, which has ReplayViewBytes. It is read on GPUs only.
	View device.Buffer
}

// Sizes in bytes of what Replay uses, and the number of replays after which the totals of the first are overwritten.
const (
	ReplayStateBytes = abi.ReplayStateBytes
	ReplayWordsBytes = abi.ReplayWordsBytes
	ReplayViewBytes  = abi.ReplayViewBytes
	ReplayKept       = abi.ReplayKept
)

// ReplayTotals are sums over the replays of a captured batch: the number of replays, and what Counters counts in them. CorruptPosition and
// FirstOutOfRange are those of the last replay with such rows.
type ReplayTotals abi.ReplayTotals

// Name implements device.Kernel.
func (k *Replay) Name() string { return "replay" }

// RunHost implements device.Kernel. It runs one replay.
func (k *Replay) RunHost(w device.Workers) {
	state, words := &view[abi.ReplayState](k.State)[0], &view[abi.ReplayWords](k.Words)[0]
	state.Begun++
	atomic.StoreUint64(&words.Begun, state.Begun)
	var c Counters
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&c)), CountersBytes)
	k.Serve.Lookup.Counters, k.Serve.Result = k.State.Slice(0, CountersBytes), device.HostBuffer(raw)
	k.Serve.RunHost(w)
	n := state.Begun
	t := state.Totals[(n-1)%abi.ReplayKept]
	t.Replays++
	t.Hits += uint64(c.Hits)
	t.Peers += uint64(c.Peers)
	t.HostBytes += c.HostBytes
	for r, n := range c.Reasons {
		t.Reasons[r] += uint64(n)
	}
	if c.Corrupt != 0 {
		t.Corrupt += uint64(c.Corrupt)
		t.CorruptPosition = c.CorruptPosition
	}
	if c.OutOfRange != 0 {
		t.OutOfRange += uint64(c.OutOfRange)
		t.FirstOutOfRange = uint32(c.FirstOutOfRange())
	}
	state.Totals[n%abi.ReplayKept] = t
	atomic.StoreUint64(&words.Ended, n)
}

// Running returns the numbers of the last replay that has begun and of the last that has ended, which are the same if none runs.
func (k *Replay) Running() (begun, ended uint64) {
	words := &view[abi.ReplayWords](k.Words)[0]
	ended = atomic.LoadUint64(&words.Ended) // first: so replay begun has ended if they are equal
	return atomic.LoadUint64(&words.Begun), ended
}

// ReplayTotalsAt returns the totals after replay n of a copy of the state. The copy must have been made after that replay had ended, and before
// replay n + ReplayKept - 1 ended.
func ReplayTotalsAt(state []byte, n uint64) ReplayTotals {
	return ReplayTotals(view[abi.ReplayState](device.HostBuffer(state))[0].Totals[n%abi.ReplayKept])
}

// WriteReplayView writes a record, of ReplayViewBytes, of what Serve says of the map, the slabs, the host tier and the table's length.
func (k *Serve) WriteReplayView(record []byte) {
	v := &view[abi.ReplayView](device.HostBuffer(record))[0]
	t := k.Tier.args()
	*v = abi.ReplayView{
		Map: k.Lookup.Map.Addr(), Rejected: k.Lookup.Rejected.Addr(), Oversize: k.Lookup.Oversize.Addr(), Limit: k.Lookup.Limit,
		Tier: t, Buckets: k.Lookup.Layout.Buckets, Peers: uint32(k.Lookup.Peers),
	}
	for i, b := range k.Slabs {
		v.Slabs[i] = b.Addr()
	}
}
