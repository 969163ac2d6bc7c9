//go:build cuda && linux

package kernels

import (
	"errors"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// errResident is the error of Pooled kernels for resident tables.
var errResident = errors.New("kernels: rows of a resident table (Serve.Resident) must be written and then added up by SumRows on a GPU")

// serveLaunch is how Serve is launched.
type serveLaunch struct{ lanes, threads, shared int }

// launch returns the launch and its arguments, but for what divide sets.
func (k *Serve) launch(s *cuda.Stream) (serveLaunch, abi.ServeArgs, error) {
	row, err := rowCodec(k.Codec, k.Lookup.RowBytes, k.Lookup.Out.Addr())
	if err != nil {
		return serveLaunch{}, abi.ServeArgs{}, err
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
	warps, shared := c.blockOf(s, &args.Codec, int(args.StageBytes)+32/lanes*int(args.Codec.Scratch))
	return serveLaunch{lanes, 32 * warps, shared}, args, nil
}

// divide has the warps of a grid serve even shares of the batch, in parts of at most 32 rows, both whole turns of a warp's tiles.
func (l *serveLaunch) divide(args *abi.ServeArgs, grid int) {
	tiles := 32 / l.lanes
	up := func(n, to int) int { return (n + to - 1) / to }
	share := up(int(args.Lookup.Count), grid*l.threads/32)
	args.WarpRows = uint32(up(share, tiles) * tiles)
	args.Part = uint32(up(up(share, up(share, 32)), tiles) * tiles)
}

// RunCUDA implements cuda.Kernel.
func (k *Serve) RunCUDA(s *cuda.Stream) error {
	if k.Resident != nil {
		_, err := k.runResident(s, nil)
		return err
	}
	l, args, err := k.launch(s)
	if err != nil {
		return err
	}
	f := kernelsOf(k.Codec).serve[l.lanes]
	grid, err := residentOf(s, f, l.threads, l.shared, k.Lookup.numRows(), l.threads/l.lanes)
	if err != nil {
		return err
	}
	l.divide(&args, grid)
	return f.Launch(s, grid, l.threads, l.shared, &args)
}
