//go:build cuda && linux

package kernels

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

var shareOpenKernel = cuda.NewFunction[abi.ShareOpenArgs](module("shareOpen"), "shareOpenKernel")

func (s *Share) args() abi.ShareArgs {
	return abi.ShareArgs{
		Host: s.Host.Addr(), Device: s.Device.Addr(), List: s.List.Addr(), Stage: s.Stage.Addr(), Tier: s.Tier, Unit: uint32(s.Unit),
		Piece: uint32(s.Piece), Slot: uint32(s.Slot), Fraction: s.Fraction, MaxPieces: uint32(s.MaxPieces), Least: uint32(s.Least),
		Own: uint32(s.Own), TimeoutNanos: uint64(s.Timeout),
	}
}

// RunCUDA implements cuda.Kernel.
func (k *ShareOpen) RunCUDA(s *cuda.Stream) error {
	return shareOpenKernel.Launch(s, 1, 1, 0, &abi.ShareOpenArgs{Counters: k.Counters.Addr(), Share: k.args()})
}

// aloneUnit is the rows of a unit in a batch that is not shared. Rows of a unit lie near each other, so that a multiprocessor's address
// translations serve several.
const aloneUnit = 64

// RunCUDA implements cuda.Kernel.
func (k *ShareFetch) RunCUDA(s *cuda.Stream) error {
	n := int(k.Misses.Size() / FoundBytes)
	if n == 0 {
		return nil
	}
	fetch, err := k.args()
	if err != nil {
		return err
	}
	c := kernelsOf(k.Codec)
	lanes := c.shareTile(k.Tier.RowBytes)
	f := c.share[lanes]
	args := abi.ShareFetchArgs{Fetch: fetch, Share: abi.ShareArgs{Unit: aloneUnit}}
	blocks := shareBlocks(k.Tier.RowBytes)
	if k.Share != nil {
		args.Share, blocks = k.Share.args(), k.Share.Blocks
	}
	if blocks == 0 {
		blocks = limited(s.Device().Multiprocessors(), blockLimit)
		args.Share.Own = uint32(blocks)
	}
	blocks = limited(blocks, blockLimit)
	if k.Tier.RowBytes > abi.ShareRow {
		f = c.shareLong
	}
	args.Fetch.StageBytes = uint32((k.Tier.RowBytes + 32 + stageSlack + 127) &^ 127)
	warps, shared := c.blockOf(s, &args.Fetch.Codec, 32/lanes*int(args.Fetch.StageBytes+args.Fetch.Codec.Scratch))
	return f.LaunchBegun(s, blocks, 32*warps, abi.ShareHead+shared, &args, k.Begun)
}
