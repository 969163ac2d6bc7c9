// Package ibp is Invariant Bit Packing (EuroSys '26): bits that hardly vary over a table's rows are taken out of them.
//
// A row is cut into chunks of S = 4 or 8 bytes (W = 8·S bits), little-endian words; a row that is not a multiple of S
// has its last chunk padded. Per chunk position the table has a mask of the bits taken to be invariant and a bitval
// with their values. A chunk participates iff chunk & mask == bitval: then only its other bits, the kept ones, are
// stored; else all W are.
//
// Stored form, the byte-tight layout: one bit stream, bit i being bit i mod 8 of byte i / 8, zero-padded to a byte.
//
//	+------------------------+----------------+----------------+-----+---------+
//	| V participation bits   | chunk 0's bits | chunk 1's bits | ... | 0 to 7  |
//	| bit j: chunk j         | kept or all W, low to high            | zeros   |
//	+------------------------+----------------+----------------+-----+---------+
//
// Padding bits of the last chunk have mask 1 and bitval 0, so they are never stored unless that chunk does not
// participate. A chunk at position j costs 1 + kept(j) bits when it participates and 1 + W when it does not.
//
// A [Codec] is immutable and safe for concurrent use.
package ibp
