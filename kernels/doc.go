// Package kernels holds the operations that run on a device, one to a file: its arguments and its execution on the host,
// which is the oracle. Under the build tag cuda, x_cuda.go launches the kernels of x.cu.
//
// Kernels trust their arguments, which the caller checks; only [Lookup] checks row numbers, and counts those outside the
// table. They do not trust stored bytes: a row that does not decode is counted in [Counters], and nothing further than the
// tail slack from the row's slot is read.
package kernels
