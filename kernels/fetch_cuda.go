//go:build cuda && linux

package kernels

import "github.com/tensorcache/tensorcache/device/cuda"

var fetchKernels = functions[FetchArgs]("fetch", "32", "Long")

// The shared memory beside a staged row's bytes: the rest of its first and last line, and what a window reads past its end.
const stageSlack = 2*128 + 32

// RunCUDA implements cuda.Kernel.
func (k *Fetch) RunCUDA(s *cuda.Stream) error {
	n := int(k.Misses.Size() / FoundBytes)
	if n == 0 {
		return nil
	}
	rowBytes := k.Tier.RowBytes
	row, err := rowCodec(k.Codec, rowBytes, k.Out.Addr())
	if err != nil {
		return err
	}
	args := FetchArgs{
		Misses: k.Misses.Addr(), Step: FoundBytes, Counters: k.Counters.Addr(), Out: k.Out.Addr(), Tier: k.Tier.args(), Codec: row,
		Ahead: uint32(max(k.Tier.Ahead, (int(row.Chunks)+31)/32*4)),
	}
	if k.AtBack {
		args.Misses += uint64(k.Misses.Size() - FoundBytes)
		args.Step = -FoundBytes
	}
	// A warp takes a row of any length: narrower tiles ask for lines one after the other, and were seen to be slower from
	// 256 bytes up (41 against 48 GB/s there).
	shape, rows, stage := "32", blockThreads/32, rowBytes
	if rowBytes >= LongRow {
		shape, rows, stage = "Long", 1, SegmentQuads*16
	}
	args.StageBytes = uint32((stage + stageSlack + 127) &^ 127)
	shared := int(row.MetaBytes) + rows*int(args.StageBytes)
	if shape == "Long" {
		shared = blockThreads / 32 * int(args.StageBytes)
	}
	f := fetchKernels[variantOf(k.Codec.Form)][shape]
	grid, err := resident(s, f, shared, n, rows)
	if err != nil {
		return err
	}
	return f.Launch(s, grid, blockThreads, shared, &args)
}
