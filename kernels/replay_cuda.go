//go:build cuda && linux

package kernels

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// RunCUDA implements cuda.Kernel.
func (k *Replay) RunCUDA(s *cuda.Stream) error {
	if k.Serve.Resident != nil {
		blocks, err := k.Serve.runResident(s, k)
		if err == nil {
			k.blocks = uint64(blocks)
		}
		return err
	}
	l, args, err := k.Serve.launch(s)
	if err != nil {
		return err
	}
	f := kernelsOf(k.Serve.Codec).replay[l.lanes]
	grid, err := residentOf(s, f, l.threads, l.shared, k.Serve.Lookup.numRows(), l.threads/l.lanes)
	if err != nil {
		return err
	}
	l.divide(&args, grid)
	if err := k.poolOffsets(s, grid); err != nil { // of a batch whose rows SumRows adds up
		return err
	}
	if err := f.Launch(s, grid, l.threads, l.shared, &abi.ReplayRowsArgs{
		Replay: abi.ReplayArgs{State: k.State.Addr(), Views: k.Views.Addr(), Blocks: uint32(grid), Serve: args}, Absent: k.Absent.replayArgs(),
	}); err != nil {
		return err
	}
	k.blocks = uint64(grid)
	return nil
}

// replayArgs returns where a replay lists absent rows; b may be nil.
func (b *AbsentBatch) replayArgs() abi.ReplayAbsent {
	if b == nil {
		return abi.ReplayAbsent{}
	}
	return abi.ReplayAbsent{
		State: b.State.Addr(), List: b.Rows.Addr(), Ahead: b.Ahead.Addr(), AheadFrom: b.aheadFrom(), Count: uint32(b.Rows.Size() / FoundBytes),
	}
}

var replayLook = cuda.NewFunction[abi.ReplayLookArgs](module("replay"), "replayLook")

// RunCUDA implements cuda.Kernel.
func (k *ReplayLook) RunCUDA(s *cuda.Stream) error {
	return replayLook.Launch(s, 1, 256, 0, &abi.ReplayLookArgs{
		States: k.States.Addr(), Copies: k.Copies.Addr(), Count: uint32(k.States.Size() / ReplayStateBytes),
	})
}
