// Package change is the writing side of an open cache. Nothing else changes what batches read.
//
// Terms. The index holds the location of every cached row; the devices' hashmaps are copies of it. To withdraw a row is to remove its
// location from the hashmaps. To retire memory is to keep it unused until every batch that may read it has ended. A cycle is one run of
// Refresh: it evicts rows that the policy ranks low and admits rows that it ranks high. An updated row has its newest version in the
// overlay, which is host memory.
//
// Rules. Every change holds [Writer]'s lock. The lock is held for a bounded number of rows at a time and never while waiting for batches.
// Batches never take the lock. Memory that a batch may have found is reused in three steps: withdraw it, publish, and wait for the epoch
// ([read.Set.WaitEpoch]). Methods whose names end in Locked require the lock.
//
// Failures. Callers recover from panics, so the lock is always released by a deferred call. A change that fails or panics half way ends all changes: they
// return its error, and so does Stats. Batches go on, because what they can find stays as it is and nothing that was retired is reused. If rows of a
// lost device cannot be withdrawn any more, batches return an error, too.
package change
