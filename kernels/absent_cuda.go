//go:build cuda && linux

package kernels

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

var (
	absentModule     = module("absent")
	absentListKernel = cuda.NewFunction[abi.AbsentListArgs](absentModule, "absentList")
	absentWaitKernel = cuda.NewFunction[abi.AbsentWaitArgs](absentModule, "absentWait")
	absentEndKernel  = cuda.NewFunction[abi.AbsentWaitArgs](absentModule, "absentEnd")
)

// RunCUDA implements cuda.Kernel.
func (k *absentList) RunCUDA(s *cuda.Stream) error {
	b := k.of
	n := int(b.Misses.Size() / FoundBytes)
	grid, err := residentOf(s, absentListKernel, blockThreads, 0, n, blockThreads)
	if err != nil {
		return err
	}
	return absentListKernel.Launch(s, grid, blockThreads, 0, &abi.AbsentListArgs{
		Misses: b.Misses.Addr() + uint64(b.Misses.Size()) - FoundBytes, Counters: b.Counters.Addr(), Index: b.Tier.Index.Addr(),
		Resolved: b.Resolved.Addr() + uint64(b.Resolved.Size()) - FoundBytes, Words: b.Words.Addr(), List: b.Rows.Addr(), Host: b.Host.Addr(),
		State: b.State.Addr(), AheadFrom: b.aheadFrom(), Padding: b.padding(), Batch: uint32(b.Batch), Count: uint32(b.Rows.Size() / FoundBytes),
	})
}

func (b *AbsentBatch) waitArgs(round uint32) *abi.AbsentWaitArgs {
	return &abi.AbsentWaitArgs{
		Counters: b.Counters.Addr(), Host: b.Host.Addr(), State: b.State.Addr(), TimeoutNanos: uint64(b.Timeout), End: b.Ending.args(), Replay: b.Replay.Addr(),
		Batch: uint32(b.Batch), Round: round,
	}
}

// RunCUDA implements cuda.Kernel.
func (k *absentWait) RunCUDA(s *cuda.Stream) error {
	return absentWaitKernel.Launch(s, 1, 32, 0, k.of.waitArgs(k.round))
}

// RunCUDA implements cuda.Kernel.
func (k *absentEnd) RunCUDA(s *cuda.Stream) error {
	return absentEndKernel.Launch(s, 1, 32, 0, k.of.waitArgs(0))
}
