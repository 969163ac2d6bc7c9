// Package ndzip is ndzip (Knorr, Thoman, Fahringer, SC '21) as a row codec: words are stored as differences from the word
// before, a group of them at a time, without the bit positions that no difference of the group has.
//
// A row is words of W = 16, 32 or 64 bits, the element type's width. Each is rotated left by one, which makes the sign
// the lowest bit, and becomes its residual: the difference from the word before, the first word itself; if the residual's highest bit
// is set, all others are turned over. Groups of W words are coded; the words that do not fill a group, and the bytes that do not
// fill a word, are the remainder. A group's head is the OR of its residuals. For each bit b of the head that is set,
// from the highest down, there is a column: a word whose bit W-1-j is bit b of residual j.
//
// Stored form, little-endian words; with k whole groups in a row:
//
//	0          k·W/8
//	+----------+---------------------+---------------------+-----+------------------+
//	| heads of | columns of group 0, | columns of group 1, | ... | remainder, as it |
//	| k groups | popcount(head) of W | popcount(head) of W |     | is               |
//	+----------+---------------------+---------------------+-----+------------------+
//
// The stream form of ndzip's own programs is in stream.go, for data that are not rows.
//
// A [Codec] is immutable and safe for concurrent use.
package ndzip
