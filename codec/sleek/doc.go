// Package sleek is SLEEK as a row codec. Floating-point words that are zero, or whose exponents are near the middle of their
// range, become small integers, the codes. Each run of codes is stored with as many bits as its largest code has.
//
// A row is words of W = 16, 32 or 64 bits with E bits of exponent, as the element type has. The last word of a row that is not
// a multiple of a word is padded with zeros. lanes.forward computes a word's code: it rotates the word left by one, so that
// the exponent is on top and the sign is the lowest bit; subtracts the middle of the exponent's range; and moves the sign of
// the difference to the lowest bit. The runs are subchunks of G bytes, a power of two from 16 to 1024 that training chooses.
// Each has one width n, 0 to W: the bits of its largest code.
//
// Stored form:
//
//	0               ⌈R/G⌉
//	+----------------+---------------------------------------------------------+---------+
//	| n, a byte for  | bit stream: subchunk after subchunk, n bits of each     | 0 to 7  |
//	| each subchunk  | word, low to high; bit i is bit i mod 8 of byte i / 8   | zeros   |
//	+----------------+---------------------------------------------------------+---------+
//
// The error-bounded mode ([Bounded]) stores other codes in the same form. Every element of a decoded row is within a bound of
// the original, NaNs and infinities are unchanged, and -0 becomes 0.
//
// A [Codec] is immutable and safe for concurrent use.
package sleek
