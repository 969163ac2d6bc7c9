package kernels

import (
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/internal/reduce"
)

// AbsentBatch is what a GPU's batch of a table whose host tier holds a part of the rows has beside Lookup, Fetch and Decode. After Lookup, List reads
// the index word of each miss, once. A Fetch of Resolved, with Words as the tier's index, then reads the rows that the tier holds. The others are listed for
// the host, which puts them in staging memory in rounds. Wait waits for a round, and a Fetch with the staging memory as its tier
// writes it. End ends the batch.
type AbsentBatch struct {
	// Misses holds the batch's misses at its back, as Lookup leaves them. Counters says how many there are; after List it is how many the tier holds, after
	// Wait how many rows the round has.
	Misses, Counters device.Buffer
	// Tier is the tier whose index List reads.
	Tier HostRows
	// Resolved, of the size of Misses, receives those that the tier holds, at its back, each with a number for its row: that of its word in Words, which
	// has 8 bytes for each miss.
	Resolved, Words device.Buffer
	// Pool, unless nil, says that rows of its Padding are not used: where they are absent, the host need not read them.
	Pool *reduce.Batch
	// Host, an abi.AbsentHost, and Rows, of the size of Misses, are page-locked memory. List writes absent rows as Founds to the front of Rows, and to its
	// back those that the tier has in its ReadAhead. State, an abi.AbsentState, is device memory. Host and State are zero before the first batch.
	Host, Rows, State device.Buffer
	// Timeout is how long the device waits for a round.
	Timeout time.Duration
	// Replay is the State of a captured batch's Replay; empty for other batches. The Replay then looks rows up and lists
	// absent ones, and only Wait and End of an AbsentBatch are used. Batch is the number of the first replay, and
	// AbsentHost.Replayed that of the last one that has ended. Result is not used.
	Replay device.Buffer
	// Ahead, of a captured batch, is page-locked memory of 8 bytes a row. Replays write to it, in turns, the numbers of
	// the rows that they find in the tier's ReadAhead. AbsentHost.Read is how many they were.
	Ahead device.Buffer
	// Ending is the batch's number, and how End publishes it.
	Ending

	list absentList
	wait absentWait
	end  absentEnd
}

// The kernels of an AbsentBatch. They are kept so that a batch allocates nothing.
type (
	absentList struct{ of *AbsentBatch }
	absentWait struct {
		of    *AbsentBatch
		round uint32
	}
	absentEnd struct{ of *AbsentBatch }
)

// HostView views Host.
func (b *AbsentBatch) HostView() *abi.AbsentHost { return &view[abi.AbsentHost](b.Host)[0] }

// AheadView views Ahead.
func (b *AbsentBatch) AheadView() []int64 { return view[int64](b.Ahead) }

// List returns the kernel that lists the misses by whether the tier holds them.
func (b *AbsentBatch) List() device.Kernel {
	b.list.of = b
	return &b.list
}

// Wait returns the kernel that waits for a round, from 0 on. It is to be launched before the next call.
func (b *AbsentBatch) Wait(round int) device.Kernel {
	b.wait = absentWait{b, uint32(round)}
	return &b.wait
}

// End returns the kernel that ends the batch.
func (b *AbsentBatch) End() device.Kernel {
	b.end.of = b
	return &b.end
}

// padding is the row that is not listed.
func (b *AbsentBatch) padding() int64 {
	if b.Pool == nil {
		return reduce.NoPadding
	}
	return b.Pool.Padding
}

// aheadFrom is the offset from which the tier has rows that were read ahead.
func (b *AbsentBatch) aheadFrom() uint64 {
	if b.Tier.ReadAhead == nil {
		return math.MaxUint64
	}
	return uint64(b.Tier.ReadAhead.From)
}

// Use notes that a batch has read a row which was read ahead.
func (a *Ahead) Use(row int64) { a.use(row, a.From) }

// word returns a word of the host execution that names the batch, or the replay that runs.
func (b *AbsentBatch) word(n uint32) uint64 {
	return uint64(uint32(b.Batch)+uint32(b.state().Replays))<<32 | uint64(n)
}

func (b *AbsentBatch) state() *abi.AbsentState { return &view[abi.AbsentState](b.State)[0] }

