//go:build cuda && linux

package kernels

import (
	"embed"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

//go:embed ptx/*.ptx.zst
var ptx embed.FS

// ptxText returns the PTX of the module of that name. Its absence is a fault of the build.
func ptxText(name string) ([]byte, error) {
	packed, err := ptx.ReadFile("ptx/" + name + ".ptx.zst")
	if err != nil {
		panic(err)
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.DecodeAll(packed, nil)
}

// module returns the module of that name.
func module(name string) *cuda.Module {
	return &cuda.Module{Name: name, PTX: func() ([]byte, error) { return ptxText(name) }}
}

// Threads of a block of all kernels that do not say otherwise.
const blockThreads = 256

// resident returns a grid for work that a kernel's blocks take in turns: no more blocks than run at once.
func resident[A any](s *cuda.Stream, f *cuda.Function[A], shared, work, perBlock int) (int, error) {
	return residentOf(s, f, blockThreads, shared, work, perBlock)
}

func residentOf[A any](s *cuda.Stream, f *cuda.Function[A], threads, shared, work, perBlock int) (int, error) {
	n, err := f.Resident(s.Device(), threads, shared)
	return max(1, min(n, (work+perBlock-1)/perBlock)), err
}

// staticShared is more than any kernel's own shared memory beside the dynamic one: Serve has 4 KiB of lists.
const staticShared = 5 << 10

// sharedLimit, if not 0, is taken for what a block can have: tests try smaller GPUs with it.
var sharedLimit = 0

// fitWarps returns how many warps a block has, at most blockThreads / 32, such that their shared memory fits the device:
// from 99 KiB on GPUs for graphics to 227 KiB on an H100.
func fitWarps(s *cuda.Stream, fixed, perWarp int) int {
	limit := s.Device().MaxShared()
	if sharedLimit != 0 {
		limit = min(limit, sharedLimit)
	}
	warps := blockThreads / 32
	for warps > 1 && fixed+warps*perWarp+staticShared > limit {
		warps /= 2
	}
	return warps
}

// rowCodec returns a codec as launch arguments, for output at address out.
func rowCodec(c Codec, rowBytes int, out uint64) (abi.RowCodec, error) {
	if c.Codec != nil && !Decodes(c.Form) {
		return abi.RowCodec{}, fmt.Errorf("kernels: codec %s does not run on GPUs", c.Name())
	}
	r := abi.RowCodec{
		Meta: c.Meta.Addr(), MetaBytes: uint32(c.Meta.Size()), RowBytes: uint32(rowBytes),
		Chunks: uint32(c.Form.Chunks), KeptBits: uint32(c.Form.KeptBits), Quads: uint32((rowBytes + 15) / 16),
		Params: c.Form.Params, Scratch: uint32(c.Form.Scratch),
	}
	switch at := out | uint64(rowBytes); {
	case at%16 == 0:
		r.Store = abi.Store16
	case at%8 == 0:
		r.Store = abi.Store8
	case at%4 == 0:
		r.Store = abi.Store4
	default:
		r.Store = abi.Store1
	}
	return r, nil
}

// variant picks among the kernels compiled for a codec's form: "raw", "ibp4" or "ibp8", and the steps.
type variant struct{ chunk, steps int }

func variantOf(f codec.DeviceForm) variant { return variant{f.Chunk, f.Steps} }

var variants = map[variant]string{{0, 0}: "raw", {4, 3}: "ibp4", {4, 5}: "ibp4", {8, 4}: "ibp8", {8, 6}: "ibp8"}

// stillVariants are the variants of codecs that move no bit.
var stillVariants = map[variant]string{{4, 3}: "ibp4", {8, 4}: "ibp8"}

// functions makes a function for each variant and shape, from modules named after the codec.
func functions[A any](op string, shapes ...string) map[variant]map[string]*cuda.Function[A] {
	return functionsOf[A](variants, op, shapes...)
}

func functionsOf[A any](variants map[variant]string, op string, shapes ...string) map[variant]map[string]*cuda.Function[A] {
	modules := map[string]*cuda.Module{}
	all := map[variant]map[string]*cuda.Function[A]{}
	for v, name := range variants {
		if modules[name] == nil {
			modules[name] = module(op + "_" + name)
		}
		all[v] = map[string]*cuda.Function[A]{}
		for _, shape := range shapes {
			all[v][shape] = cuda.NewFunction[A](modules[name], fmt.Sprintf("%s%sx%d", op, shape, v.steps))
		}
	}
	return all
}
