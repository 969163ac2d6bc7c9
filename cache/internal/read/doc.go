// Package read is the reading side of a cache: everything between a Gather's arguments and its output.
//
// Terms. A [Device] is one GPU, or one that the host emulates, with its slab, its hashmap and the tables as its kernels see
// them. A [Set] is all devices of a cache. A batch is the rows of one Gather. A lane holds what one batch at a time needs:
// streams, events and counters. A route is the decision which kernels serve a batch.
//
// Invariants. A batch reads an immutable [View] of slabs and an immutable [TableView] of each table, both loaded after the batch
// has announced itself in its lane's epoch words. Whoever withdraws memory first publishes new views or location words, then
// waits with [Set.WaitEpoch] until every batch that had begun by then has ended. Batches never wait for a change, but for the
// short time in which the slab of a lost device is withdrawn ([Set.Pause]).
//
// Memory. A Device owns its lanes, scratch, staging and sample ring. The slab, the hashmap and the tables' bits are allocated by
// package fill and freed by [Device.Close].
package read
