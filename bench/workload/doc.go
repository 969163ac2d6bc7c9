// Package workload makes the inputs that cachebench replays: batches of row
// numbers, and, where the user brings none, the graph and the feature table
// behind them. Nothing here is safe for concurrent mutation; a Workload is
// read-only and may be shared, a Cursor belongs to one goroutine.
//
// # Terms
//
// A batch is a list of row numbers that one Gather asks for. A vertex of the
// graph is a row of the table. An epoch of a sampling workload is one pass over
// all vertices as seeds, in a random order of its own. A stream is a random
// number generator fixed by the user's seed, a purpose and an index; every
// random choice below names its stream.
//
// # Invariants
//
//   - Same options, same output: nothing depends on GOMAXPROCS, on time, or on
//     what was asked before.
//   - Batch(i) depends on the options and i only. Several passes over the same
//     batches (training, compressed run, uncompressed run) need no storage, and
//     batches may be computed in any order by any number of cursors.
//   - A sampled batch holds every vertex at most once; a replayed batch holds
//     what the file holds, duplicates included; other batches hold duplicates.
//
// # Memory
//
// A Workload keeps references to the graph, row numbers or text it was made from,
// which must not change afterwards. A Cursor owns scratch of 4 bytes a vertex
// (sampling) or none to speak of (others), and Batch appends to memory of the caller.
//
// # Example
//
//	g, err := workload.PowerLaw(workload.GraphOptions{Seed: 1})
//	...
//	w, err := workload.NewNeighborSampling(workload.SamplingOptions{Graph: g, Seed: 1})
//	...
//	c := w.NewCursor()
//	var ids []int64
//	for i := range w.Batches() {
//		ids = c.Batch(i, ids[:0])
//	}
package workload
