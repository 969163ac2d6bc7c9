//go:build cuda && linux

package kernels

import (
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/hashmap"
)

var buildModule = module("build")

func buildFunction(name string) *cuda.Function[BuildArgs] {
	return cuda.NewFunction[BuildArgs](buildModule, "build"+name+"Kernel")
}

var (
	buildCount = buildFunction("Count")
	buildPlace = buildFunction("Place")
	buildSort  = buildFunction("Sort")
	buildWrite = buildFunction("Write")
	// Scans, each in three passes: sum the parts, scan the sums, scan the parts.
	buildSums = [3]*cuda.Function[BuildArgs]{buildFunction("SumParts"), buildFunction("SumSums"), buildFunction("SumApply")}
	buildMaxs = [3]*cuda.Function[BuildArgs]{buildFunction("MaxParts"), buildFunction("MaxSums"), buildFunction("MaxApply")}
)

// RunCUDA implements cuda.Kernel.
func (k *Build) RunCUDA(s *cuda.Stream) error {
	n := k.Entries.Size() / hashmap.SlotBytes
	if !CanBuild(k.Layout, n) {
		return fmt.Errorf("kernels: hashmap of %d homes cannot be built of %d entries here", k.Layout.Homes, n)
	}
	homes, parts := int64(k.Layout.Homes)*4, buildParts(k.Layout)
	at := n * hashmap.SlotBytes
	starts := k.Scratch.Slice(at, at+homes)
	at += buildAlign(homes)
	ends := k.Scratch.Slice(at, at+homes)
	at += buildAlign(homes)
	args := BuildArgs{
		Map: k.Map.Addr(), Entries: k.Entries.Addr(), Sorted: k.Scratch.Addr(), Starts: starts.Addr(), Ends: ends.Addr(),
		Sums: k.Scratch.Addr() + uint64(at), Failed: k.Failed.Addr(), Count: uint32(n), Homes: k.Layout.Homes,
		Buckets: k.Layout.Buckets, Parts: uint32(parts),
	}
	each := func(f *cuda.Function[BuildArgs], work int64) error {
		grid, err := resident(s, f, 0, int(work), blockThreads)
		if err != nil {
			return err
		}
		return f.Launch(s, grid, blockThreads, 0, &args)
	}
	scan := func(passes [3]*cuda.Function[BuildArgs]) error {
		return errors.Join(
			passes[0].Launch(s, parts, 1024, 0, &args),
			passes[1].Launch(s, 1, 1024, 0, &args),
			passes[2].Launch(s, parts, 1024, 0, &args),
		)
	}
	return errors.Join(
		s.Fill(k.Map, 0xff), s.Fill(k.Failed, 0), s.Fill(starts, 0),
		each(buildCount, n),
		scan(buildSums),
		s.Copy(ends, starts),
		each(buildPlace, n),
		each(buildSort, homes/4),
		scan(buildMaxs),
		each(buildWrite, n),
	)
}
