// Package cache keeps the most used rows of tensors compressed in device memory, for programs whose tensors do not fit there.
//
// A cache serves the rows of one or more tables. All rows lie losslessly compressed in host memory that the devices read directly. The
// most used rows also lie in slabs of device memory, where devices find them through a hashmap. [Cache.Gather] returns rows that are
// bit-identical to the source, from either place.
//
//	table, err := cache.Open("features.npy")
//	...
//	c, err := cache.New(cache.Options{Tables: []cache.Table{table}, GPUMemory: 1 << 30})
//	...
//	defer c.Close()
//	out := make([]byte, len(ids)*c.RowBytes(0))
//	err = c.Gather(ctx, 0, ids, out)
//
// With [Options].Refresh the cache follows its workload: the admission policy learns from sampled accesses, and refresh cycles, in the
// background or by [Cache.Refresh], replace cached rows by rows that are used more. [Cache.Update] replaces and inserts rows; a Gather
// that begins afterwards sees them. Gathers do not wait for any of this. [Cache.Snapshot] writes the numbers of the cached rows to a
// file, from which a restarted program can fill its cache.
//
// A Cache is safe for concurrent use by any number of goroutines.
//
// Tables come from memory ([FromSlice], [FromBytes], [Adopt]) or from .npy, .npz and .safetensors files ([Open]).
//
// The cache owns all memory that it serves from. [New] reads the sources once. It does not keep or write them, so updates last as long
// as the cache. Row numbers and output of a Gather are used until it has returned, or until its [Pending] or [Batch] is done.
package cache
