// Package ndzip is ndzip (Knorr, Thoman, Fahringer, SC '21) as a row codec. It stores the differences of neighbouring words in
// groups, without the bit positions that are zero in all differences of a group.
//
// A row is words of W = 16, 32 or 64 bits, the element type's width. Each word is rotated left by one, which makes the sign
// its lowest bit. Its residual is the difference from the word before, or the word itself if it is the first. If the highest
// bit of a residual is set, all its other bits are inverted. Groups of W words are coded. Words that do not fill a group, and
// bytes that do not fill a word, are the remainder. A group's head is the OR of its residuals. For each set bit b of the head,
// from the highest down, the group has a column: a word whose bit W-1-j is bit b of residual j.
//
// Stored form, little-endian words; with k whole groups in a row:
//
//	0          k·W/8
//	+----------+---------------------+---------------------+-----+------------------+
//	| heads of | columns of group 0, | columns of group 1, | ... | remainder, as it |
//	| k groups | popcount(head) of W | popcount(head) of W |     | is               |
//	+----------+---------------------+---------------------+-----+------------------+
//
// A [Codec] is immutable and safe for concurrent use.
package ndzip
