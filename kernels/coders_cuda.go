//go:build cuda && linux

package kernels

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// coderKernels are the kernels of one coder: those of hits by their names, those of small and of shared batches by the lanes of a tile.
type coderKernels struct {
	coder
	decode           map[string]*cuda.Function[abi.DecodeArgs]
	find             map[string]*cuda.Function[abi.FindArgs]
	buddy            map[string]*cuda.Function[abi.BuddyArgs]
	fetch, fetchLong *cuda.Function[abi.FetchArgs]
	serve            map[int]*cuda.Function[abi.ServeArgs]
	replay           map[int]*cuda.Function[abi.ReplayRowsArgs]
	share            map[int]*cuda.Function[abi.ShareFetchArgs]
	shareLong        *cuda.Function[abi.ShareFetchArgs]
	// encode and encodeLong are nil where there is no encoder; encodeLong where it serves no rows from abi.LongRow on.
	encode, encodeLong *cuda.Function[abi.EncodeArgs]
	// Pooled batches, by form and name: one batch that is in no graph, and all batches. Not all forms have the former.
	pooled       map[string]*cuda.Function[abi.PooledArgs]
	pooledTables map[string]*cuda.Function[abi.PooledTablesArgs]
}

// codedKernels are the kernels of all coders, by the name in the list.
var codedKernels = map[string]*coderKernels{}

func init() {
	for name, c := range coders {
		codedKernels[name] = &coderKernels{
			coder: c, decode: map[string]*cuda.Function[abi.DecodeArgs]{}, find: map[string]*cuda.Function[abi.FindArgs]{}, buddy: map[string]*cuda.Function[abi.BuddyArgs]{},
			serve: map[int]*cuda.Function[abi.ServeArgs]{}, replay: map[int]*cuda.Function[abi.ReplayRowsArgs]{}, share: map[int]*cuda.Function[abi.ShareFetchArgs]{},
			pooled: map[string]*cuda.Function[abi.PooledArgs]{}, pooledTables: map[string]*cuda.Function[abi.PooledTablesArgs]{},
		}
	}
	for name, functions := range entries {
		m := module(name)
		op, of, _ := strings.Cut(name, "_")
		for _, function := range functions {
			codedKernels[of].add(m, op, function)
		}
	}
}

// add adds a kernel of a module of that op.
//
// The reading of misses leaves most of a multiprocessor's memory to the decoder, which begins meanwhile and needs more shared memory beside
// the reading than the reading does itself. Where the driver left room for the latter alone, most hits waited until all misses were there:
// 80 % hits of 200,000 rows took 459 instead of 421 µs at 512 bytes on an H200, and 865 instead of 796 at 1024; 95 % hits 190 instead of
// 160 at 512.
func (k *coderKernels) add(m *cuda.Module, op, function string) {
	lanes, _ := strconv.Atoi(strings.TrimLeft(function, letters))
	form, tables := strings.CutSuffix(strings.TrimPrefix(op, "pooled"), "Tables")
	switch kind := strings.TrimRight(function, digits); {
	case strings.HasPrefix(function, "pooled") && tables:
		k.pooledTables[strings.TrimSuffix(form, "Float8")+function] = cuda.NewFunction[abi.PooledTablesArgs](m, function)
	case strings.HasPrefix(function, "pooled"):
		k.pooled[form+function] = cuda.NewFunction[abi.PooledArgs](m, function)
	case strings.HasPrefix(function, "decode"):
		k.decode[function] = cuda.NewFunction[abi.DecodeArgs](m, function)
	case strings.HasPrefix(function, "find"):
		k.find[function] = cuda.NewFunction[abi.FindArgs](m, function)
	case strings.HasPrefix(function, "buddy"):
		k.buddy[function] = cuda.NewFunction[abi.BuddyArgs](m, function)
	case kind == "fetch":
		k.fetch = cuda.NewFunction[abi.FetchArgs](m, function).PreferShared()
	case kind == "fetchLong":
		k.fetchLong = cuda.NewFunction[abi.FetchArgs](m, function)
	case kind == "serve":
		k.serve[lanes] = cuda.NewFunction[abi.ServeArgs](m, function)
	case kind == "replay":
		k.replay[lanes] = cuda.NewFunction[abi.ReplayRowsArgs](m, function)
	case kind == "shareFetch":
		k.share[lanes] = cuda.NewFunction[abi.ShareFetchArgs](m, function).PreferShared()
	case kind == "shareFetchLong":
		k.shareLong = cuda.NewFunction[abi.ShareFetchArgs](m, function).PreferShared()
	case kind == "encode":
		k.encode = cuda.NewFunction[abi.EncodeArgs](m, function)
	case kind == "encodeLong":
		k.encodeLong = cuda.NewFunction[abi.EncodeArgs](m, function)
	default:
		panic(fmt.Sprintf("kernels: module %s has a kernel %s, which nothing launches", m.Name, function))
	}
}

