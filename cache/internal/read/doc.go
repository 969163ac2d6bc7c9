// Package read is the reading side of a cache: everything between a Gather's arguments and its output. Any number
// of goroutines may gather batches at once.
//
// Terms. A [Device] is one GPU, or one emulated on the host, with its slab, its hashmap and its kernels' view of the
// tables. A [Set] is all devices of a cache. A batch is the rows of one Gather. A lane holds what one batch at a time
// needs: streams, events and counters. A route says which kernels serve a batch. An absent row is one that neither a
// slab nor the host tier holds.
//
// Invariants. A batch reads an immutable [View] of the slabs and an immutable [TableView] of each table. It loads
// both after it has announced itself in its lane's epoch words. Whoever withdraws memory first publishes new views or
// location words. Then it calls [Set.WaitEpoch], which returns when every batch that had begun by then has ended.
// Batches do not wait for changes. The one exception is the short time in which the slab of a lost device is
// withdrawn ([Set.Pause]).
//
// Memory. A Device owns its lanes, scratch, staging and sample ring. Package fill allocates the slab, the hashmap and
// the tables' bits; [Device.Close] frees them.
package read
