//go:build cuda && linux

package kernels

import (
	"fmt"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

var (
	trainModule       = module("train")
	planesKernel      = cuda.NewFunction[abi.SampleArgs](trainModule, "planesKernel")
	onesKernel        = cuda.NewFunction[abi.SampleArgs](trainModule, "onesKernel")
	growKernel        = cuda.NewFunction[abi.SampleArgs](trainModule, "growKernel")
	sampleBytesKernel = cuda.NewFunction[abi.SampleBytesArgs](trainModule, "sampleBytesKernel")
)

func (s *Sample) args() abi.SampleArgs {
	return abi.SampleArgs{
		Rows: s.Rows.Addr(), Planes: s.Planes.Addr(), Count: uint32(s.Count), RowWords: uint32(s.RowWords()),
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
	return launchResident(s, onesKernel, blockThreads, 0, 32*k.Words(), blockThreads/32, &args)
}

// RunCUDA implements cuda.Kernel.
func (k *Grow) RunCUDA(s *cuda.Stream) error {
	args := k.args()
	args.Alive, args.Results, args.ChunkWords = k.Alive.Addr(), k.Masks.Addr(), uint32(k.Chunk/4)
	// Long planes belong to few chunks, which leave multiprocessors idle: on an H200, 65,536 rows of 512 bytes take 0.10 ms with
	// 1024 threads a chunk and 0.22 with 256, and 2,048 rows of 16 KiB 1.0.
	threads := blockThreads
	if k.PlaneWords() >= 1024 {
		threads = 1024
	}
	return growKernel.Launch(s, k.Chunks(), threads, 0, &args)
}

// RunCUDA implements cuda.Kernel.
func (k *SampleBytes) RunCUDA(s *cuda.Stream) error {
	n := int(k.Sums.Size() / 8)
	if n > MaxMasks {
		return fmt.Errorf("kernels: masks (%d) must be at most %d", n, MaxMasks)
	}
	return launchResident(s, sampleBytesKernel, blockThreads, 0, k.Count, blockThreads/32, &abi.SampleBytesArgs{
		Rows: k.Rows.Addr(), Masks: k.Masks.Addr(), Sums: k.Sums.Addr(), Count: uint32(k.Count), RowBytes: uint32(k.RowBytes),
		RowWords: uint32(k.RowWords()), Words: uint32(k.Words()), ChunkWords: uint32(k.Chunk / 4), NumMasks: uint32(n),
	})
}
