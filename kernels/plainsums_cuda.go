//go:build cuda && linux

package kernels

import (
	"fmt"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/abi"
)

var gatherPool = map[int]*cuda.Function[abi.GatherPoolArgs]{
	8:  cuda.NewFunction[abi.GatherPoolArgs](module("pooledPlain"), "gatherPool8"),
	16: cuda.NewFunction[abi.GatherPoolArgs](module("pooledPlain"), "gatherPool16"),
	32: cuda.NewFunction[abi.GatherPoolArgs](module("pooledPlain"), "gatherPool32"),
}

// RunCUDA implements cuda.Kernel.
func (q *plainSums) RunCUDA(s *cuda.Stream) error {
	k := q.of
	n := int(k.Rows.Size() / 8)
	if k.RowBytes%16 != 0 || q.bag < 1 || n%q.bag != 0 {
		return fmt.Errorf("kernels: sums of %d rows of %d bytes must be of whole bags of %d, and rows multiples of 16", n, k.RowBytes, q.bag)
	}
	if n == 0 {
		return nil
	}
	args := abi.GatherPoolArgs{
		Mem: k.Mem.Addr(), Rows: k.Rows.Addr(), Out: k.Out.Addr(), Bags: uint32(n / q.bag), Bag: uint32(q.bag), Quads: uint32(k.RowBytes / 16),
	}
	if q.element == dtype.BFloat16 {
		args.Bfloat16 = 1
	}
	lanes := 8
	for lanes < 32 && lanes*16 < k.RowBytes {
		lanes *= 2
	}
	return launchResident(s, gatherPool[lanes], blockThreads, 0, n/q.bag, blockThreads/lanes, &args)
}
