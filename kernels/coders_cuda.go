//go:build cuda && linux

package kernels

import (
	"fmt"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// coderKernels are the kernels of one coder: those that decode hits by their names, small batches by the lanes of tiles.
type coderKernels struct {
	coder
	decode     map[string]*cuda.Function[abi.DecodeArgs]
	decodeLong *cuda.Function[abi.DecodeArgs]
	fetch      *cuda.Function[abi.FetchArgs]
	fetchLong  *cuda.Function[abi.FetchArgs]
	serve      map[int]*cuda.Function[abi.ServeArgs]
	encode     *cuda.Function[abi.EncodeArgs]
}

var codedKernels = map[string]coderKernels{}

func init() {
	for name, c := range coders {
		decode, fetch, serve := module("decode_"+name), module("fetch_"+name), module("serve_"+name)
		k := coderKernels{
			coder:      c,
			decode:     map[string]*cuda.Function[abi.DecodeArgs]{},
			decodeLong: cuda.NewFunction[abi.DecodeArgs](decode, "decodeLong"),
			fetch:      cuda.NewFunction[abi.FetchArgs](fetch, "fetch32"),
			fetchLong:  cuda.NewFunction[abi.FetchArgs](fetch, "fetchLong"),
			serve:      map[int]*cuda.Function[abi.ServeArgs]{},
		}
		for lanes := 32; lanes >= c.lanes; lanes /= 2 {
			if lanes != 16 {
				k.serve[lanes] = cuda.NewFunction[abi.ServeArgs](serve, fmt.Sprint("serve", lanes))
			}
		}
		for _, name := range c.hitKernels() {
			k.decode[name] = cuda.NewFunction[abi.DecodeArgs](decode, name)
		}
		if c.encodes {
			k.encode = cuda.NewFunction[abi.EncodeArgs](module("encode_"+name), "encode32")
		}
		codedKernels[name] = k
	}
}

// tileOf returns the lanes that a row takes, of kernels by their lanes: one for each of its quads, up to a warp.
func tileOf[A any](kernels map[int]*cuda.Function[A], rowBytes int) int {
	for lanes := 8; lanes < 32; lanes *= 2 {
		if kernels[lanes] != nil && lanes*16 >= rowBytes {
			return lanes
		}
	}
	return 32
}

// fits says whether a block of one warp has so much shared memory.
func fits(s *cuda.Stream, shared int) bool {
	limit := s.Device().MaxShared()
	if sharedLimit != 0 {
		limit = min(limit, sharedLimit)
	}
	return shared+staticShared <= limit
}

// maxSharedMeta is the metadata that blocks copy to shared memory, at most, where they can read it in place as well: more would
// leave no room for rows.
const maxSharedMeta = 48 << 10

// metaInPlace leaves the metadata where they are if they do not fit shared memory beside one warp's.
func metaInPlace(s *cuda.Stream, row *abi.RowCodec, perWarp int) {
	if row.MetaBytes > maxSharedMeta || !fits(s, int(row.MetaBytes)+perWarp) {
		row.MetaBytes = 0
	}
}

// runCoded is RunCUDA for a coder's rows.
func (k *Decode) runCoded(s *cuda.Stream, c coderKernels, args *abi.DecodeArgs, n int) error {
	stage := (k.RowBytes+15)&^15 + 32
	args.StageBytes = uint32(stage)
	d := c.hits(&args.Codec)
	perWarp := 32 / d.lanes * ((d.ahead+1)*stage + int(args.Codec.Scratch))
	meta, lanes := int(args.Codec.MetaBytes), d.lanes
	f := c.decode[d.kernel()]
	if k.RowBytes >= abi.LongRow || meta > maxSharedMeta || !fits(s, meta+perWarp) {
		f, meta, perWarp, lanes = c.decodeLong, 0, int(args.Codec.Scratch), 32
	}
	warps := fitWarps(s, meta, perWarp)
	if d.fill {
		warps = fillWarps(s, meta+d.table, perWarp, warps)
	}
	threads, shared := 32*warps, meta+warps*perWarp
	grid, err := residentOf(s, f, threads, shared, n, max(1, threads/lanes/2)) // few rows: more blocks
	if err != nil {
		return err
	}
	if grid, err = leave(s, f, grid, threads, shared, k.Leave); err != nil {
		return err
	}
	return f.Launch(s, grid, threads, shared, args)
}

// fillWarps returns how many warps, of those given at most, a block has for a multiprocessor to have most, as far as shared memory goes:
// that of a multiprocessor is a block's most and the 1 KiB that each block takes beside its own. More than three full
// blocks have no registers.
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

// leave takes blocks off a grid, so many of those that each multiprocessor could run; one always runs.
func leave[A any](s *cuda.Stream, f *cuda.Function[A], grid, threads, shared, blocks int) (int, error) {
	if blocks == 0 {
		return grid, nil
	}
	all, err := f.Resident(s.Device(), threads, shared)
	sms := s.Device().Multiprocessors()
	return min(grid, max(1, all/sms-blocks)*sms), err
}

// runCoded is RunCUDA for a coder's rows.
func (k *Fetch) runCoded(s *cuda.Stream, c coderKernels, args *abi.FetchArgs, n int) error {
	stage := (k.Tier.RowBytes + stageSlack + 127) &^ 127
	args.StageBytes = uint32(stage)
	perWarp := stage + int(args.Codec.Scratch)
	metaInPlace(s, &args.Codec, perWarp)
	f := c.fetch
	if !fits(s, perWarp) {
		f, perWarp = c.fetchLong, int(args.Codec.Scratch)
	}
	meta := int(args.Codec.MetaBytes)
	warps := fitWarps(s, meta, perWarp)
	shared := meta + warps*perWarp
	grid, err := residentOf(s, f, 32*warps, shared, n, warps)
	if err != nil {
		return err
	}
	grid = min(grid, s.Device().Multiprocessors()) // as for IBP's
	return f.LaunchBegun(s, grid, 32*warps, shared, args, k.Begun)
}

// serveCoded returns the kernel of a small batch of a coder's rows, the tiles of its warps, and what a warp takes of shared memory.
func serveCoded(s *cuda.Stream, c coderKernels, args *abi.ServeArgs) (f *cuda.Function[abi.ServeArgs], tiles, perWarp int) {
	lanes := tileOf(c.serve, int(args.Codec.RowBytes)/2) // two quads a lane
	tiles = 32 / lanes
	perWarp = int(args.StageBytes) + tiles*int(args.Codec.Scratch)
	metaInPlace(s, &args.Codec, perWarp)
	return c.serve[lanes], tiles, perWarp
}

// runCoded is RunCUDA for a coder's rows.
func (k *Encode) runCoded(s *cuda.Stream, c coderKernels, args *abi.EncodeArgs) error {
	if c.encode == nil || args.Codec.RowBytes >= abi.LongRow {
		return fmt.Errorf("kernels: codec %s does not encode rows of %d bytes on GPUs", k.Codec.Name(), args.Codec.RowBytes)
	}
	args.Codec.Scratch = uint32(k.Codec.Form.EncodeScratch)
	args.RowBytes = (args.Codec.RowBytes + stageSlack + 127) &^ 127
	perWarp := 2*int(args.RowBytes) + int(args.Codec.Scratch)
	metaInPlace(s, &args.Codec, perWarp)
	meta := int(args.Codec.MetaBytes)
	warps := fitWarps(s, meta, perWarp)
	shared := meta + warps*perWarp
	grid, err := residentOf(s, c.encode, 32*warps, shared, int(k.Count), warps)
	if err != nil {
		return err
	}
	return c.encode.Launch(s, grid, 32*warps, shared, args)
}
