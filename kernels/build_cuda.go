//go:build cuda && linux

package kernels

import (
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/abi"
)

var buildModule = module("build")

func buildFunction(name string) *cuda.Function[abi.BuildArgs] {
	return cuda.NewFunction[abi.BuildArgs](buildModule, "build"+name+"Kernel")
}

var (
	buildCount = buildFunction("Count")
	buildPlace = buildFunction("Place")
	buildSort  = buildFunction("Sort")
	buildClaim = buildFunction("Claim")
	buildTake  = buildFunction("Take")
	buildEnd   = buildFunction("End")
	// A scan in three passes: sum the parts, scan the sums, scan the parts.
	buildSums = [3]*cuda.Function[abi.BuildArgs]{buildFunction("SumParts"), buildFunction("SumSums"), buildFunction("SumApply")}
)

// RunCUDA implements cuda.Kernel.
func (k *Build) RunCUDA(s *cuda.Stream) error {
	n := k.Entries.Size() / hashmap.SlotBytes
	if !k.Fits(n) {
		return fmt.Errorf("kernels: hashmap of %d buckets cannot be built of %d entries here", k.Layout.Buckets, n)
	}
	at, buckets := newBuildScratch(k.Layout, n), int64(k.Layout.Buckets)
	addr := k.Scratch.Addr()
	starts, ends := k.Scratch.Slice(at.starts, at.starts+buckets*4), k.Scratch.Slice(at.ends, at.ends+buckets*4)
	// Claims take the place of starts and ends, which are done with by then.
	claims := k.Scratch.Slice(at.starts, at.starts+buckets*8)
	args := abi.BuildArgs{
		Map: k.Map.Addr(), Entries: k.Entries.Addr(), Sorted: addr + uint64(at.sorted), Starts: starts.Addr(), Ends: ends.Addr(),
		Sums: addr + uint64(at.sums), Failed: k.Failed.Addr(), Pending: addr + uint64(at.pending), Lengths: addr + uint64(at.lengths),
		Wants: addr + uint64(at.wants), Claims: claims.Addr(), Room: uint32(at.room), Count: uint32(n), Buckets: k.Layout.Buckets, Parts: uint32(buildParts(k.Layout)),
	}
	each := func(f *cuda.Function[abi.BuildArgs], work int64) error {
		return launchResident(s, f, blockThreads, 0, int(work), blockThreads, &args)
	}
	if err := errors.Join(
		s.Fill(k.Map, 0xff), s.Fill(k.Failed, 0), s.Fill(starts, 0), s.Fill(k.Scratch.Slice(at.lengths, at.lengths+4*(buildRounds+1)), 0),
		each(buildCount, n),
		buildSums[0].Launch(s, int(args.Parts), 1024, 0, &args),
		buildSums[1].Launch(s, 1, 1024, 0, &args),
		buildSums[2].Launch(s, int(args.Parts), 1024, 0, &args),
		s.Copy(ends, starts),
		each(buildPlace, n),
		each(buildSort, buckets),
		s.Fill(claims, 0xff),
	); err != nil {
		return err
	}
	grid, err := residentOf(s, buildClaim, blockThreads, 0, int(at.room), blockThreads)
	if err != nil {
		return err
	}
	for args.Round = 0; args.Round < buildRounds; args.Round++ {
		if err := errors.Join(
			buildClaim.Launch(s, grid, blockThreads, 0, &args),
			buildTake.Launch(s, grid, blockThreads, 0, &args),
		); err != nil {
			return err
		}
	}
	return buildEnd.Launch(s, 1, 1, 0, &args)
}
