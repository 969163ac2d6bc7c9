//go:build cuda && linux

package kernels

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

var (
	hashmapModule = module("hashmap")
	insertKernel  = cuda.NewFunction[abi.MapArgs](hashmapModule, "insertKernel")
	eraseKernel   = cuda.NewFunction[abi.MapArgs](hashmapModule, "eraseKernel")
)

// RunCUDA implements cuda.Kernel.
func (k *Insert) RunCUDA(s *cuda.Stream) error {
	return insertKernel.Launch(s, 1, 1, 0, &abi.MapArgs{
		Map: k.Map.Addr(), Entries: k.Entries.Addr(), Results: k.Results.Addr(), Count: uint32(k.Results.Size() / 4),
		Buckets: k.Layout.Buckets,
	})
}

// RunCUDA implements cuda.Kernel.
func (k *Erase) RunCUDA(s *cuda.Stream) error {
	n := int(k.Results.Size() / 4)
	grid, err := resident(s, eraseKernel, 0, n, blockThreads)
	if err != nil {
		return err
	}
	return eraseKernel.Launch(s, grid, blockThreads, 0, &abi.MapArgs{
		Map: k.Map.Addr(), Entries: k.Keys.Addr(), Results: k.Results.Addr(), Count: uint32(n),
		Buckets: k.Layout.Buckets, Reason: uint32(k.Reason),
	})
}