const (
	digits  = "0123456789"
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// kernelsOf returns the kernels of a codec that rowCodec accepts.
func kernelsOf(c Codec) *coderKernels {
	name, _, _ := coderOf(c.Form)
	return codedKernels[name]
}

// maxSharedMeta is the longest metadata, in bytes, that blocks copy to shared memory if they can read them in place too. Longer ones would leave
// no room for rows.
const maxSharedMeta = 48 << 10

// metaInPlace sets MetaBytes to 0, so that metadata are read in place, if they do not fit shared memory beside one warp's.
func (c coder) metaInPlace(s *cuda.Stream, row *abi.RowCodec, perWarp int) {
	if c.pairs {
		return
	}
	if row.MetaBytes > maxSharedMeta || !fits(s, int(row.MetaBytes)+perWarp) {
		row.MetaBytes = 0
	}
}

// blockOf returns the warps of a block, and its shared memory: the metadata, unless they are read in place, and perWarp bytes a warp.
func (c coder) blockOf(s *cuda.Stream, row *abi.RowCodec, perWarp int) (warps, shared int) {
	c.metaInPlace(s, row, perWarp)
	meta := int(row.MetaBytes)
	warps = fitWarps(s, meta, perWarp)
	return warps, meta + warps*perWarp
}

// stageBytes returns the shared memory, in bytes, of a row's stage. The payload of a row ends at most one bit a chunk after the row's length, and
// five words are read from each position.
func stageBytes(rowBytes int) int {
	quads := (rowBytes + 15) / 16
	return (quads*16 + (quads+7)/8*4 + 20 + 15) &^ 15
}

// hitLaunch is how a kernel that decodes hits is launched. rows is the fewest hits for which a block is launched: a small batch is spread over
// many blocks.
type hitLaunch struct {
	hitKernel
	threads, shared, rows int
}

// launchOf returns the launch for hits of such rows: hits says what op is, Decode.Lanes what lanes is. It sets the shared memory of a row in args.
func (c coder) launchOf(s *cuda.Stream, args *abi.DecodeArgs, op string, lanes int) hitLaunch {
	l := hitLaunch{hitKernel: c.hits(&args.Codec, op)}
	if lanes != 0 && (l.form == "Bytes" || l.form == "Bits") {
		l.lanes, l.shape = lanes, fmt.Sprint(lanes)
	}
	rowBytes := int(args.Codec.RowBytes)
	tickets := abi.DecodeTickets
	if op == "buddy" {
		tickets = abi.BuddyTickets
	}
	if c.pairs {
		var lanes int
		args.StageBytes = uint32(stageBytes(rowBytes))
		_, l.threads, lanes = decodeShape(rowBytes)
		l.rows = 1
		stages := abi.DecodeStages
		if l.shape == "Double" {
			l.threads, lanes, stages = blockThreads, l.lanes, stages/2
		}
		if lanes <= 32 {
			l.threads = limited(l.threads, 32*warpLimit)
		}
		if l.shape != "Long" {
			l.shared = l.threads*tickets + l.threads/lanes*stages*int(args.StageBytes)
			l.rows = max(2, 64/lanes)
			if l.lanes == abi.TwoLanes {
				tiles := l.threads / 32 * (32 / abi.TwoLanes)
				l.shared = l.threads*tickets + tiles*abi.TwoStages*int(args.StageBytes)
				l.rows = 32 / abi.TwoLanes
			}
			if l.op == "find" {
				l.shared += l.threads * abi.FindShared
			}
			if l.shape == "Double" && l.form == "" { // the metadata of the row
				l.shared += int(args.Codec.MetaBytes)
			}
		}
		return l
	}
	stage := (rowBytes+15)&^15 + 32
	args.StageBytes, args.Ahead = uint32(stage), uint32(l.ahead)
	perTile := (l.ahead+1)*stage + int(args.Codec.Scratch)
	built := 0 // what the scratch is longer
	if l.form == "Built" {
		tickets := l.lanes * abi.BuiltTickets
		built = (rowBytes + 15) &^ 15
		// The tiles of a warp read their first words from different banks.
		built += (32 - tickets - perTile - built) & 127
		perTile += tickets + built
	}
	perWarp := 32 / l.lanes * perTile
	if l.op == "find" {
		perWarp += 32 * abi.FindShared
	}
	meta := int(args.Codec.MetaBytes)
	if rowBytes >= abi.LongRow || meta > maxSharedMeta || !fits(s, meta+perWarp) {
		if op != "buddy" {
			op = "decode"
		}
		l.hitKernel = hitKernel{op: op, shape: "Long", lanes: 32, fill: l.fill, table: l.table}
		meta, perWarp, built = 0, int(args.Codec.Scratch), 0
	}
	args.Codec.Scratch += uint32(built)
	warps := fitWarps(s, meta, perWarp)
	if l.fill {
		warps = fillWarps(s, meta+l.table, perWarp, warps)
	}
	l.threads, l.shared = 32*warps, meta+warps*perWarp
	l.rows = max(1, l.threads/l.lanes/2)
	return l
}

// fillWarps returns the warps of a block, at most those given, with which a multiprocessor has room for the most warps. Shared memory is the
// limit: a multiprocessor has as much as one block can have at most, and 1 KiB that each block takes beside its own. Registers suffice for
// three full blocks.
func fillWarps(s *cuda.Stream, fixed, perWarp, warps int) int {
	const reserved = 1 << 10
	resident := func(warps int) int {
		blocks := (s.Device().MaxShared() + reserved) / (fixed + warps*perWarp + reserved)
		return min(blocks*warps, 3*blockThreads/32)
	}
	best := warps
	for warps /= 2; warps > 0; warps /= 2 {
		if resident(warps) > resident(best) {
			best = warps
		}
	}
	return best
}

// leave makes a grid smaller, so that each multiprocessor could run so many blocks more. One block of it always runs.
func leave[A any](s *cuda.Stream, f *cuda.Function[A], grid, threads, shared, blocks int) (int, error) {
	if blocks == 0 {
		return grid, nil
	}
	all, err := f.Resident(s.Device(), threads, shared)
	sms := s.Device().Multiprocessors()
	return min(grid, max(1, all/sms-blocks)*sms), err
}
