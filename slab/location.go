package slab

import "fmt"

// Location is the packed 64-bit word that says where a cached row lies, or why the row is not cached.
//
//	 63              44 43 42 40 39                                    0
//	+------------------+--+-----+---------------------------------------+
//	|   stored length  |C |slab |              byte offset              |
//	+------------------+--+-----+---------------------------------------+
//
//	[39:0]  byte offset of the slot in its slab, a multiple of Align
//	[42:40] slab ID
//	[43]    compressed: the slot holds the codec's output; else the row as it is
//	[63:44] compressed rows: stored length in bytes, 1..MaxStored; raw rows: 0 (the table knows the length)
//
// A word whose bits [63:44] are all ones is no location: bits [7:0] are the [Reason], and the other bits are ones. No stored
// length has this pattern, because a compressed row is shorter than its table's row, which has at most 1 MiB - 1 bytes.
// The word is stored little-endian. The packed host tier's index uses the same word with slab ID 0.
type Location uint64

// Limits of a location word's fields.
const (
	offsetBits = 40
	slabBits   = 3
	lengthBits = 20

	slabShift       = offsetBits
	compressedShift = offsetBits + slabBits
	lengthShift     = compressedShift + 1

	// MaxStored is the longest stored length of a compressed row, in bytes.
	MaxStored = 1<<lengthBits - 2
	// MaxRowBytes is the longest row, in bytes.
	MaxRowBytes = 1<<lengthBits - 1
)

// Reason says why a row has no location. If several apply, the largest value is reported.
type Reason uint8

const (
	Cold        Reason = iota // never offered to admission
	Rejected                  // admission declined the row, or the hashmap was full
	Evicted                   // the row was cached and replaced by another
	Invalidated               // the caller invalidated the row
	Oversize                  // the row's slot is larger than a slab
	NumReasons  = 5
)

var reasonNames = [NumReasons]string{"cold", "rejected", "evicted", "invalidated", "oversize"}

// String returns the reason's name as it appears in statistics and reports.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

const noLocation = Location(1<<lengthBits-1) << lengthShift

// NoLocation returns the word for a row that is not cached.
func NoLocation(why Reason) Location { return ^Location(0xff) | Location(why) }

// Raw returns the location of an uncompressed row. It panics if the slab ID or the offset is out of range.
func Raw(slabID int, offset int64) Location { return pack(slabID, offset) }

// Compressed returns the location of a row that its table's codec stored in 1..MaxStored bytes. It panics if a field is out
// of range.
func Compressed(slabID int, offset int64, stored int) Location {
	if stored < 1 || stored > MaxStored {
		panic(fmt.Sprintf("slab: stored length (%d) must be 1..%d", stored, MaxStored))
	}
	return pack(slabID, offset) | 1<<compressedShift | Location(stored)<<lengthShift
}

func pack(slabID int, offset int64) Location {
	if uint(slabID) >= MaxSlabs {
		panic(fmt.Sprintf("slab: slab ID (%d) must be 0..%d", slabID, MaxSlabs-1))
	}
	if uint64(offset) >= MaxBytes {
		panic(fmt.Sprintf("slab: offset (%d) must be 0..%d", offset, int64(MaxBytes-1)))
	}
	return Location(slabID)<<slabShift | Location(offset)
}

// Valid reports whether the word is a location.
func (l Location) Valid() bool { return l&noLocation != noLocation }

// Reason returns why there is no location. REQUIRES: !l.Valid().
func (l Location) Reason() Reason { return Reason(l & 0xff) }

// Offset returns the slot's byte offset in its slab. REQUIRES: l.Valid().
func (l Location) Offset() int64 { return int64(l & (1<<offsetBits - 1)) }

// Slab returns the slab ID. REQUIRES: l.Valid().
func (l Location) Slab() int { return int(l >> slabShift & (MaxSlabs - 1)) }

// Compressed reports whether the slot holds the codec's output. REQUIRES: l.Valid().
func (l Location) Compressed() bool { return l>>compressedShift&1 != 0 }

// Stored returns the row's stored length in bytes, given its table's row bytes. REQUIRES: l.Valid().
func (l Location) Stored(rowBytes int) int {
	if l.Compressed() {
		return int(l >> lengthShift)
	}
	return rowBytes
}

// String formats the word for logs and test failures.
func (l Location) String() string {
	switch {
	case !l.Valid():
		return "none:" + l.Reason().String()
	case l.Compressed():
		return fmt.Sprintf("slab %d+%d compressed %d", l.Slab(), l.Offset(), int(l>>lengthShift))
	default:
		return fmt.Sprintf("slab %d+%d raw", l.Slab(), l.Offset())
	}
}
