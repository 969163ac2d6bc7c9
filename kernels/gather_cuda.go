//go:build cuda && linux

package kernels

import (
	"fmt"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

var (
	gatherModule      = module("baseline")
	gather16Kernel    = cuda.NewFunction[abi.GatherArgs](gatherModule, "gather16Kernel")
	gather8Kernel     = cuda.NewFunction[abi.GatherArgs](gatherModule, "gather8Kernel")
	gatherHot16Kernel = cuda.NewFunction[abi.GatherArgs](gatherModule, "gatherHot16Kernel")
	gather4Kernel     = cuda.NewFunction[abi.GatherArgs](gatherModule, "gather4Kernel")
)

// RunCUDA implements cuda.Kernel.
func (k *Gather) RunCUDA(s *cuda.Stream) error {
	n := int(k.Rows.Size() / 8)
	f, unit := gather16Kernel, 16
	switch {
	case k.Places.Size() != 0 && k.RowBytes%16 != 0:
		return fmt.Errorf("kernels: gather of rows of %d bytes, some of them hot, must be a multiple of 16", k.RowBytes)
	case k.Places.Size() != 0:
		f = gatherHot16Kernel
	case k.RowBytes%4 != 0:
		return fmt.Errorf("kernels: gather of rows of %d bytes must be a multiple of 4", k.RowBytes)
	case k.RowBytes%8 != 0:
		f, unit = gather4Kernel, 4
	case k.RowBytes%16 != 0:
		f, unit = gather8Kernel, 8
	}
	if n == 0 {
		return nil
	}
	return launchResident(s, f, blockThreads, 0, n*(k.RowBytes/unit), blockThreads, &abi.GatherArgs{
		Mem: k.Mem.Addr(), Rows: k.Rows.Addr(), Out: k.Out.Addr(), Count: uint32(n), RowBytes: uint32(k.RowBytes),
		Hot: k.Hot.Addr(), Places: k.Places.Addr(),
	})
}
