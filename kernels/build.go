package kernels

import (
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// Build fills a hashmap with entries, to the bytes of hashmap.Map.Build. Where entries do not fit their probes, or keys are
// given twice, it only counts them in Failed, and the map is not to be used: the host's Build knows what to do.
type Build struct {
	Map    device.Buffer
	Layout hashmap.Layout
	// Entries holds hashmap.Entry values, fewer than 2^29 and than there are slots. Scratch has ScratchBytes.
	Entries, Scratch device.Buffer
	// Failed receives 32 bits.
	Failed device.Buffer
}

// ScratchBytes returns the size of Scratch for that many entries, in bytes. It needs Layout only.
func (k *Build) ScratchBytes(entries int64) int64 { return newBuildScratch(k.Layout, entries).bytes }

// Fits reports whether Build takes that many entries. It needs Layout only.
func (k *Build) Fits(entries int64) bool {
	return entries < 1<<29 && k.Layout.Buckets < 1<<29 && entries <= k.Layout.Slots()
}

// buildRounds is how many rounds Build tries before it leaves the map to the host. At Load 5 M entries take 19, and one more
// for each factor of two or three.
const buildRounds = 32

// buildScratch is where Build's scratch memory has what; starts come at 0.
type buildScratch struct {
	sorted, starts, ends, sums, lengths, pending, wants, bytes int64
	room                                                       int64 // for pending entries
}

func newBuildScratch(l hashmap.Layout, entries int64) (s buildScratch) {
	at := func(n int64) int64 {
		at := s.bytes
		s.bytes += (n + 127) &^ 127
		return at
	}
	// At Load one entry of eight finds its home full.
	s.room = entries/4 + 1024
	s.starts, s.ends = at(int64(l.Buckets)*4), at(int64(l.Buckets)*4)
	s.sorted, s.sums, s.lengths = at(entries*hashmap.SlotBytes), at(int64(buildParts(l))*4), at(4*(buildRounds+1))
	s.pending, s.wants = at(2*4*s.room), at(s.room*abi.BuildWantBytes)
	return s
}

func buildParts(l hashmap.Layout) int { return (int(l.Buckets) + abi.ScanPart - 1) / abi.ScanPart }

// Name implements device.Kernel.
func (k *Build) Name() string { return "build" }

// RunHost implements device.Kernel.
func (k *Build) RunHost(device.Workers) {
	failed := view[uint32](k.Failed)
	rejected, err := hashmap.View(k.Map.Bytes(), k.Layout).Build(view[hashmap.Entry](k.Entries))
	failed[0] = uint32(len(rejected))
	if err != nil {
		failed[0]++
	}
}
