//go:build cuda && linux

package kernels

import (
	"fmt"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/internal/reduce"
)

// abi.h has its own copy of what package reduce defines.
var (
	_ = [1]int{}[abi.PoolRun-reduce.Run]
	_ = [1]int{}[abi.PoolGroupRuns-reduce.GroupRuns]
	_ = [1]int{}[abi.PoolPartialHeader-reduce.PartialHeader]
	_ = [1]int{}[abi.PoolSum-int(reduce.Sum)]
	_ = [1]int{}[abi.PoolMean-int(reduce.Mean)]
	_ = [1]int{}[abi.PoolMax-int(reduce.Max)]
)

// pooledKernels are the kernels of a coder for pooled batches, by their names.
type pooledKernels struct {
	serve  map[string]*cuda.Function[abi.PooledArgs]
	replay map[string]*cuda.Function[abi.PooledReplayArgs]
}

var (
	pooledOf = map[string]*pooledKernels{}
	poolJoin = cuda.NewFunction[abi.PoolJoinArgs](module("pooled"), "poolJoin")
)

func init() {
	for name, c := range coders {
		k := &pooledKernels{map[string]*cuda.Function[abi.PooledArgs]{}, map[string]*cuda.Function[abi.PooledReplayArgs]{}}
		pooledOf[name] = k
		if c.floats == 0 {
			continue
		}
		serve, replay := module("pooled_"+name), module("pooledReplay_"+name)
		for _, element := range []int{4, 2} {
			if c.floats&element == 0 {
				continue
			}
			for _, shape := range c.pooledShapes() {
				function := pooledName(shape, element)
				k.serve[function] = cuda.NewFunction[abi.PooledArgs](serve, function)
				k.replay[function] = cuda.NewFunction[abi.PooledReplayArgs](replay, function)
			}
		}
	}
}

func pooledName(shape string, element int) string { return fmt.Sprint("pooled", shape, "Of", element) }

// pooledShapes returns the lanes of the tiles that a coder has kernels for, and "Long", for rows of more than 32 quads.
func (c coder) pooledShapes() []string {
	shapes := []string{"Long"}
	for lanes := c.lanes; lanes <= 32; lanes *= 2 {
		shapes = append(shapes, fmt.Sprint(lanes))
	}
	return shapes
}

// pooledLaunch is how a pooled batch is launched.
type pooledLaunch struct {
	function               string
	lanes, threads, shared int
	name                   string // of the coder
}

// pooledFloat returns what pooled.h calls an element type.
func pooledFloat(t dtype.Type) uint32 {
	switch t {
	case dtype.Float16:
		return abi.PoolFloat16
	case dtype.BFloat16:
		return abi.PoolBfloat16
	}
	return abi.PoolFloat32
}

