// Package placement decides which slabs of a data store hold which rows.
//
// A row has a slot either in one slab, which the hash of its key picks ([Partition]), or in every slab. A device reads its own slab
// faster than another's, so a copy in every slab saves time at each hit; but copies take the place of other rows, which then miss.
// [Problem.Solve] weighs that. From how fast a device reads its own slab, another's and the host tier ([Rates]), and from how often rows
// are looked up ([Curve]), it predicts the time of a batch for every split of the ranking into copied and partitioned rows.
//
// A Partition is safe for concurrent use. Other values are not while one goroutine changes them.
package placement
