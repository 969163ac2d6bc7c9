// Package npy reads NumPy arrays from .npy files and .npz archives as raw
// little-endian bytes in C order, row by row, and never trusts the file. A
// [Reader] is not safe for concurrent use; different Readers are independent.
//
// Terms: a row is the last axis of an array, a rank-1 array has rows of one
// element; shapes count elements, everything else counts bytes. An array of an
// archive is the zip member "<array>.npy", or "<array>" if it starts as an .npy does.
//
// Invariants:
//   - Whatever the byte order and axis order of the file, [Reader.Read] hands out
//     little-endian elements in C order. Bits are moved, never interpreted: NaN
//     payloads, -0 and odd bool bytes survive.
//   - What the header claims is checked against the bytes present when the array is
//     opened, and again when it is read; Read returns the last row only after the
//     data turned out to end there and, in an archive, the CRC to hold. [Ranged] checks
//     the same once all rows have been read, in whatever order.
//   - No allocation is out of proportion to what the bytes on disk can hold. A
//     stored member must lie inside the archive and a deflated one may claim at most
//     deflate's limit of 1032 times its compressed bytes, so even RowBytes is bounded.
//
// The destination of Read belongs to the caller. A Reader keeps buffers of at most
// 512 KiB. For Fortran order, from the first Read on, it also keeps blocks of 8 MiB of
// the array, or a few times that where rows are long; but the whole array if it is
// compressed, or if its first axis is so short that blocks would have many pieces.
//
// The format, integers little-endian, no alignment assumed on reading:
//
//	+------------------+---------+---------+--------------+-----------------+---------+
//	| 6 B "\x93NUMPY"  | 1 B     | 1 B = 0 | 2 B (v1) or  | header, a Python| data    |
//	|                  | version | minor   | 4 B (v2, v3) | dict in a line  |         |
//	|                  | 1, 2, 3 |         | header bytes | + spaces + "\n" |         |
//	+------------------+---------+---------+--------------+-----------------+---------+
//
// The dict has exactly the keys 'descr', 'fortran_order' and 'shape', in any order.
//
// github.com/sbinet/npyio is not used for reading because it panics on malformed
// headers, cannot stream rows and does not know float16; the tests check against it.
package npy
