//go:build cuda && linux

package kernels

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

var serveKernels = functions[abi.ServeArgs]("serve", "8", "16", "32")

// serveShape returns the lanes that decode a hit, so many that one scan, of two quads a lane, covers the row, up to a warp;
// and the tiles of so many lanes in a warp.
func serveShape(rowBytes int) (shape string, tiles int) {
	switch {
	case rowBytes > 768:
		return "32", 1
	case rowBytes > 400:
		return "16", 2
	}
	return "8", 4
}

// RunCUDA implements cuda.Kernel.
func (k *Serve) RunCUDA(s *cuda.Stream) error {
	n := int(k.Lookup.Rows.Size() / 8)
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
	shape, tiles := serveShape(k.Lookup.RowBytes)
	f, perWarp := serveKernels[variantOf(k.Codec.Form)][shape], int(args.StageBytes)
	if c, ok := codedKernels[k.Codec.Form.Kernel]; ok {
		f, tiles, perWarp = serveCoded(s, c, &args)
	}
	meta := int(args.Codec.MetaBytes)
	warps := fitWarps(s, meta, perWarp)
	shared := meta + warps*perWarp
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
