//go:build cuda && linux

package kernels

import (
	"fmt"
	"math"

	"github.com/tensorcache/tensorcache/device"
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

var poolJoin = cuda.NewFunction[abi.PoolJoinArgs](module("pooled"), "poolJoin")

// leastFloat8Lanes is the narrowest tile of the kernels for float8 rows.
const leastFloat8Lanes = 16

// pooledNames are the names by lanes, 0 for Long, and element, so that a batch formats none.
var pooledNames = func() map[[2]int]string {
	all := map[[2]int]string{}
	for _, element := range []int{4, 2, 1} {
		all[[2]int{0, element}] = fmt.Sprint("pooledLongOf", element)
		for lanes := 8; lanes <= 32; lanes *= 2 {
			all[[2]int{lanes, element}] = fmt.Sprint("pooled", lanes, "Of", element)
		}
	}
	return all
}()

// pooledLaunch is how a pooled batch is launched.
type pooledLaunch struct {
	form, function         string // form is "Pairs" for pooled_pairs.cu, "Shifts" for that with coder.shifts, "Bytes" for pooled_bytes.cu, or "" for pooled.cu
	lanes, threads, shared int
	name                   string // of the coder
	// inside says that the kernel writes bags of several runs that one tile adds up.
	inside bool
}

// pooledFloat returns what pooled.h calls an element type.
func pooledFloat(t dtype.Type) uint32 {
	switch t {
	case dtype.Float16:
		return abi.PoolFloat16
	case dtype.BFloat16:
		return abi.PoolBfloat16
	case dtype.Float8E4M3FN:
		return abi.PoolE4m3
	case dtype.Float8E5M2:
		return abi.PoolE5m2
	}
	return abi.PoolFloat32
}

// pooled returns the launch and its arguments, but for tileRows.
func (k *Serve) pooled(s *cuda.Stream) (pooledLaunch, abi.PooledArgs, error) {
	p := k.Pool
	none := func(err error) (pooledLaunch, abi.PooledArgs, error) { return pooledLaunch{}, abi.PooledArgs{}, err }
	if k.Resident != nil {
		return none(errResident)
	}
	row, err := rowCodec(k.Codec, k.Lookup.RowBytes, 0)
	if err != nil {
		return none(err)
	}
	name, c, _ := coderOf(k.Codec.Form)
	// A unit is what a lane adds at once: a quad, or eight float8 values.
	quads, width, element := int(row.Quads), p.Row.Size(), p.Row
	units, values, least := quads, 16/width, c.lanes
	if p.Float8.Is() {
		width, element, values = 1, p.Float8.Values, float8Piece
		units, least = (p.Columns+values-1)/values, max(least, leastFloat8Lanes)
	}
	l := pooledLaunch{name: name, lanes: 32, function: pooledNames[[2]int{0, width}]}
	if units <= 32 {
		l.lanes = least
		for l.lanes < units {
			l.lanes *= 2
		}
		l.function = pooledNames[[2]int{l.lanes, width}]
		switch {
		case p.Float8.Is():
		case c.pairs && c.shifts > 0 && int(row.Params[2]) <= c.shifts:
			l.form = "Shifts"
		case c.pairs:
			l.form = "Pairs"
		case c.addsBytes(&row):
			l.form, l.lanes = "Bytes", c.rankTile(int(row.RowBytes))
			l.function = pooledNames[[2]int{l.lanes, width}]
		}
	}
	if codedKernels[name].pooledTables[l.form+l.function] == nil {
		return none(fmt.Errorf("kernels: coder %s has no rows of %s that can be added up", name, element))
	}
	if k.Lookup.RowBytes >= abi.LongRow {
		return none(fmt.Errorf("kernels: rows (%d bytes) that are added up must be shorter than %d", k.Lookup.RowBytes, abi.LongRow))
	}
	if p.PartialBytes() > k.Partials.Size() {
		return none(fmt.Errorf("kernels: partials (%d bytes) must be at least %d", k.Partials.Size(), p.PartialBytes()))
	}
	args := abi.PooledArgs{
		Serve: abi.ServeArgs{
			Lookup: k.Lookup.args(), Tier: k.Tier.args(), Codec: row, Ahead: k.Tier.ahead(k.Codec),
			// Up to 31 bytes in front of a row, and 31 or what decoders read behind it.
			StageBytes: uint32((k.Lookup.RowBytes + 96 + 15) &^ 15), Result: k.Result.Addr(), Batch: k.Batch,
		},
		Pool: poolArgs(p, k.Lookup.Out, k.Partials, element),
	}
	for i, b := range k.Slabs {
		args.Serve.Slabs[i] = b.Addr()
	}
	if l.form != "" {
		c.aheadLaunch(s, &l, &args, width)
		return l, args, nil
	}
	tile := l.lanes*16 + abi.PoolAhead*int(args.Serve.StageBytes) + int(row.Scratch)
	if !c.pairs || p.Float8.Is() {
		tile += quads * 16
	}
	if units > 32 {
		tile += units * values * 4
	}
	warps, shared := kernelsOf(k.Codec).blockOf(s, &args.Serve.Codec, 32/l.lanes*tile)
	l.threads, l.shared = 32*warps, shared
	return l, args, nil
}

// aheadLaunch sets the memory of a launch of a kernel that looks rows up ahead: of pooled_pairs.cu or pooled_bytes.cu. width is the bytes of an element.
func (c coder) aheadLaunch(s *cuda.Stream, l *pooledLaunch, args *abi.PooledArgs, width int) {
	row := &args.Serve.Codec
	quads, codec := int(row.Quads), int(row.MetaBytes)
	thread, tile, table := abi.PoolEntries+abi.PoolLane+abi.FindShared, abi.PoolTile, 0
	if l.form == "Bytes" {
		args.Serve.StageBytes = uint32(quads*16 + 32)
		tile += quads*(16/width)*4 + abi.PoolBytesStages*int(args.Serve.StageBytes) + int(row.Scratch)
		table = 4 * abi.RankTable
	} else {
		stages := abi.PoolStages
		args.Serve.StageBytes = uint32(stageBytes(int(row.RowBytes)))
		if l.name == raw {
			args.Serve.StageBytes = uint32(quads * 16)
			if width == 4 {
				stages = abi.PoolRawStages
			}
		}
		if l.form == "Shifts" { // ByShifts of expand.h
			codec = quads * ((2+c.shifts)*16 + 16)
		}
		thread += (16/width + 1) * 4
		tile += stages * int(args.Serve.StageBytes)
		l.inside = true
	}
	perWarp := 32*thread + 32/l.lanes*tile
	warps := fillWarps(s, codec+table+ownShared, perWarp, fitWarps(s, codec+table, perWarp))
	l.threads, l.shared = 32*warps, codec+warps*perWarp
}

// ownShared is the shared memory that a kernel of aheadLaunch has beside the dynamic one, about.
const ownShared = 512

// poolArgs returns what a batch says of its bags, but for tileRows. element is the type of the values that rows have.
func poolArgs(p *reduce.Batch, out, partials device.Buffer, element dtype.Type) abi.PoolArgs {
	unit := uint32(16)
	for out.Addr()%uint64(unit) != 0 || p.Stride%int64(unit) != 0 {
		unit /= 2
	}
	args := abi.PoolArgs{
		Offsets: p.Offsets.Addr(), Weights: p.Weights.Addr(), Partials: partials.Addr(), Padding: p.Padding, Stride: p.Stride,
		Bags: uint32(p.Bags), Size: uint32(p.Size), OffsetCount: uint32(p.NumOffsets()), Columns: uint32(p.Columns),
		PartialStride: uint32(p.PartialStride()), Mode: uint32(p.Mode), Element: pooledFloat(element), Output: pooledFloat(p.Out), Unit: unit,
	}
	args.Begin = uint32(p.Begin)
	if p.Narrow {
		args.Narrow = 1
	}
	if p.Size != 0 {
		args.OffsetCount = 0
	}
	if p.Mode != reduce.Max && p.Weights.Size() == 0 && element != dtype.Float16 {
		args.Plain = 1
	}
	return args
}

// float8Piece is the values of float8 that a lane adds at once.
const float8Piece = reduce.Float8Unit

// float8Args returns what rows of float8 are.
func float8Args(f *reduce.Float8) abi.Float8Args {
	a := abi.Float8Args{Block: uint32(f.Block / float8Piece), Factor: math.Float32bits(f.Factor)}
	switch {
	case f.Block == 0:
		a.Scales = abi.Float8Unscaled
	case f.Scales == dtype.Float32:
		a.Scales = abi.Float8Float32
	default:
		a.Scales = abi.Float8E8m0
	}
	return a
}

// minTileRows is the fewest positions that a tile is given.
const minTileRows = abi.PoolLeastRows

// grid returns the grid for a kernel, and sets what a tile of it takes.
func (l *pooledLaunch) grid(rows, resident int, args *abi.PooledArgs) int {
	tiles := l.threads / l.lanes
	grid := max(1, min(resident, (rows+minTileRows*tiles-1)/(minTileRows*tiles)))
	args.Pool.TileRows = uint32(max(minTileRows, (rows+grid*tiles-1)/(grid*tiles)))
	if size := args.Pool.Size; l.inside && size > abi.PoolRun && size <= args.Pool.TileRows { // whole bags, which need no second launch
		args.Pool.TileRows = (args.Pool.TileRows + size - 1) / size * size
	}
	return grid
}

// RunCUDA implements cuda.Kernel.
func (q *pooledServe) RunCUDA(s *cuda.Stream) error {
	k := (*Serve)(q)
	l, args, err := k.pooled(s)
	if err != nil {
		return err
	}
	f := codedKernels[l.name].pooled[l.form+l.function]
	if f == nil { // a launch of one table
		return (&PooledTables{Tables: []*Serve{k}, Counters: k.Lookup.Counters, Results: k.Result, Batch: k.Batch, Partials: k.Partials}).RunCUDA(s)
	}
	blocks, err := resident(s, f, l.threads, l.shared)
	if err != nil {
		return err
	}
	if err := f.Launch(s, l.grid(k.Lookup.numRows(), blocks, &args), l.threads, l.shared, &args); err != nil {
		return err
	}
	return joinPooled(s, k.Pool, &args.Pool, k.Lookup.Out, l.inside)
}

// joinPooled launches what joins the runs of longer bags, if there can be any. inside is that of the launch that has added them up.
func joinPooled(s *cuda.Stream, b *reduce.Batch, p *abi.PoolArgs, out device.Buffer, inside bool) error {
	if b.PartialBytes() == 0 || inside && b.Size != 0 && b.Size <= reduce.Group && int(p.TileRows)%b.Size == 0 {
		return nil
	}
	args := abi.PoolJoinArgs{Pool: *p, Out: out.Addr(), Rows: uint32(b.Rows)}
	if inside {
		args.Inside = 1
	}
	return launchResident(s, poolJoin, blockThreads, 0, b.Bags*((b.Columns+31)/32), blockThreads/32, &args)
}
