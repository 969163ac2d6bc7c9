//go:build cuda && linux

package kernels

import (
	"fmt"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// encodeShapes are the kernels of one variant.
type encodeShapes struct {
	short, long *cuda.Function[abi.EncodeArgs]
}

var encodeKernels = map[variant]encodeShapes{}

func init() {
	modules := map[string]*cuda.Module{}
	for v, name := range variants {
		if v.chunk == 0 {
			continue
		}
		if modules[name] == nil {
			modules[name] = module("encode_" + name)
		}
		encodeKernels[v] = encodeShapes{
			cuda.NewFunction[abi.EncodeArgs](modules[name], fmt.Sprintf("encodex%d", v.steps)),
			cuda.NewFunction[abi.EncodeArgs](modules[name], fmt.Sprintf("encodeLongx%d", v.steps)),
		}
	}
}

// RunCUDA implements cuda.Kernel.
func (k *Encode) RunCUDA(s *cuda.Stream) error {
	if k.Count == 0 {
		return nil
	}
	row, err := rowCodec(k.Codec, k.Codec.RowBytes(), 0)
	if err != nil {
		return err
	}
	args := abi.EncodeArgs{
		Rows: k.Rows.Addr(), Stride: k.Stride, First: uint64(k.First), Count: uint32(k.Count), Codec: row,
		Totals: k.Totals.Addr(), Scratch: k.Scratch.Addr(),
	}
	if k.Bits.Size() != 0 { // an empty part of a buffer has an address
		args.Bits = k.Bits.Addr()
	}
	if k.Lengths.Size() != 0 {
		args.Lengths = k.Lengths.Addr()
	}
	if c, ok := codedKernels[k.Codec.Form.Kernel]; ok {
		return k.runCoded(s, c, &args)
	}
	shapes := encodeKernels[variantOf(k.Codec.Form)]
	if row.RowBytes >= abi.LongRow {
		return k.runLong(s, shapes.long, &args)
	}
	args.RowBytes = uint32((k.Codec.RowBytes() + stageSlack + 127) &^ 127)
	warps := fitWarps(s, int(row.MetaBytes), 2*int(args.RowBytes))
	shared := int(row.MetaBytes) + warps*2*int(args.RowBytes)
	f := shapes.short
	grid, err := residentOf(s, f, 32*warps, shared, int(k.Count), warps)
	if err != nil {
		return err
	}
	return f.Launch(s, grid, 32*warps, shared, &args)
}

func (k *Encode) runLong(s *cuda.Stream, f *cuda.Function[abi.EncodeArgs], args *abi.EncodeArgs) error {
	args.RowBytes = uint32(longRowScratch(k.Codec.RowBytes()))
	if need := EncodeScratchBytes(k.Codec.RowBytes(), k.Count); k.Scratch.Size() < need {
		return fmt.Errorf("kernels: scratch memory of encode (%d bytes) must be %d", k.Scratch.Size(), need)
	}
	threads := min(1024, (int(args.Codec.Quads)+31)&^31)
	shared := (4*threads + 4 + threads/8) * 4
	grid, err := residentOf(s, f, threads, shared, int(k.Count), 1)
	if err != nil {
		return err
	}
	return f.Launch(s, min(grid, maxEncodeBlocks), threads, shared, args)
}
