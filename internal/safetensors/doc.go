// Package safetensors reads tensors from .safetensors files as rows of raw little-endian bytes, and never trusts the file.
// [Reader.ReadFrom] is safe for concurrent use; the other methods of a [Reader] are not. Different Readers are independent.
//
// A row is the last axis of a tensor, as in package npy.
//
// The format, integers little-endian:
//
//	+--------------------+--------------------------+------------------------------------+
//	| 8 B                | header, a JSON object,   | data, each tensor in C order,      |
//	| header bytes, ≤ 1e8| may end in spaces        | one after the other without gaps   |
//	+--------------------+--------------------------+------------------------------------+
//
//	{"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {"KEY": "TEXT", ...}}
//
// Offsets count from the first byte of data. "__metadata__" may be absent. Invariants of an opened file:
//
//   - The header is valid UTF-8, no object in it has a key twice, and no object of a tensor has other keys than these three.
//   - Each tensor has as many bytes as shape and element type need, and the tensors cover the data exactly: none overlaps another, there are
//     no gaps, and the file ends with the last one.
//
// Element types that package dtype does not have are no error until such a tensor is opened. Bits are moved, never
// interpreted.
package safetensors
