package kernels

import (
	"sync/atomic"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// Replay is Serve as a part of a captured graph: each replay of the graph is a batch. Its blocks announce themselves in State before they read
// what other kernels and the host may change meanwhile, and note their end there. The map, the slabs, the host tier and the table's length are
// those of the view that is the latest one when the replay begins. Replays of one Replay must not overlap.
type Replay struct {
	// Serve says what to serve. Its Result and Batch are not used, and of the rest, what WriteView writes is used by the
	// host execution only. Its Lookup.Counters is used for resident tables only: CountersBytes of device memory of its own, zero at first.
	Serve Serve
	// State is device memory of ReplayStateBytes, zero at first.
	State device.Buffer
	// Views is device memory of ReplayViewsBytes. It is read on GPUs only. Its first word is the number of the latest view, and view n is at
	// ReplayViewAt(n).
	Views device.Buffer
	// Board, if not empty, is the place of a board where Begins and Ends make replays known to another process, under the numbers from BoardFrom+1 on.
	Board     device.Buffer
	BoardFrom uint64

	// Absent, if not nil, lists the rows that the host tier does not hold, which are zeros until its rounds have been written: its Wait and Fetch for each
	// of these, and then its End, are launched behind the Replay.
	Absent *AbsentBatch

	blocks uint64 // of a replay; 0 before the launch
}

// Sizes in bytes of what Replay uses, and the number of views after which one takes the place of the first.
const (
	ReplayStateBytes = abi.ReplayStateBytes
	ReplayViewsBytes = abi.ReplayViewsBytes
	ReplayViewBytes  = abi.ReplayViewBytes
	ReplayTurns      = abi.ReplayTurns
)

// ReplayViewAt returns where view n begins in a Replay's Views.
func ReplayViewAt(n uint64) int64 {
	return int64(unsafe.Offsetof(abi.ReplayViews{}.Views)) + int64(n%ReplayTurns)*ReplayViewBytes
}

// ReplayCounts are sums over all replays of a captured batch of what Counters counts. CorruptPosition and FirstOutOfRange are those of the last
// replay with such rows.
type ReplayCounts abi.ReplayCounts

// FirstOutOfRange returns the position of the first row number out of range.
func (c *ReplayCounts) FirstOutOfRange() int { return int(^c.First & (1<<31 - 1)) }

// Name implements device.Kernel.
func (k *Replay) Name() string { return "replay" }

// RunHost implements device.Kernel. It runs one replay.
func (k *Replay) RunHost(w device.Workers) {
	state := replayState(k.State)
	k.countHost(w, atomic.AddUint64(&state.Begun, 1)-1, func() device.Kernel { return &k.Serve })
	atomic.AddUint64(&state.Ended, 1)
}

// countHost runs the kernel that serves the rows of replay number n, and counts what it has done in State.
func (k *Replay) countHost(w device.Workers, n uint64, serve func() device.Kernel) {
	k.blocks = 1
	state := replayState(k.State)
	var now, result Counters
	k.Serve.Lookup.Counters, k.Serve.Result = now.buffer(), result.buffer()
	if k.Absent != nil {
		k.Serve.Absent = &Absent{}
	}
	serve().RunHost(w)
	if k.Absent != nil {
		k.Absent.listReplayed(k.Serve.Absent, k.Serve.Lookup.Out.Bytes())
	}
	c := &state.Counts
	atomic.AddUint64(&c.Peers, uint64(result.Peers))
	atomic.AddUint64(&c.HostBytes, result.HostBytes)
	for r, n := range result.Reasons {
		atomic.AddUint64(&c.Reasons[r], uint64(n))
	}
	if result.Corrupt != 0 {
		atomic.AddUint64(&c.Corrupt, uint64(result.Corrupt))
		atomic.StoreUint32(&c.CorruptPosition, result.CorruptPosition)
	}
	if result.OutOfRange != 0 {
		atomic.AddUint64(&c.OutOfRange, uint64(result.OutOfRange))
		atomic.StoreUint64(&c.First, n<<31|uint64(^uint32(result.FirstOutOfRange())&(1<<31-1)))
	}
	if k.counted() {
		atomic.AddUint64(&state.Hits, uint64(result.Hits))
	}
}

// counted says whether State counts the hits, as nobody knows how many rows a replay has.
func (k *Replay) counted() bool { return k.Serve.Pool != nil && k.Serve.Pool.Whole.Size() > 0 }

func replayState(b device.Buffer) *abi.ReplayState { return &view[abi.ReplayState](b)[0] }

// ReplayLook copies the states of Replays to page-locked memory, where Progress and Counts read them. Replays that have not begun by a
// copy see all that was changed on the device before the launch. What those have written that have ended by a copy can be read.
type ReplayLook struct {
	// States is the memory of the states, one behind the other, and Copies as much page-locked memory.
	States, Copies device.Buffer
}

// Name implements device.Kernel.
func (k *ReplayLook) Name() string { return "replay-look" }

// RunHost implements device.Kernel.
func (k *ReplayLook) RunHost(device.Workers) {
	states, copies := view[abi.ReplayState](k.States), view[abi.ReplayState](k.Copies)
	for i := range states {
		ended := atomic.LoadUint64(&states[i].Ended)
		from, to := unsafe.Slice((*uint64)(unsafe.Pointer(&states[i])), ReplayStateBytes/8), unsafe.Slice((*uint64)(unsafe.Pointer(&copies[i])), ReplayStateBytes/8)
		for w := range from {
			to[w] = atomic.LoadUint64(&from[w])
		}
		copies[i].Ended = ended
	}
}

// Progress returns, of a copy of State that was made after the launch, the numbers of the last replay that had begun and of the last that had
// ended, which are the same if none ran. The first replay is 1.
func (k *Replay) Progress(state []byte) (begun, ended uint64) {
	s := replayState(device.HostBuffer(state))
	if k.blocks == 0 {
		return 0, 0
	}
	return (s.Begun + k.blocks - 1) / k.blocks, s.Ended / k.blocks
}

// Counts returns the counts of a copy of State: those of all replays that had ended, and what others had counted.
func (k *Replay) Counts(state []byte) ReplayCounts {
	return ReplayCounts(replayState(device.HostBuffer(state)).Counts)
}

// Hits returns what Counts does not have, the hits, of replays of windows (reduce.Batch.Whole).
func (k *Replay) Hits(state []byte) uint64 { return replayState(device.HostBuffer(state)).Hits }

// WriteView writes a view, of ReplayViewBytes, of what Serve says of the map, the slabs, the host tier and the table's length.
func (k *Serve) WriteView(to []byte) {
	view[abi.ReplayView](device.HostBuffer(to))[0] = k.replayView()
}

func (k *Serve) replayView() abi.ReplayView {
	v := abi.ReplayView{
		Map: k.Lookup.Map.Addr(), Rejected: k.Lookup.Rejected.Addr(), Oversize: k.Lookup.Oversize.Addr(), Limit: k.Lookup.Limit,
		Tier: k.Tier.args(), Buckets: k.Lookup.Layout.Buckets, Peers: uint32(k.Lookup.Peers),
	}
	for i, b := range k.Slabs {
		v.Slabs[i] = b.Addr()
	}
	return v
}