// pooled returns the launch and its arguments, but for tileRows.
func (k *Serve) pooled(s *cuda.Stream) (pooledLaunch, abi.PooledArgs, error) {
	p := k.Pool
	none := func(err error) (pooledLaunch, abi.PooledArgs, error) { return pooledLaunch{}, abi.PooledArgs{}, err }
	row, err := rowCodec(k.Codec, k.Lookup.RowBytes, 0)
	if err != nil {
		return none(err)
	}
	name, c, _ := coderOf(k.Codec.Form)
	l := pooledLaunch{name: name, lanes: 32, function: pooledName("Long", p.Row.Size())}
	quads := int(row.Quads)
	if quads <= 32 {
		l.lanes = c.tile(k.Lookup.RowBytes)
		l.function = pooledName(fmt.Sprint(l.lanes), p.Row.Size())
	}
	if pooledOf[name].serve[l.function] == nil {
		return none(fmt.Errorf("kernels: coder %s has no rows of %s that can be added up", name, p.Row))
	}
	if k.Lookup.RowBytes >= abi.LongRow {
		return none(fmt.Errorf("kernels: rows (%d bytes) that are added up must be shorter than %d", k.Lookup.RowBytes, abi.LongRow))
	}
	if p.PartialBytes() > k.Partials.Size() {
		return none(fmt.Errorf("kernels: partials (%d bytes) must be at least %d", k.Partials.Size(), p.PartialBytes()))
	}
	unit := uint32(16)
	for k.Lookup.Out.Addr()%uint64(unit) != 0 || p.Stride%int64(unit) != 0 {
		unit /= 2
	}
	args := abi.PooledArgs{
		Serve: abi.ServeArgs{
			Lookup: k.Lookup.args(), Tier: k.Tier.args(), Codec: row, Ahead: k.Tier.ahead(k.Codec),
			// Up to 31 bytes in front of a row, and 31 or what decoders read behind it.
			StageBytes: uint32((k.Lookup.RowBytes + 96 + 15) &^ 15), Result: k.Result.Addr(), Batch: k.Batch,
		},
		Pool: abi.PoolArgs{
			Offsets: p.Offsets.Addr(), Weights: p.Weights.Addr(), Partials: k.Partials.Addr(), Padding: p.Padding, Stride: p.Stride,
			Bags: uint32(p.Bags), Size: uint32(p.Size), OffsetCount: uint32(p.NumOffsets()), Columns: uint32(p.Columns),
			PartialStride: uint32(p.PartialStride()), Mode: uint32(p.Mode), Element: pooledFloat(p.Row), Output: pooledFloat(p.Out), Unit: unit,
		},
	}
	if p.Narrow {
		args.Pool.Narrow = 1
	}
	if p.Size != 0 {
		args.Pool.OffsetCount = 0
	}
	for i, b := range k.Slabs {
		args.Serve.Slabs[i] = b.Addr()
	}
	tile := l.lanes*16 + abi.PoolAhead*int(args.Serve.StageBytes) + int(row.Scratch)
	if !c.pairs {
		tile += quads * 16
	}
	if quads > 32 {
		tile += quads * 16 / p.Row.Size() * 4
	}
	warps, shared := kernelsOf(k.Codec).blockOf(s, &args.Serve.Codec, 32/l.lanes*tile)
	l.threads, l.shared = 32*warps, shared
	return l, args, nil
}

// minTileRows is the fewest positions that a tile is given.
const minTileRows = 8

// grid returns the grid for a kernel, and sets what a tile of it takes.
func (l *pooledLaunch) grid(rows, resident int, args *abi.PooledArgs) int {
	tiles := l.threads / l.lanes
	grid := max(1, min(resident, (rows+minTileRows*tiles-1)/(minTileRows*tiles)))
	args.Pool.TileRows = uint32(max(minTileRows, (rows+grid*tiles-1)/(grid*tiles)))
	return grid
}

// RunCUDA implements cuda.Kernel.
func (q *pooledServe) RunCUDA(s *cuda.Stream) error {
	k := (*Serve)(q)
	l, args, err := k.pooled(s)
	if err != nil {
		return err
	}
	f := pooledOf[l.name].serve[l.function]
	resident, err := f.Resident(s.Device(), l.threads, l.shared)
	if err != nil {
		return err
	}
	if err := f.Launch(s, l.grid(k.Lookup.numRows(), resident, &args), l.threads, l.shared, &args); err != nil {
		return err
	}
	return k.joinPooled(s, &args.Pool)
}

// joinPooled launches what joins the runs of longer bags, if there can be any.
func (k *Serve) joinPooled(s *cuda.Stream, p *abi.PoolArgs) error {
	if k.Pool.PartialBytes() == 0 {
		return nil
	}
	work := k.Pool.Bags * ((k.Pool.Columns + 31) / 32)
	return launchResident(s, poolJoin, blockThreads, 0, work, blockThreads/32, &abi.PoolJoinArgs{
		Pool: *p, Out: k.Lookup.Out.Addr(), Rows: uint32(k.Lookup.numRows()),
	})
}

// RunCUDA implements cuda.Kernel.
func (q *pooledReplay) RunCUDA(s *cuda.Stream) error {
	k := (*Replay)(q)
	l, args, err := k.Serve.pooled(s)
	if err != nil {
		return err
	}
	f := pooledOf[l.name].replay[l.function]
	resident, err := f.Resident(s.Device(), l.threads, l.shared)
	if err != nil {
		return err
	}
	grid := l.grid(k.Serve.Lookup.numRows(), resident, &args)
	if err := f.Launch(s, grid, l.threads, l.shared, &abi.PooledReplayArgs{
		Replay: abi.ReplayArgs{State: k.State.Addr(), Views: k.Views.Addr(), Blocks: uint32(grid), Serve: args.Serve}, Pool: args.Pool,
	}); err != nil {
		return err
	}
	k.blocks = uint64(grid)
	return k.Serve.joinPooled(s, &args.Pool)
}
