//go:build cuda && linux

package kernels

import (
	"fmt"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

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
	c := kernelsOf(k.Codec)
	if !Encodes(k.Codec.Form, k.Codec.RowBytes()) {
		return fmt.Errorf("kernels: codec %s does not encode rows of %d bytes on GPUs", k.Codec.Name(), args.Codec.RowBytes)
	}
	if row.RowBytes >= abi.LongRow {
		return k.runLong(s, c.encodeLong, &args)
	}
	args.Codec.Scratch = uint32(k.Codec.Form.EncodeScratch)
	args.RowBytes = (args.Codec.RowBytes + stageSlack + 127) &^ 127
	warps, shared := c.blockOf(s, &args.Codec, 2*int(args.RowBytes)+int(args.Codec.Scratch))
	grid, err := residentOf(s, c.encode, 32*warps, shared, int(k.Count), warps)
	if err != nil {
		return err
	}
	if k.Blocks > 0 {
		grid = min(grid, k.Blocks)
	}
	return c.encode.Launch(s, grid, 32*warps, shared, &args)
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