// Name implements device.Kernel.
func (k *absentList) Name() string { return "absent-list" }

// RunHost implements device.Kernel.
func (k *absentList) RunHost(device.Workers) {
	b, count := k.of, CountersView(k.of.Counters)
	misses, resolved, rows := FoundView(b.Misses), FoundView(b.Resolved), FoundView(b.Rows)
	words, state, host := view[uint64](b.Words), b.state(), b.HostView()
	*state = abi.AbsentState{Total: count.Misses}
	for i := range int(count.Misses) {
		m := misses[len(misses)-1-i]
		l := b.Tier.at(int64(m.Word))
		switch {
		case !l.Valid() && int64(m.Word) == b.padding():
			continue
		case !l.Valid():
			rows[state.Absent] = Found{Word: m.Word, Position: m.Position}
			state.Absent++
			continue
		}
		words[state.Present] = uint64(l)
		resolved[len(resolved)-1-int(state.Present)] = Found{Word: uint64(state.Present), Position: m.Position, Reason: m.Reason}
		state.Present++
		if uint64(l.Offset()) >= b.aheadFrom() {
			rows[len(rows)-1-int(state.Ahead)] = Found{Word: m.Word, Position: m.Position}
			state.Ahead++
		}
	}
	count.Misses = state.Present
	atomic.StoreUint64(&host.Ahead, b.word(state.Ahead))
	atomic.StoreUint64(&host.Listed, b.word(state.Absent))
}

// listReplayed lists the absent rows of a replay, and zeroes their output.
func (b *AbsentBatch) listReplayed(a *Absent, out []byte) {
	rows, state, rowBytes := FoundView(b.Rows), b.state(), b.Tier.RowBytes
	for i, row := range a.Rows {
		rows[i] = Found{Word: uint64(row), Position: a.Positions[i]}
		clear(out[int(a.Positions[i])*rowBytes:][:rowBytes])
	}
	state.Absent = uint32(len(a.Rows))
}

// Name implements device.Kernel.
func (k *absentWait) Name() string { return "absent-wait" }

// RunHost implements device.Kernel.
func (k *absentWait) RunHost(device.Workers) {
	b, count := k.of, CountersView(k.of.Counters)
	state, host := b.state(), b.HostView()
	if k.round == 0 {
		state.HostBytes = count.HostBytes
		if b.Replay.Size() != 0 && state.Absent != 0 {
			atomic.StoreUint64(&host.Listed, b.word(state.Absent))
		}
	}
	count.Misses = 0
	if state.Absent == 0 || state.Over != 0 {
		return
	}
	if k.round != 0 {
		atomic.StoreUint64(&host.Consumed, b.word(k.round))
	}
	for since := time.Now(); ; runtime.Gosched() {
		word := atomic.LoadUint64(&host.Ready)
		own := word>>32 == b.word(0)>>32
		if own && uint32(word)&^abi.AbsentLast > k.round {
			count.Misses = host.Rows[k.round&1]
			return
		}
		if own && uint32(word)&abi.AbsentLast != 0 {
			break
		}
		if time.Since(since) > b.Timeout {
			atomic.StoreUint64(&host.GaveUp, b.word(0)>>32)
			break
		}
	}
	state.Over = 1
}

// Name implements device.Kernel.
func (k *absentEnd) Name() string { return "absent-end" }

// RunHost implements device.Kernel.
func (k *absentEnd) RunHost(device.Workers) {
	count, state := CountersView(k.of.Counters), k.of.state()
	if k.of.Replay.Size() != 0 {
		total, host := &replayState(k.of.Replay).Counts, k.of.HostView()
		if count.Corrupt != 0 {
			atomic.AddUint64(&total.Corrupt, uint64(count.Corrupt))
			atomic.StoreUint32(&total.CorruptPosition, count.CorruptPosition)
		}
		*count = Counters{}
		*state = abi.AbsentState{Replays: state.Replays + 1, Read: state.Read}
		atomic.StoreUint64(&host.Read, state.Read)
		atomic.StoreUint64(&host.Replayed, state.Replays)
		return
	}
	count.Misses, count.HostBytes = state.Total, state.HostBytes
	*state = abi.AbsentState{}
	publish(count, k.of.Result, k.of.Batch)
}
