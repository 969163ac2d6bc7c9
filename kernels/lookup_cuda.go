//go:build cuda && linux

package kernels

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

var lookupKernel = cuda.NewFunction[abi.SplitArgs](module("lookup"), "lookupKernel")

// RunCUDA implements cuda.Kernel.
func (k *Lookup) RunCUDA(s *cuda.Stream) error {
	n := k.numRows()
	if n == 0 {
		return nil
	}
	args := abi.SplitArgs{Lookup: k.args(), Pages: k.Pages.args()}
	return lookupKernel.Launch(s, (n+blockThreads-1)/blockThreads, blockThreads, 0, &args)
}

func (k *Lookup) args() abi.LookupArgs {
	args := abi.LookupArgs{
		Map: k.Map.Addr(), Rows: k.Rows.Addr(), Found: k.Found.Addr(), Counters: k.Counters.Addr(), Out: k.Out.Addr(),
		Rejected: k.Rejected.Addr(), Oversize: k.Oversize.Addr(), Limit: k.Limit, Count: uint32(k.numRows()),
		Buckets: k.Layout.Buckets, Table: uint16(k.Table), Peers: uint16(k.Peers), RowBytes: uint32(k.RowBytes),
		Samples: k.Samples.args,
	}
	if k.Int32 {
		args.Table |= abi.Int32Rows
	}
	return args
}
