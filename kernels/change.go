package kernels

import (
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
)

// Store stores words of 64 bits where lookups and fetches load them, each by one store and in any order: words of a
// hashmap, of row bits or of an index. What readers must see in an order takes several, launched in that order.
type Store struct {
	// Target is the memory. Words holds pairs of 64 bits, a word's index in it and its value, the indices distinct; those
	// beyond Target are ignored.
	Target, Words device.Buffer
}

// Name implements device.Kernel.
func (k *Store) Name() string { return "store" }

// RunHost implements device.Kernel.
func (k *Store) RunHost(w device.Workers) {
	target, words := view[uint64](k.Target), view[uint64](k.Words)
	w.For(len(words)/2, 8192, func(from, to int) {
		for i := 2 * from; i < 2*to; i += 2 {
			if words[i] < uint64(len(target)) {
				atomic.StoreUint64(&target[words[i]], words[i+1])
			}
		}
	})
}

// Scatter copies rows to slots of a slab that no other kernel reads meanwhile.
type Scatter struct {
	Slab device.Buffer
	// Stage holds the rows and Items the ScatterItems that say where they go; both are page-locked. A row begins at a
	// multiple of 16 bytes and has room up to the next one after its end.
	Stage, Items device.Buffer
}

// Name implements device.Kernel.
func (k *Scatter) Name() string { return "scatter" }

// RunHost implements device.Kernel.
func (k *Scatter) RunHost(w device.Workers) {
	mem, stage, items := k.Slab.Bytes(), k.Stage.Bytes(), view[ScatterItem](k.Items)
	w.For(len(items), 2048, func(from, to int) {
		for _, item := range items[from:to] {
			copy(mem[item.To:], stage[item.From:][:item.Bytes])
		}
	})
}

// ScatterItem is one row that Scatter copies. To is the row's slot in Slab, and From its place in Stage, a multiple of 16; both are offsets
// in bytes. Bytes is the length to copy.
type ScatterItem abi.ScatterItem

// ScatterItemsView views a buffer as the items of a Scatter.
func ScatterItemsView(b device.Buffer) []ScatterItem { return view[ScatterItem](b) }
