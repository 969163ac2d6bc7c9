package kernels

import (
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// Begins returns the kernel that announces replays on the board, and Ends the one that counts them there and notes their end: Begins is launched before
// the Replay, and Ends behind it. Of a Replay without Board they are loaded only.
func (k *Replay) Begins() device.Kernel { return &replayNotice{k, false} }

// Ends is documented at Begins.
func (k *Replay) Ends() device.Kernel { return &replayNotice{k, true} }

// replayNotice makes a replay known on a board.
type replayNotice struct {
	of   *Replay
	ends bool
}

// Name implements device.Kernel.
func (k *replayNotice) Name() string { return "replay-board" }

func (k *replayNotice) args() abi.ReplayBoardArgs {
	return abi.ReplayBoardArgs{State: k.of.State.Addr(), Place: k.of.Board.Addr(), From: k.of.BoardFrom, Rows: uint32(k.of.Serve.Lookup.numRows())}
}

// RunHost implements device.Kernel.
func (k *replayNotice) RunHost(device.Workers) {
	if k.of.Board.Size() == 0 {
		return
	}
	state, place := replayState(k.of.State), &view[abi.BoardCapture](k.of.Board)[0]
	if !k.ends {
		state.Announced++
		atomic.StoreUint64(&place.Begun, k.of.BoardFrom+state.Announced)
		return
	}
	number, counts := k.of.BoardFrom+state.Announced, &state.Counts
	others := counts.OutOfRange
	for _, n := range counts.Reasons {
		others += n
	}
	if rows, more := uint64(k.of.Serve.Lookup.numRows()), others-state.Others; more < rows { // of a pooled batch also bad offsets: it can be more than the rows
		state.Hits += rows - more
	}
	state.Others = others
	to := place.Copies[number%2*16:]
	for i, n := range append([]uint64{state.Announced, state.Hits, counts.Peers, counts.HostBytes}, counts.Reasons[:]...) {
		atomic.StoreUint64(&to[i], n)
	}
	atomic.StoreUint64(&place.Ended, number)
}
