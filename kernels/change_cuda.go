//go:build cuda && linux

package kernels

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

var (
	changeModule  = module("change")
	storeKernel   = cuda.NewFunction[abi.StoreArgs](changeModule, "storeKernel")
	scatterKernel = cuda.NewFunction[abi.ScatterArgs](changeModule, "scatterKernel")
)

// changeBlocks is how many blocks a change takes at most: it must not crowd out the batches that it runs beside.
const changeBlocks = 8

// RunCUDA implements cuda.Kernel.
func (k *Store) RunCUDA(s *cuda.Stream) error {
	n := int(k.Words.Size() / 16)
	if n == 0 {
		return nil
	}
	return storeKernel.Launch(s, min(changeBlocks, (n+blockThreads-1)/blockThreads), blockThreads, 0, &abi.StoreArgs{
		Target: k.Target.Addr(), Words: k.Words.Addr(), Limit: k.Target.Size() / 8, Count: uint32(n),
	})
}

// RunCUDA implements cuda.Kernel.
func (k *Scatter) RunCUDA(s *cuda.Stream) error {
	n := int(k.Items.Size() / abi.ScatterItemBytes)
	if n == 0 {
		return nil
	}
	return scatterKernel.Launch(s, min(changeBlocks, (n+7)/8), blockThreads, 0, &abi.ScatterArgs{
		Slab: k.Slab.Addr(), Stage: k.Stage.Addr(), Items: k.Items.Addr(), Count: uint32(n),
	})
}
