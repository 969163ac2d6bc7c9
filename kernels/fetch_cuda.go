//go:build cuda && linux

package kernels

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// The shared memory beside a staged row's bytes: the rest of its first and last line, and what a window reads past its end.
const stageSlack = 2*128 + 32

// RunCUDA implements cuda.Kernel.
func (k *Fetch) RunCUDA(s *cuda.Stream) error {
	n := int(k.Misses.Size() / FoundBytes)
	if n == 0 {
		return nil
	}
	args, err := k.args()
	if err != nil {
		return err
	}
	c := kernelsOf(k.Codec)
	// A warp takes a row of any length: narrower tiles ask for lines one after the other, and were seen to be slower from
	// 256 bytes up (41 against 48 GB/s there).
	f, stage, long := c.fetch, k.Tier.RowBytes, k.Tier.RowBytes >= abi.LongRow
	if c.pairs && long { // a block takes a row, in segments
		f, stage = c.fetchLong, abi.SegmentQuads*16
	}
	args.StageBytes = uint32((stage + stageSlack + 127) &^ 127)
	scratch := int(args.Codec.Scratch)
	perWarp := int(args.StageBytes) + scratch
	c.metaInPlace(s, &args.Codec, perWarp)
	if !c.pairs && !fits(s, perWarp) { // a warp reads a row where it lies
		f, perWarp = c.fetchLong, scratch
	}
	meta := int(args.Codec.MetaBytes)
	if f == c.fetchLong {
		meta = 0
	}
	warps := fitWarps(s, meta, perWarp)
	rows, shared := warps, meta+warps*perWarp
	if c.pairs && long {
		rows = 1
	}
	grid, err := residentOf(s, f, 32*warps, shared, n, rows)
	if err != nil {
		return err
	}
	// A block on each multiprocessor keeps the link busy, and leaves room for the decoder.
	grid = min(grid, s.Device().Multiprocessors())
	return f.LaunchBegun(s, grid, 32*warps, shared, &args, k.Begun)
}

// ahead returns how many bytes of a compressed row in place to read first: what says how long it is at least.
func (h *HostRows) ahead(c Codec) uint32 { return uint32(max(h.Ahead, c.Form.Head)) }

func (k *Fetch) args() (abi.FetchArgs, error) {
	row, err := rowCodec(k.Codec, k.Tier.RowBytes, k.Out.Addr())
	args := abi.FetchArgs{
		Misses: k.Misses.Addr(), Step: FoundBytes, Counters: k.Counters.Addr(), Out: k.Out.Addr(), Tier: k.Tier.args(), Codec: row,
		Ahead: k.Tier.ahead(k.Codec), End: k.End.args(),
	}
	if k.AtBack {
		args.Misses += uint64(k.Misses.Size() - FoundBytes)
		args.Step = -FoundBytes
	}
	return args, err
}
