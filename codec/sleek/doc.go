// Package sleek is SLEEK as a row codec: floating-point words whose exponents are near the middle of their range, or that
// are zero, become small integers, and runs of words are stored with as many bits as the largest of each run takes.
//
// A row is words of W = 16, 32 or 64 bits with E bits of exponent, the element type's; one that is not a multiple of a word has
// its last word padded with zeros. Each word is transformed ([lanes.forward]): rotated left by one, so that the sign is the
// lowest bit and the exponent the highest ones; the exponent taken from the middle of its range; and the whole made a number
// whose lowest bit is its sign. Subchunks of G bytes, a power of two from 16 to 1024 that training chooses, have one width
// n each, 0 to W: the bits of the largest of their words so transformed.
//
// Stored form:
//
//	0               ⌈R/G⌉
//	+----------------+---------------------------------------------------------+---------+
//	| n, a byte for  | bit stream: subchunk after subchunk, n bits of each     | 0 to 7  |
//	| each subchunk  | word, low to high; bit i is bit i mod 8 of byte i / 8   | zeros   |
//	+----------------+---------------------------------------------------------+---------+
//
// The error-bounded mode ([Bounded]) stores other integers in the same form: rows come back with every element within a
// bound of what it was, NaNs and infinities as they were, and -0 as 0.
//
// The stream form of SLEEK's own programs is in stream.go, for data that are not rows.
//
// A [Codec] is immutable and safe for concurrent use.
package sleek
