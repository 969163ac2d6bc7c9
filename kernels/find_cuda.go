//go:build cuda && linux

package kernels

import (
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// endBlocks is the most blocks of a kernel that Counters.batch can count: see publish.h. No GPU holds as many at a time.
const endBlocks = 1<<15 - 1

// RunCUDA implements cuda.Kernel. It is one launch if all of this holds, else three:
//   - the coder has a kernel for these rows that looks them up and decodes them (coder.pairs, coder.bytes): none has for rows that a whole
//     block decodes;
//   - no slab lies on another device: hits there are read from a list;
//   - a block has the shared memory for missed rows too.
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
	l := c.launchOf(s, &args, "find", 0)
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
			decoders = min(decoders, endBlocks)
			fetchers := limited(s.Device().Multiprocessors(), blockLimit) // a block on each keeps the link busy
			return f.Launch(s, decoders+fetchers, l.threads, shared, &abi.FindArgs{
				Lookup: k.Lookup.args(), Decode: args, Fetch: fetch, Decoders: uint32(decoders),
			})
		}
	}
	for _, stage := range []cuda.Kernel{&k.Lookup, hits, misses} {
		if err := stage.RunCUDA(s); err != nil {
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
