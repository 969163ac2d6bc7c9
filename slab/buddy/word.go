package buddy

import (
	"fmt"

	"github.com/tensorcache/tensorcache/slab"
)

// WordBytes is the size of a row's word. Words are little-endian.
const WordBytes = 8

// Word says where a row of a resident table lies, in which form. It is a location word (slab.Location) but for bit 0, which no location has
// set, as slots begin at multiples of 16:
//
//	 63              44 43 42 40 39                                  1 0
//	+------------------+--+-----+-------------------------------------+-+
//	|   stored length  |C |slab |            byte offset              |H|
//	+------------------+--+-----+-------------------------------------+-+
//
//	[0]     home: the row lies in its slot and its overflow place
//	[4:1]   if bit 0 is 1: the number of the row's range; bits 42:5 are zeros
//	[42:0]  if bit 0 is 0: slab ID and offset of a newer version of the row in the overlay, as in a location word
//	[43]    compressed
//	[63:44] compressed rows: stored length in bytes; raw rows: 0
type Word uint64

const home Word = 1

const (
	rangeShift      = 1
	compressedShift = 43
	lengthShift     = 44
)

// MaxRanges is the most ranges of a table: MaxRanges - 1 is the highest number.
const MaxRanges = 16

// Raw is the word of an uncompressed row in its slot and overflow place, in range 0.
const Raw = home

// Compressed returns the word of a row in its slot and overflow place, in range 0, that its table's codec stored in 1..slab.MaxStored bytes. It
// panics if stored is out of range.
func Compressed(stored int) Word { return Word(slab.Compressed(0, 0, stored)) | home }

// Home returns the word of a row in its slot and overflow place, in range 0.
func Home(stored int, compressed bool) Word {
	if compressed {
		return Compressed(stored)
	}
	return Raw
}

// In returns the word for another range. REQUIRES: w.IsHome().
func (w Word) In(number int) Word {
	return w&^((MaxRanges-1)<<rangeShift) | Word(number)<<rangeShift
}

// Range returns the number of the row's range. REQUIRES: w.IsHome().
func (w Word) Range() int { return int(w >> rangeShift & (MaxRanges - 1)) }

// At returns the word of a row whose newest version is elsewhere. REQUIRES: l.Valid().
func At(l slab.Location) Word { return Word(l) }

// IsHome reports whether the row lies in its slot and overflow place.
func (w Word) IsHome() bool { return w&home != 0 }

// Location returns where the row's newest version lies. REQUIRES: !w.IsHome().
func (w Word) Location() slab.Location { return slab.Location(w) }

// IsCompressed reports whether the row is stored as the codec's output.
func (w Word) IsCompressed() bool { return w>>compressedShift&1 != 0 }

// Stored returns the row's stored length in bytes, given its table's row bytes.
func (w Word) Stored(rowBytes int) int {
	if w.IsCompressed() {
		return int(w >> lengthShift)
	}
	return rowBytes
}

// String formats the word for logs and test failures.
func (w Word) String() string {
	if !w.IsHome() {
		return w.Location().String()
	}
	s := "home raw"
	if w.IsCompressed() {
		s = fmt.Sprintf("home compressed %d", w.Stored(0))
	}
	if n := w.Range(); n != 0 {
		s += fmt.Sprintf(" in range %d", n)
	}
	return s
}
