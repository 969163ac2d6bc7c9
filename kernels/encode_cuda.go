//go:build cuda && linux

package kernels

import (
	"fmt"

	"github.com/tensorcache/tensorcache/device/cuda"
)

var (
	encodeKernels      = map[variant]*cuda.Function[EncodeArgs]{}
	sampleBytesKernels = map[variant]*cuda.Function[SampleBytesArgs]{}
)

func init() {
	modules := map[string]*cuda.Module{}
	for v, name := range variants {
		if v.chunk == 0 {
			continue
		}
		if modules[name] == nil {
			modules[name] = module("encode_" + name)
		}
		encodeKernels[v] = cuda.NewFunction[EncodeArgs](modules[name], fmt.Sprintf("encodex%d", v.steps))
		sampleBytesKernels[v] = cuda.NewFunction[SampleBytesArgs](modules[name], fmt.Sprintf("sampleBytesx%d", v.steps))
	}
}

// RunCUDA implements cuda.Kernel.
func (k *Encode) RunCUDA(s *cuda.Stream) error {
	n := int(k.Lengths.Size() / 4)
	if n == 0 {
		return nil
	}
	if !CanEncode(k.Codec.Codec) {
		return fmt.Errorf("kernels: rows (%d bytes) of codec %s must be shorter than %d", k.Codec.RowBytes(), k.Codec.Name(), LongRow)
	}
	row, err := rowCodec(k.Codec, k.Codec.RowBytes(), 0)
	if err != nil {
		return err
	}
	args := EncodeArgs{
		Rows: k.Rows.Addr(), Stride: k.Stride, Lengths: k.Lengths.Addr(), Count: uint32(n),
		StageBytes: uint32((k.Codec.RowBytes() + stageSlack + 127) &^ 127), Codec: row,
	}
	warps := fitWarps(s, int(row.MetaBytes), 2*int(args.StageBytes))
	shared := int(row.MetaBytes) + warps*2*int(args.StageBytes)
	f := encodeKernels[variantOf(k.Codec.Form)]
	grid, err := residentOf(s, f, 32*warps, shared, n, warps)
	if err != nil {
		return err
	}
	return f.Launch(s, grid, 32*warps, shared, &args)
}

// RunCUDA implements cuda.Kernel.
func (k *SampleBytes) RunCUDA(s *cuda.Stream) error {
	rowBytes := k.Codec.RowBytes()
	row, err := rowCodec(k.Codec, rowBytes, 0)
	if err != nil {
		return err
	}
	n := int(k.Rows.Size()) / rowBytes
	f, shared := sampleBytesKernels[variantOf(k.Codec.Form)], int(row.MetaBytes)
	grid, err := resident(s, f, shared, n, blockThreads/32)
	if err != nil {
		return err
	}
	return f.Launch(s, grid, blockThreads, shared, &SampleBytesArgs{Rows: k.Rows.Addr(), Sum: k.Sum.Addr(), Count: uint32(n), Codec: row})
}
