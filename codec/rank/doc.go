// Package rank is a row codec that stores the frequent values of the elements' leading bits in few bits, in bit planes that
// are decoded without serial parsing. The method is this project's own; docs/format/rank.md has the format and the reasons.
//
// An element has W bits. It is rotated left by rot bits: 0, or 1 to move a float's exponent to the top and its sign to the
// bottom. Its T leading bits are its symbol, the other W - T its rest. In a table of floats few symbols are frequent, while
// rests are noise. Symbols are ranked by frequency, and ranks are stored in levels of fixed-length digits. Level 0 has a digit
// of d0 bits for every element. It names one of the 2^d0 - 1 most frequent symbols, or is all ones, which passes the element
// on to the next level. Level 1 has a digit of d1 bits for every element passed on, and so on. The symbol of an element that
// the last level passes on is stored as it is. The position of an element's digit in a level is the number of elements before
// it that were passed on: a prefix sum.
//
// The stored form is an optional length and one bit stream. Bit i of the stream is bit i mod 8 of byte i / 8.
//
//	+----------+-----------+-----------+-----+------------+---------+
//	| length   | segment 0 | segment 1 | ... | tail bytes | 0 to 7  |
//	| 0, 2, 3 B|           |           |     |            | zeros   |
//	+----------+-----------+-----------+-----+------------+---------+
//
//	a segment: the n elements in 512 bytes of the row, or fewer at its end
//	+-------------+------------------+-----+-------------------+-----------------+
//	| n × d0 bits | passed on × d1   | ... | passed on × T     | n × (W - T)     |
//	| level 0     | level 1          |     | symbols as such   | rests           |
//	+-------------+------------------+-----+-------------------+-----------------+
//
// length is the stored form's length in bytes, little-endian. Rows below 256 bytes have none, rows below 64 KiB have 2 bytes,
// longer rows 3. Tail bytes are the row's bytes after its last whole element.
//
// A [Codec] is immutable and safe for concurrent use.
package rank
