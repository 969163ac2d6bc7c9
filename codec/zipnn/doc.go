// Package zipnn is ZipNN's idea (Hershcovitch et al., 2024) made for rows: an element's exponent, brought to the top, and
// its other bytes are coded apart, by Huffman codes where that pays.
//
// Elements are reordered to exponent, sign, mantissa (a [Layout] says how; float16 and integers are not) and cut in byte planes.
// A plane is constant, raw, or coded by one canonical Huffman code of at most 12 bits, the same for all rows of the table;
// values that the sample had none of are an escape code and 8 bits.
//
// Stored form, little-endian; bit i of the code bits is bit i mod 8 of byte i / 8.
//
//	+-----------+---------------------+-------------+------------+------------+
//	| code bits | ends of regions 0.. | code bits,  | raw planes | tail bytes |
//	| 2 or 3 B  | G - 2, 2 or 3 B each| ⌈bits / 8⌉ B| n B each   |            |
//	+-----------+---------------------+-------------+------------+------------+
//
// The fields have 2 bytes in rows below 8 KiB, else 3, and are absent where no plane is coded (a stored row that would be empty is a byte of 0). n is the row's elements, raw
// planes come lowest first, tail bytes are those after the last whole element.
//
// The elements are cut in G regions, region g those from ⌊g·n/G⌋ to ⌊(g+1)·n/G⌋. A region's first half, rounded up, is coded from
// its first bit upwards, the other half from its last bit downwards, so that two decoders work on a region and meet in its middle: the
// second one costs no bits. In either direction elements follow in order, each with its coded planes, lowest first, a code's first bit first.
// Rows below 512 bytes have one region, others 1 + ⌊row bytes / 512⌋, or / 1024 where fields have 3 bytes, at most 16.
//
// The stream form, for cold storage and comparison, codes 256 KiB at a time with codes of their own: see [AppendStream].
//
// A [Codec] is immutable and safe for concurrent use.
package zipnn
