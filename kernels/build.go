package kernels

import (
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
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

// BuildScratchBytes is the size of Build's scratch memory.
func BuildScratchBytes(l hashmap.Layout, entries int64) int64 {
	return entries*hashmap.SlotBytes + 2*buildAlign(int64(l.Homes)*4) + buildAlign(int64(buildParts(l))*4)
}

// CanBuild says whether Build takes so many entries.
func CanBuild(l hashmap.Layout, entries int64) bool {
	return entries < 1<<29 && l.Homes < 1<<29 && entries <= l.Slots()
}

func buildAlign(n int64) int64 { return (n + 127) &^ 127 }

func buildParts(l hashmap.Layout) int { return (int(l.Homes) + ScanPart - 1) / ScanPart }

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
