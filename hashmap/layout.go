package hashmap

import (
	"fmt"

	"github.com/tensorcache/tensorcache/slab"
)

const (
	// BucketSlots is the number of slots of a bucket.
	BucketSlots = 4
	// SlotBytes is the size of a slot: a key and a location.
	SlotBytes = 16
	// BucketBytes is the size and alignment of a bucket.
	BucketBytes = BucketSlots * SlotBytes
	// MaxProbe is the largest number of hops from a key's home bucket to its slot. Measured maxima: 8 hops among 20 M
	// keys at load 0.8, 12 among 4 M keys at load 0.9.
	MaxProbe = 15
	// Load is the share of slots in use that LayoutFor sizes for. It takes 20 bytes an entry.
	Load = 0.8
	// EntryBytes is what an entry of a map of that load takes, in bytes.
	EntryBytes = SlotBytes / Load

	// EmptyKey marks a slot that was never used.
	EmptyKey = ^uint64(0)
	// deletedKey, with any hints, marks a slot whose key was deleted.
	deletedKey = EmptyKey - 1
	// reclaimed is the location of a deleted slot that may be used again.
	reclaimed = ^slab.Location(0)

	// MaxTables is the number of tables a key can name.
	MaxTables = 256
	// MaxRows is the number of rows of a table that keys can name. The last two row numbers would give reserved keys in
	// table 255.
	MaxRows = 1<<hintShift - 2
)

// The key word of each slot holds two hints.
const (
	hintShift = 50
	hintWidth = 3
	// noHint says that no key of the group has overflowed. Empty slots have it.
	noHint = 1<<hintWidth - 1
	// hintBits masks the hints in a key word.
	hintBits = uint64(1<<(2*hintWidth)-1) << hintShift
	groups   = 2 * BucketSlots
)

// Key returns the key of a row. REQUIRES: 0 ≤ table < MaxTables, 0 ≤ row < MaxRows.
func Key(table int, row int64) uint64 { return uint64(table)<<56 | uint64(row) }

// SplitKey returns the table and row of a key.
func SplitKey(key uint64) (table int, row int64) { return int(key >> 56), int64(key & (1<<56 - 1)) }

// isKey reports whether Key can return the value.
func isKey(key uint64) bool { return key&hintBits == 0 && key|hintBits < deletedKey }

// Hash is the finaliser of MurmurHash3, a bijection. The upper half of the result selects the home bucket. The lower half
// selects the slab (see package placement), the group, and the buckets after the home bucket.
func Hash(key uint64) uint64 {
	key ^= key >> 33
	key *= 0xff51afd7ed558ccd
	key ^= key >> 33
	key *= 0xc4ceb9fe1a85ec53
	return key ^ key>>33
}

// Unhash returns the key that has a hash.
func Unhash(hash uint64) (key uint64) {
	hash ^= hash >> 33
	hash *= 0x9cb4b2f8129337db // the inverse, modulo 2^64, of Hash's second factor
	hash ^= hash >> 33
	hash *= 0x4f74430c22a54005
	return hash ^ hash>>33
}

// Layout is the geometry of a map.
type Layout struct {
	Buckets uint32
}

// slotsPerTen is how many entries ten buckets are made for.
const slotsPerTen = Load * 10 * BucketSlots

// EntriesIn returns the most entries whose layout takes at most so many bytes.
func EntriesIn(bytes int64) int64 {
	return min(max(0, bytes/BucketBytes), 1<<32-1) * slotsPerTen / 10
}

// LayoutFor returns the layout for a number of entries at load [Load].
func LayoutFor(entries int64) Layout {
	buckets := max(1, (10*entries+slotsPerTen-1)/slotsPerTen)
	if buckets > 1<<32-1 {
		panic(fmt.Sprintf("hashmap: entries (%d) must be fewer than 2^33", entries))
	}
	return Layout{Buckets: uint32(buckets)}
}

// Bytes is the size of the map's memory.
func (l Layout) Bytes() int64 { return int64(l.Buckets) * BucketBytes }

// Slots is the number of slots.
func (l Layout) Slots() int64 { return int64(l.Buckets) * BucketSlots }

// home returns the bucket where a probe begins. It is monotonic in the hash: sorting by hash sorts by home bucket.
func (l Layout) home(hash uint64) uint32 { return uint32(hash >> 32 * uint64(l.Buckets) >> 32) }

// probe walks the buckets where a key may lie.
type probe struct {
	buckets uint32 // of the map
	low     uint32 // the lower half of the hash
	bucket  uint32
	hops    uint32
}

func (l Layout) probe(hash uint64) probe {
	return probe{buckets: l.Buckets, low: uint32(hash), bucket: l.home(hash)}
}

// next returns the bucket that a hint leads to. The number of hops is part of the function, so that a probe does not cycle.
func (p *probe) next(hint uint32) uint32 {
	mixed := p.low*0x9e3779b1 + (p.hops<<hintWidth|hint)*0x85ebca6b
	return uint32(uint64(mixed) * uint64(p.buckets) >> 32)
}

// follow moves the probe along a hint. It returns false where the probe ends.
func (p *probe) follow(hint uint32) bool {
	if hint == noHint || p.hops == MaxProbe {
		return false
	}
	p.bucket = p.next(hint)
	p.hops++
	return true
}

// hintAt locates the hint of the probe's group: the index of its key word in a bucket, and its shift in that word.
func (p *probe) hintAt() (word int, shift uint32) {
	group := p.low % groups
	return int(group &^ 1), hintShift + hintWidth*(group&1)
}

func (p *probe) hint(word uint64) uint32 {
	_, shift := p.hintAt()
	return uint32(word>>shift) & noHint
}

// withHint returns the key word with the hint of the probe's group set.
func (p *probe) withHint(word uint64, hint uint32) uint64 {
	_, shift := p.hintAt()
	return word&^(noHint<<shift) | uint64(hint)<<shift
}
