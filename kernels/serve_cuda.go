//go:build cuda && linux

package kernels

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// RunCUDA implements cuda.Kernel.
func (k *Serve) RunCUDA(s *cuda.Stream) error {
	n := k.Lookup.numRows()
	row, err := rowCodec(k.Codec, k.Lookup.RowBytes, k.Lookup.Out.Addr())
	if err != nil {
		return err
	}
	args := abi.ServeArgs{
		Lookup: k.Lookup.args(), Tier: k.Tier.args(), Codec: row, Ahead: k.Tier.ahead(k.Codec),
		StageBytes: uint32((k.Lookup.RowBytes + stageSlack + 127) &^ 127), Result: k.Result.Addr(), Batch: k.Batch,
	}
	for i, b := range k.Slabs {
		args.Slabs[i] = b.Addr()
	}
	c := kernelsOf(k.Codec)
	lanes := c.serveTile(k.Lookup.RowBytes)
	f, tiles := c.serve[lanes], 32/lanes
	warps, shared := c.blockOf(s, &args.Codec, int(args.StageBytes)+tiles*int(args.Codec.Scratch))
	grid, err := residentOf(s, f, 32*warps, shared, n, warps*tiles)
	if err != nil {
		return err
	}
	// Even shares, in parts of at most 32 rows, both whole turns of a warp's tiles.
	up := func(n, to int) int { return (n + to - 1) / to }
	share := up(n, grid*warps)
	args.WarpRows = uint32(up(share, tiles) * tiles)
	args.Part = uint32(up(up(share, up(share, 32)), tiles) * tiles)
	return f.Launch(s, grid, 32*warps, shared, &args)
}
