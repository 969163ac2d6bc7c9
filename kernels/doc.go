// Package kernels holds the operations of the cache that run on a device. An operation is a struct: its fields are the
// arguments, and it implements [device.Kernel]. Enqueue one with device.Stream.Launch.
//
// # Two executions of one specification
//
// Each operation can be executed in two ways, and the results are the same to the byte, except where its comment says
// that an order is not specified:
//
//   - RunHost executes it in Go, on the host's processors. It is the specification, and the tests' reference.
//   - RunCUDA, under the build tag cuda, launches CUDA kernels on a GPU.
//
// Operation X has its arguments and RunHost in x.go, RunCUDA in x_cuda.go, and its kernels in x.cu. The kernels are
// compiled to PTX ahead of time, and the PTX is embedded in the binary. Structures that both sides read are declared once,
// in abi.h; package internal/abi is generated from it.
//
// # Which operations there are
//
//   - Reading a batch: [Lookup] splits rows into hits and misses, [Decode] writes the hits, [Order] sorts the misses by
//     host address, and [Fetch] writes the misses from the host tier. [Find] is all of it for few misses, with Lookup and Decode in one launch where that
//     pays. [Serve] is a whole batch in one launch, and [Replay] one in a captured graph. [ShareOpen] and [ShareFetch] fetch misses together with the host's processors.
//   - Changing a cache: [Build], [Store] and [Scatter].
//   - Loading a table: [Gather] copies a sample of its rows, [Planes], [Ones], [Grow] and [SampleBytes] train a codec on it,
//     and [Encode] applies the codec to the table. Benchmarks take Gather as the copy without a cache.
//
// # What is checked
//
// Operations trust their arguments, which the caller checks. Only [Lookup] and the operations that include it check row
// numbers: they count those outside the table in [Counters]. No operation trusts stored bytes. A row that does not decode
// is counted in Counters, and nothing further than slab.TailSlack bytes after the row's slot is read.
package kernels
