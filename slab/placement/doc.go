// Package placement decides which slabs of a data store hold which rows.
//
// A row either lies in one slab, which its key's hash picks ([Partition]), or has a copy in every slab. Copies are read
// without a peer in between, and take the place of other rows. [Problem.Solve] weighs that: from how fast a device reads its
// own slab, a peer's and the host tier, and from how often rows are looked up, it predicts what a batch takes for every split
// of the ranking into copied and partitioned rows, and says which is best and why.
//
// Nothing here is safe for concurrent use while it changes; a Partition that is not changed is.
package placement
