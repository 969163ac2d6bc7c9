//go:build cuda && linux

package kernels

import "github.com/tensorcache/tensorcache/device/cuda"

var (
	trainModule  = module("train")
	planesKernel = cuda.NewFunction[SampleArgs](trainModule, "planesKernel")
	onesKernel   = cuda.NewFunction[SampleArgs](trainModule, "onesKernel")
	growKernel   = cuda.NewFunction[SampleArgs](trainModule, "growKernel")
)

func (s *Sample) args() SampleArgs {
	return SampleArgs{
		Rows: s.Rows.Addr(), Planes: s.Planes.Addr(), Count: uint32(s.Count), RowWords: uint32(s.RowBytes / 4),
		Words: uint32(s.Words()), PlaneWords: uint32(s.PlaneWords()),
	}
}

// RunCUDA implements cuda.Kernel.
func (k *Planes) RunCUDA(s *cuda.Stream) error {
	args := k.args()
	tiles := (k.Words() + 31) / 32 * k.PlaneWords()
	return planesKernel.Launch(s, min(tiles, 2*s.Device().Multiprocessors()), 1024, 0, &args)
}

// RunCUDA implements cuda.Kernel.
func (k *Ones) RunCUDA(s *cuda.Stream) error {
	args := k.args()
	args.Results = k.Counts.Addr()
	grid, err := resident(s, onesKernel, 0, 32*k.Words(), blockThreads/32)
	if err != nil {
		return err
	}
	return onesKernel.Launch(s, grid, blockThreads, 0, &args)
}

// RunCUDA implements cuda.Kernel.
func (k *Grow) RunCUDA(s *cuda.Stream) error {
	args := k.args()
	args.Alive, args.Results, args.ChunkWords = k.Alive.Addr(), k.Masks.Addr(), uint32(k.Chunk/4)
	return growKernel.Launch(s, k.Chunks(), blockThreads, 0, &args)
}
