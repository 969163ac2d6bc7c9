// Package kernels holds the operations that run on a device, one to a file: its typed launch arguments and its
// execution on the host, which is the oracle for the others.
//
// Kernels trust their arguments: sizes and row numbers are checked by the caller. They do not trust stored bytes:
// a row that does not decode is counted in [Counters] and nothing outside the row's slot is read.
package kernels
