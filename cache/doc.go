// Package cache keeps compressed tensors resident in device memory, for programs whose tensors do not fit there.
//
// A cache serves the rows of one or more tables. Every row lies losslessly compressed in host memory that the devices
// read themselves; the rows worth it lie compressed in slabs of device memory too, found through a hashmap there.
// [Cache.Gather] returns rows bit-identical to the source, whichever way they come.
//
//	table, err := cache.Open("features.npy")
//	...
//	c, err := cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 1 << 30})
//	...
//	defer c.Close()
//	out := make([]byte, len(ids)*c.RowBytes(0))
//	err = c.Gather(ctx, 0, ids, out)
//
// What is cached follows the workload where [Options].Refresh says so: the admission policy goes on learning from sampled
// accesses, and rows give way to others worth more, in the background or by [Cache.Refresh]. [Cache.Update] replaces and
// inserts rows; when it has returned, every Gather that begins sees them. Gathers wait for none of this. [Cache.Snapshot]
// notes what is cached, for a restart that begins with it.
//
// A Cache is safe for concurrent use by any number of goroutines.
//
// The cache owns all memory that it serves from; sources are read once, by [New], and neither kept nor written: updates last
// as long as the cache. A caller's row numbers
// and output are used until the Gather that got them has returned, or its [Pending] or [Batch] is done.
package cache
