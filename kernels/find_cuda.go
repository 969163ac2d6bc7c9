//go:build cuda && linux

package kernels

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// RunCUDA implements cuda.Kernel. It is three launches where hits have no kernel that looks rows up: blocks decode rows, rows of other devices
// are read, which is done from a list only, or it does not pay (coder.pairs and coder.bytes).
func (k *Find) RunCUDA(s *cuda.Stream) error {
	n := k.Lookup.numRows()
	hits, misses := k.hits(), k.misses()
	if n == 0 {
		return nil
	}
	args, err := hits.args(n)
	if err != nil {
		return err
	}
	c := kernelsOf(k.Codec)
	l := c.launchOf(s, &args, "find")
	f := c.find[l.name()]
	if f != nil && hits.Peers == 0 {
		fetch, err := misses.args()
		if err != nil {
			return err
		}
		if shared := c.fetchShared(s, &fetch, l.threads/32); fits(s, shared) {
			shared = max(shared, l.shared)
			decoders, err := residentOf(s, f, l.threads, shared, n, l.rows)
			if err != nil {
				return err
			}
			// A block on each multiprocessor keeps the link busy.
			return f.Launch(s, decoders+s.Device().Multiprocessors(), l.threads, shared, &abi.FindArgs{
				Lookup: k.Lookup.args(), Decode: args, Fetch: fetch, Decoders: uint32(decoders),
			})
		}
	}
	for _, k := range []cuda.Kernel{&k.Lookup, hits, misses} {
		if err := k.RunCUDA(s); err != nil {
			return err
		}
	}
	return nil
}

// fetchShared sets the shared memory of a missed row in args, shorter than abi.LongRow, and returns that of a block of so many warps.
func (c coder) fetchShared(s *cuda.Stream, args *abi.FetchArgs, warps int) int {
	args.StageBytes = uint32((int(args.Codec.RowBytes) + stageSlack + 127) &^ 127)
	perWarp := int(args.StageBytes) + int(args.Codec.Scratch)
	c.metaInPlace(s, &args.Codec, perWarp)
	return int(args.Codec.MetaBytes) + warps*perWarp
}
