//go:build cuda && linux

package kernels

import (
	"embed"
	"fmt"
	"sync"
	"weak"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/internal/bundle"
)

//go:embed ptx/*.ptx.zst
var ptx embed.FS

// unpacked holds what files decompress to, by a name of the file. Modules of one coder are loaded within a short time, and then no more: the
// garbage collector may take a file's content, and a later load decompresses it again.
type unpacked[T any] struct {
	files sync.Map // *content[T] by name
}

type content[T any] struct {
	mu    sync.Mutex
	value weak.Pointer[T] // guarded by mu
}

// of returns what a file decompresses to, by unpack if it is not in memory.
func (u *unpacked[T]) of(file string, unpack func() (T, error)) (*T, error) {
	entry, _ := u.files.LoadOrStore(file, &content[T]{})
	c := entry.(*content[T])
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.value.Value(); v != nil {
		return v, nil
	}
	v, err := unpack()
	if err != nil {
		return nil, err
	}
	c.value = weak.Make(&v)
	return &v, nil
}

var texts unpacked[map[string]bundle.Packed]

// ptxFile returns a bundle's file. Its absence is a fault of the build.
func ptxFile(of string) []byte {
	packed, err := ptx.ReadFile("ptx/" + of + bundle.Ext)
	if err != nil {
		panic(err)
	}
	return packed
}

// ptxText returns the PTX of the module of that name. Its absence is a fault of the build.
func ptxText(name string) ([]byte, error) {
	of := bundle.Of(name)
	modules, err := texts.of(of, func() (map[string]bundle.Packed, error) { return bundle.Unpack(ptxFile(of)) })
	if err != nil {
		return nil, err
	}
	text, ok := (*modules)[name]
	if !ok {
		panic(fmt.Sprintf("kernels: bundle %s has no module %s", of, name))
	}
	return text.Text(), nil
}

// module returns the module of that name.
func module(name string) *cuda.Module {
	return &cuda.Module{
		Name:    name,
		Machine: func(major, minor int) []byte { return machineCode(machine, name, major, minor) },
		PTX:     func() ([]byte, error) { return ptxText(name) },
	}
}

// resident returns how many blocks of a kernel run at once.
func resident[A any](s *cuda.Stream, f *cuda.Function[A], threads, shared int) (int, error) {
	n, err := f.Resident(s.Device(), threads, shared)
	return limited(n, blockLimit), err
}

// residentOf returns a grid for work that a kernel's blocks take in turns: no more blocks than run at once.
func residentOf[A any](s *cuda.Stream, f *cuda.Function[A], threads, shared, work, perBlock int) (int, error) {
	n, err := resident(s, f, threads, shared)
	return max(1, min(n, (work+perBlock-1)/perBlock)), err
}

// launchResident launches a kernel on the grid that residentOf returns.
func launchResident[A any](s *cuda.Stream, f *cuda.Function[A], threads, shared, work, perBlock int, args *A) error {
	grid, err := residentOf(s, f, threads, shared, work, perBlock)
	if err != nil {
		return err
	}
	return f.Launch(s, grid, threads, shared, args)
}

// staticShared is more than any kernel's own shared memory beside the dynamic one: Serve has 4 KiB of lists.
const staticShared = 5 << 10

// fits says whether a block has so many bytes of dynamic shared memory: it has from 99 KiB on GPUs for graphics to 227 KiB on an H100.
func fits(s *cuda.Stream, shared int) bool {
	return shared+staticShared <= limited(s.Device().MaxShared(), sharedLimit)
}

// fitWarps returns how many warps a block has, at most blockThreads / 32, such that their shared memory fits the device.
func fitWarps(s *cuda.Stream, fixed, perWarp int) int {
	warps := limited(blockThreads/32, warpLimit)
	for warps > 1 && !fits(s, fixed+warps*perWarp) {
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
		Quads:  uint32((rowBytes + 15) / 16),
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
