package hashmap

import (
	"fmt"
	"math/bits"

	"github.com/tensorcache/tensorcache/slab"
)

const (
	// BucketSlots is the number of slots of a bucket.
	BucketSlots = 4
	// SlotBytes is the size of a slot: a key and a location.
	SlotBytes = 16
	// BucketBytes is the size and alignment of a bucket.
	BucketBytes = BucketSlots * SlotBytes
	// MaxProbe is how many buckets after its home a key may lie. At a load of 0.9 the longest of 20 M keys' probes is 20.
	MaxProbe = 32
	// Load is the load that LayoutFor sizes for: 20 bytes an entry.
	Load = 0.8

	// EmptyKey marks a slot that was never used.
	EmptyKey = ^uint64(0)
	// deletedKey marks a slot whose key was deleted.
	deletedKey = EmptyKey - 1
	// reclaimed is the location of a deleted slot that may be used again.
	reclaimed = ^slab.Location(0)

	// MaxTables is the number of tables a key can name.
	MaxTables = 256
	// MaxRows is the number of rows of a table that keys can name; the last two of table 255 would be reserved keys.
	MaxRows = 1<<56 - 2
)

// Key returns the key of a row. REQUIRES: 0 ≤ table < MaxTables, 0 ≤ row < MaxRows.
func Key(table int, row int64) uint64 { return uint64(table)<<56 | uint64(row) }

// SplitKey returns the table and row of a key.
func SplitKey(key uint64) (table int, row int64) { return int(key >> 56), int64(key & (1<<56 - 1)) }

// Hash mixes a key's bits; it is a bijection (the finaliser of MurmurHash3). The upper half picks the home bucket, the
// lower half the slab: see Owner.
func Hash(key uint64) uint64 {
	key ^= key >> 33
	key *= 0xff51afd7ed558ccd
	key ^= key >> 33
	key *= 0xc4ceb9fe1a85ec53
	return key ^ key>>33
}

// Owner returns which of n slabs a key's row lies in when rows are partitioned by hash.
func Owner(key uint64, n int) int { return int(Hash(key) & 0xffffffff * uint64(n) >> 32) }

// Layout is the geometry of a map.
type Layout struct {
	Homes   uint32 // buckets that a hash can pick
	Buckets uint32 // home buckets and tail
}

// LayoutFor returns the layout for the given number of entries at the load Load.
func LayoutFor(entries int64) Layout {
	const slotsPerTen = Load * 10 * BucketSlots
	homes := max(1, (10*entries+slotsPerTen-1)/slotsPerTen)
	if homes > 1<<32-1-MaxProbe {
		panic(fmt.Sprintf("hashmap: entries (%d) must be fewer than 2^33", entries))
	}
	return Layout{Homes: uint32(homes), Buckets: uint32(homes + min(MaxProbe, 1+homes/16))}
}

// Bytes is the size of the map's memory.
func (l Layout) Bytes() int64 { return int64(l.Buckets) * BucketBytes }

// Slots is the number of slots.
func (l Layout) Slots() int64 { return int64(l.Buckets) * BucketSlots }

// home returns the bucket where a probe for the hash begins. It grows with the hash, so that sorting by hash sorts by
// home.
func (l Layout) home(hash uint64) uint32 {
	hi, _ := bits.Mul64(hash&^0xffffffff, uint64(l.Homes))
	return uint32(hi)
}

// last returns the last bucket of a probe that begins at home.
func (l Layout) last(home uint32) uint32 { return min(home+MaxProbe, l.Buckets-1) }
