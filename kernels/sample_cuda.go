//go:build cuda && linux

package kernels

import "github.com/tensorcache/tensorcache/device/cuda"

var sampleKernel = cuda.NewFunction[LookupArgs](module("sample"), "sampleKernel")

// RunCUDA implements cuda.Kernel.
func (k *AppendSamples) RunCUDA(s *cuda.Stream) error {
	n := int(k.Rows.Size() / 8)
	if n == 0 {
		return nil
	}
	args := LookupArgs{Rows: k.Rows.Addr(), Limit: k.Limit, Count: uint32(n), Table: uint16(k.Table), Samples: k.Samples}
	return sampleKernel.Launch(s, min((n+blockThreads-1)/blockThreads, s.Device().Multiprocessors()), blockThreads, 0, &args)
}
