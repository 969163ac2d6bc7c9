//go:build cuda && linux

package kernels

import (
	"errors"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

var (
	shareKernels    = functions[abi.ShareFetchArgs]("share", "Fetch16", "Fetch32")
	shareOpenKernel = cuda.NewFunction[abi.ShareOpenArgs](shareKernels[variant{}]["Fetch32"].Module(), "shareOpenKernel")
)

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

// aloneUnit is the rows a unit of a batch that is not shared: neighbours' translations are shared in a multiprocessor.
const aloneUnit = 64

// RunCUDA implements cuda.Kernel.
func (k *ShareFetch) RunCUDA(s *cuda.Stream) error {
	n := int(k.Misses.Size() / FoundBytes)
	if n == 0 {
		return nil
	}
	if _, coded := codedKernels[k.Codec.Form.Kernel]; coded {
		if k.Share != nil {
			return errors.New("kernels: codec does not share misses")
		}
		return k.Fetch.RunCUDA(s)
	}
	fetch, err := k.args()
	if err != nil {
		return err
	}
	// Tiles of 16 lanes ask for two rows at once, where a row is no longer.
	shape, lanes := "Fetch32", 32
	if k.Tier.RowBytes <= 256 {
		shape, lanes = "Fetch16", 16
	}
	args := abi.ShareFetchArgs{Fetch: fetch, Share: abi.ShareArgs{Unit: aloneUnit}}
	blocks := shareBlocks(k.Tier.RowBytes)
	if k.Share != nil {
		args.Share, blocks = k.Share.args(), k.Share.Blocks
	}
	meta := int(fetch.Codec.MetaBytes)
	args.Fetch.StageBytes = uint32((k.Tier.RowBytes + 32 + stageSlack + 127) &^ 127)
	perWarp := 32 / lanes * int(args.Fetch.StageBytes)
	warps := fitWarps(s, meta, perWarp)
	f := shareKernels[variantOf(k.Codec.Form)][shape]
	if f == nil {
		return errors.New("kernels: codec does not run on GPUs")
	}
	return f.LaunchBegun(s, blocks, 32*warps, meta+warps*perWarp, &args, k.Begun)
}
