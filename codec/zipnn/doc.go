// Package zipnn is a row codec after ZipNN (Hershcovitch et al., 2024). It separates the bytes of the elements into planes, so
// that exponents are apart from mantissas, and stores each plane by a Huffman code if that saves space.
//
// The bits of float elements are reordered to exponent, sign, mantissa; [Layout] describes this. Plane i is byte i of every
// element, the lowest first. A plane is constant, raw, or coded by one canonical Huffman code of at most 12 bits, the same for
// all rows of the table. Values that did not occur in the sample are stored as an escape code and 8 bits.
//
// Stored form, little-endian; bit i of the code bits is bit i mod 8 of byte i / 8.
//
//	+-----------+---------------------+-------------+------------+------------+
//	| code bits | ends of regions 0.. | code bits,  | raw planes | tail bytes |
//	| 2 or 3 B  | G - 2, 2 or 3 B each| ⌈bits / 8⌉ B| n B each   |            |
//	+-----------+---------------------+-------------+------------+------------+
//
// The fields have 2 bytes in rows below 8 KiB, else 3. They are absent if no plane is coded; a stored row that would be empty
// is one byte of 0. n is the number of elements of the row. Raw planes follow in order, the lowest first. Tail bytes are
// those after the last whole element.
//
// The elements are divided into G regions: region g has elements ⌊g·n/G⌋ to ⌊(g+1)·n/G⌋ - 1. The first half of a region, rounded
// up, is coded from the region's first bit upwards, the second half from its last bit downwards. So two decoders can work on
// a region, without bits for a second start. In either direction elements follow in order, each with its coded planes, the
// lowest first, and each code with its first bit first. Rows below 512 bytes have one region. Longer rows have
// 1 + ⌊row bytes / 512⌋, or / 1024 if fields have 3 bytes, at most 16.
//
// A [Codec] is immutable and safe for concurrent use.
package zipnn
