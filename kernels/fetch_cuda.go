//go:build cuda && linux

package kernels

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

var fetchKernels = functions[abi.FetchArgs]("fetch", "32", "Long")

// The decoder begins while misses are read, and needs more shared memory beside the reading than the reading does itself. Where the driver left
// room for the latter alone, most hits waited until all misses were there: 80 % hits of 200,000 rows took 459 instead of 421 µs at 512 bytes on an
// H200, and 865 instead of 796 at 1024; 95 % hits 190 instead of 160 at 512.
func init() {
	for _, shapes := range fetchKernels {
		shapes["32"].PreferShared()
	}
}

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
	if c, ok := codedKernels[k.Codec.Form.Kernel]; ok {
		return k.runCoded(s, c, &args, n)
	}
	rowBytes := k.Tier.RowBytes
	// A warp takes a row of any length: narrower tiles ask for lines one after the other, and were seen to be slower from
	// 256 bytes up (41 against 48 GB/s there).
	shape, stage, meta := "32", rowBytes, int(args.Codec.MetaBytes)
	if rowBytes >= abi.LongRow {
		shape, stage, meta = "Long", abi.SegmentQuads*16, 0
	}
	args.StageBytes = uint32((stage + stageSlack + 127) &^ 127)
	warps := fitWarps(s, meta, int(args.StageBytes))
	rows, shared := warps, meta+warps*int(args.StageBytes)
	if shape == "Long" {
		rows = 1
	}
	f := fetchKernels[variantOf(k.Codec.Form)][shape]
	grid, err := residentOf(s, f, 32*warps, shared, n, rows)
	if err != nil {
		return err
	}
	// A block on each multiprocessor keeps the link busy, and leaves room for the decoder.
	grid = min(grid, s.Device().Multiprocessors())
	return f.LaunchBegun(s, grid, 32*warps, shared, &args, k.Begun)
}

// ahead returns how many bytes of a compressed row in place to read first: what says how long it is at least.
func (h *HostRows) ahead(c Codec) uint32 { return uint32(max(h.Ahead, c.HeadBytes())) }

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
