// Package sparse is a row codec for rows most of whose elements have one value, or that have few distinct values: bags of words, one-hot and
// ternary features, counts. The method is this project's own; docs/format/sparse.md has the format and the reasons.
//
// The table has one background value, mostly 0. The other elements of a row are its entries. A row stores where its entries lie and what
// they are, for each segment of 4096 elements on its own:
//
//	+------------+-----------+-----------+-----+------------+
//	| headers    | segment 0 | segment 1 | ... | tail bytes |    one bit stream, padded with zeros to a byte;
//	|            |           |           |     | 0 to 7     |    bit i is bit i mod 8 of byte i / 8
//	+------------+-----------+-----------+-----+------------+
//
//	a header                               a segment
//	+-----------------+--------+           +-----------+---------+
//	| entries         | values |           | positions | values  |
//	| bits of length  | 7 bits |           |           |         |
//	+-----------------+--------+           +-----------+---------+
//
// Positions are those of the entries, or of the background elements if these are fewer: a sorted list in Elias and Fano's form, of about 2 +
// log2(elements ÷ positions) bits each, or a bitmap where that is shorter. Values are indices of a palette of the segment's own values, or a
// digit for the leading bits and the rest as it is, or the elements as they are. Everything's length follows from the headers.
//
// A [Codec] is immutable and safe for concurrent use.
package sparse
