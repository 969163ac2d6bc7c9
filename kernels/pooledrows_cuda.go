//go:build cuda && linux

package kernels

import (
	"fmt"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

var (
	sumRows = map[int]*cuda.Function[abi.SumRowsArgs]{
		8:  cuda.NewFunction[abi.SumRowsArgs](module("pooledRows"), "sumRows8"),
		16: cuda.NewFunction[abi.SumRowsArgs](module("pooledRows"), "sumRows16"),
		32: cuda.NewFunction[abi.SumRowsArgs](module("pooledRows"), "sumRows32"),
	}
	poolOffsets = cuda.NewFunction[abi.PoolOffsetsArgs](module("pooledRows"), "poolOffsets")
)

// RunCUDA implements cuda.Kernel.
func (k *SumRows) RunCUDA(s *cuda.Stream) error {
	p := k.Pool
	if p.PartialBytes() > k.Partials.Size() {
		return fmt.Errorf("kernels: partials (%d bytes) must be at least %d", k.Partials.Size(), p.PartialBytes())
	}
	if want := int64(k.End-k.Base)*int64(k.RowBytes) + SumRowsSlack; k.Mem.Size() < want || k.RowBytes%16 == 0 && k.Mem.Addr()%16 != 0 {
		return fmt.Errorf("kernels: rows to be added up (%d bytes at %#x) must have %d bytes, and multiples of 16 be aligned to that", k.Mem.Size(), k.Mem.Addr(), want)
	}
	element, values := p.Row, 16/p.Row.Size()
	args := abi.SumRowsArgs{
		Out: k.Out.Addr(), Rows: k.Rows.Addr(), Limit: k.Limit, Views: k.Views.Addr(), Mem: k.Mem.Addr(), RowBytes: uint32(k.RowBytes), Count: uint32(p.Rows),
		Base: uint32(k.Base), End: uint32(k.End), From: uint32(k.From), Next: uint32(k.Next), Added: uint32(k.Added),
		Round: k.Round.Addr(), Counters: k.Counters.Addr(),
	}
	if p.Float8.Is() {
		element, values = p.Float8.Values, float8Piece
		args.Float8 = float8Args(&p.Float8)
	}
	args.Pool = poolArgs(p, k.Out, k.Partials, element)
	if k.Int32 {
		args.Narrow = 1
	}
	if k.last() {
		args.Ending = k.Ending.args()
	}
	units, lanes := (p.Columns+values-1)/values, 8
	for lanes < min(units, 32) {
		lanes *= 2
	}
	f, tiles := sumRows[lanes], blockThreads/lanes
	blocks, err := resident(s, f, blockThreads, 0)
	if err != nil {
		return err
	}
	rows, chunks := k.Next-k.From, (units+lanes-1)/lanes
	grid := max(1, min(blocks, (rows*chunks+minTileRows*tiles-1)/(minTileRows*tiles)))
	args.Pool.TileRows = uint32(max(minTileRows, (rows*chunks+grid*tiles-1)/(grid*tiles)))
	if err := f.Launch(s, grid, blockThreads, 0, &args); err != nil {
		return err
	}
	if !k.last() {
		return nil
	}
	return joinPooled(s, p, &args.Pool, k.Out, false)
}

// poolOffsets launches what counts bad offsets of a captured batch with so many blocks whose rows are added up by SumRows. It runs in front of the
// batch's own kernel: all is counted when the replay ends.
func (k *Replay) poolOffsets(s *cuda.Stream, blocks int) error {
	p := k.Serve.Pool
	if p == nil || p.Size != 0 || p.NumOffsets() == 0 {
		return nil
	}
	return launchResident(s, poolOffsets, blockThreads, 0, p.NumOffsets(), blockThreads, &abi.PoolOffsetsArgs{
		Pool: poolArgs(p, device.Buffer{}, device.Buffer{}, p.Row), State: k.State.Addr(), Blocks: uint32(blocks), Count: uint32(p.Rows),
	})
}
