//go:build cuda && linux

package kernels

import (
	"errors"

	"github.com/tensorcache/tensorcache/device/cuda"
)

var (
	orderModule      = module("order")
	orderCountKernel = cuda.NewFunction[OrderArgs](orderModule, "orderCountKernel")
	orderPlaceKernel = cuda.NewFunction[OrderArgs](orderModule, "orderPlaceKernel")
)

// RunCUDA implements cuda.Kernel.
func (k *Order) RunCUDA(s *cuda.Stream) error {
	n := int(k.Found.Size() / FoundBytes)
	if n == 0 {
		return nil
	}
	args := OrderArgs{
		Found: k.Found.Addr(), Counters: k.Counters.Addr(), Ordered: k.Ordered.Addr(), Buckets: k.Buckets.Addr(),
		Tier: k.Tier.args(), Count: uint32(n), Shift: uint32(k.shift()),
	}
	grid, err := resident(s, orderPlaceKernel, 0, n, blockThreads)
	if err != nil {
		return err
	}
	return errors.Join(
		orderCountKernel.Launch(s, min((n+countThreads-1)/countThreads, s.Device().Multiprocessors()), countThreads, 0, &args),
		orderPlaceKernel.Launch(s, grid, blockThreads, 0, &args),
	)
}

// countThreads is the threads of a block that counts: the last one scans all buckets.
const countThreads = 1024

func (h *HostRows) args() HostTier {
	return HostTier{Mem: h.Mem.Addr(), Bytes: h.Mem.Size(), Stride: h.Stride, Compressed: h.Compressed.Addr(), Index: h.Index.Addr()}
}
