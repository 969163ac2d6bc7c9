package kernels

import (
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// Insert puts entries into a hashmap under its writer's rules, in their order. Lookups may run meanwhile, other writers
// not.
type Insert struct {
	Map    device.Buffer
	Layout hashmap.Layout
	// Entries holds hashmap.Entry values. Results receives 1 in 32 bits for each that was put, 0 for each that found no
	// slot.
	Entries, Results device.Buffer
}

// Name implements device.Kernel.
func (k *Insert) Name() string { return "insert" }

// RunHost implements device.Kernel.
func (k *Insert) RunHost(device.Workers) {
	m, results := hashmap.View(k.Map.Bytes(), k.Layout), view[uint32](k.Results)
	for i, e := range view[hashmap.Entry](k.Entries) {
		results[i] = 0
		if m.Insert(e.Key, e.Location) {
			results[i] = 1
		}
	}
}

// Erase withdraws the locations of keys, which are distinct, with a reason for later misses.
type Erase struct {
	Map    device.Buffer
	Layout hashmap.Layout
	// Keys holds keys of 64 bits. Results receives 1 in 32 bits for each that is in the map, else 0.
	Keys, Results device.Buffer
	Reason        slab.Reason
}

// Name implements device.Kernel.
func (k *Erase) Name() string { return "erase" }

// RunHost implements device.Kernel.
func (k *Erase) RunHost(device.Workers) {
	m, results := hashmap.View(k.Map.Bytes(), k.Layout), view[uint32](k.Results)
	for i, key := range view[uint64](k.Keys) {
		results[i] = 0
		if m.Erase(key, k.Reason) {
			results[i] = 1
		}
	}
}
