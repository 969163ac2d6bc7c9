//go:build cuda && linux

package kernels

import (
	"fmt"
	"math"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// runResident is RunCUDA for a resident table: the batch is one launch, whatever the rows' length. of is the captured batch that it is, or nil. It
// returns the blocks of the launch.
func (k *Serve) runResident(s *cuda.Stream, of *Replay) (blocks int, err error) {
	r, n := k.Resident, k.Lookup.numRows()
	if r.RowBytes != k.Lookup.RowBytes {
		return 0, fmt.Errorf("kernels: resident row (%d bytes) must be as long as the output's (%d)", r.RowBytes, k.Lookup.RowBytes)
	}
	row, err := rowCodec(k.Codec, r.RowBytes, k.Lookup.Out.Addr())
	if err != nil {
		return 0, err
	}
	args := abi.BuddyArgs{
		Decode: abi.DecodeArgs{Found: k.Lookup.Rows.Addr(), Counters: k.Lookup.Counters.Addr(), Out: k.Lookup.Out.Addr(), Codec: row, Count: uint32(n)},
		Magic:  math.MaxUint64/uint64(r.Devices) + 1, Limit: k.Lookup.Limit,
		Devices: uint32(r.Devices), Peers: uint32(k.Lookup.Peers),
	}
	if k.Lookup.Int32 {
		args.Narrow = 1
	}
	for i, b := range k.Slabs {
		args.Decode.Slabs[i] = b.Addr()
	}
	for d := range r.Devices {
		args.Words[d] = r.Words[d].Addr()
	}
	r.rangesArgs(&args, of != nil)
	c := kernelsOf(k.Codec)
	as := c.coder
	switch r.Kernel {
	case WideKernel:
		as.leastDouble = mostDouble + 1
	case DoubleKernel:
		as.leastDouble = 1
	}
	l := as.launchOf(s, &args.Decode, "buddy", 0)
	f := c.buddy[l.name()]
	if blocks, err = residentOf(s, f, l.threads, l.shared, n, l.rows); err != nil {
		return 0, err
	}
	blocks = min(blocks, endBlocks)
	if of != nil {
		args.State, args.Views, args.Blocks = of.State.Addr(), of.Views.Addr(), uint32(blocks)
		if err := of.poolOffsets(s, blocks); err != nil {
			return 0, err
		}
	} else {
		end := Ending{Result: k.Result, Batch: k.Batch, Kernels: 1}
		args.Decode.End = end.args()
	}
	return blocks, f.Launch(s, blocks, l.threads, l.shared, &args)
}
