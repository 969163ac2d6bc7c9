//go:build cuda && linux

package kernels

import (
	"errors"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

var (
	orderModule      = module("order")
	orderCountKernel = cuda.NewFunction[abi.OrderArgs](orderModule, "orderCountKernel")
	orderPlaceKernel = cuda.NewFunction[abi.OrderArgs](orderModule, "orderPlaceKernel")
)

// RunCUDA implements cuda.Kernel.
func (k *Order) RunCUDA(s *cuda.Stream) error {
	n := int(k.Found.Size() / FoundBytes)
	if n == 0 {
		return nil
	}
	args := abi.OrderArgs{
		Found: k.Found.Addr(), Counters: k.Counters.Addr(), Ordered: k.Ordered.Addr(), Pages: k.Pages.args(), Count: uint32(n),
	}
	grid, err := residentOf(s, orderPlaceKernel, blockThreads, 0, n, blockThreads)
	if err != nil {
		return err
	}
	if !k.Counted {
		err = orderCountKernel.Launch(s, min((n+countThreads-1)/countThreads, s.Device().Multiprocessors()), countThreads, 0, &args)
	}
	return errors.Join(err, orderPlaceKernel.Launch(s, grid, blockThreads, 0, &args))
}

func (p *Pages) args() abi.PageArgs {
	if p.Buckets.Size() == 0 {
		return abi.PageArgs{}
	}
	return abi.PageArgs{Buckets: p.Buckets.Addr(), Stride: p.Tier.Stride, Index: p.Tier.Index.Addr(), Shift: uint32(p.shift())}
}

// countThreads is the threads of a block that counts: the last one scans all buckets.
const countThreads = 1024
