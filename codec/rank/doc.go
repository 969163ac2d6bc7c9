// Package rank stores the frequent values of an element's leading bits in few bits, in planes that are decoded without
// serial parsing. The method is this project's; docs/format/rank.md has the format and the reasons.
//
// An element of W bits, rotated left by rot (0, or 1 to bring a float's exponent to the top and its sign to the bottom), is
// a symbol, its T leading bits, and a rest, the other W - T. Over floats of a table symbols are few and skewed; rests are
// noise. Symbols are ranked by how often they occur, and the ranks are written in levels: level 0 has a digit of d0 bits for
// every element, which names one of the 2^d0 - 1 most frequent symbols or, all ones, passes the element on; level 1 has a
// digit of d1 bits for every element passed on, and so on; what all levels pass on is written as it is. An element's digit
// in a level is found by counting the elements before it that were passed on: a prefix sum, no parsing.
//
// Stored form: an optional length, then one bit stream, bit i being bit i mod 8 of byte i / 8, zero-padded to a byte.
//
//	+----------+-----------+-----------+-----+------------+---------+
//	| length   | segment 0 | segment 1 | ... | tail bytes | 0 to 7  |
//	| 0, 2, 3 B|           |           |     |            | zeros   |
//	+----------+-----------+-----------+-----+------------+---------+
//
//	a segment, of the n elements in 512 bytes of the row or of those that are left:
//	+-------------+------------------+-----+-------------------+-----------------+
//	| n × d0 bits | passed on × d1   | ... | passed on × T     | n × (W - T)     |
//	| level 0     | level 1          |     | symbols as such   | rests           |
//	+-------------+------------------+-----+-------------------+-----------------+
//
// length is the stored form's in bytes, little-endian: absent for rows below 256 bytes, 2 bytes below 64 KiB, else 3. Tail bytes
// are those of the row after its last whole element.
//
// A [Codec] is immutable and safe for concurrent use.
package rank
