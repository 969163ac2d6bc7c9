//go:build cuda && linux

package kernels

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

var replayBegin = cuda.NewFunction[abi.ReplayBeginArgs](module("replay"), "replayBegin")

// replayThreads are those of replayBegin's one block.
const replayThreads = 32

// RunCUDA implements cuda.Kernel.
func (k *Replay) RunCUDA(s *cuda.Stream) error {
	k.Serve.Lookup.Counters, k.Serve.Result = k.State.Slice(0, CountersBytes), k.Words
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
	if err := replayBegin.Launch(s, 1, replayThreads, 0, &abi.ReplayBeginArgs{State: k.State.Addr(), View: k.View.Addr(), Serve: args}); err != nil {
		return err
	}
	return f.Launch(s, grid, l.threads, l.shared, &abi.ReplayArgs{State: k.State.Addr()})
}
