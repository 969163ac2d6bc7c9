// Package change is the writing side of a cache that serves: it alone changes what batches read.
//
// Terms. The index says where every cached row lies; the devices' maps follow it. To withdraw is to take a location out of the maps; to
// retire is to put aside what was withdrawn until its epoch has passed. A cycle is one run of refreshing: rows worth less give way to
// rows worth more. A fresh row has its newest version in the overlay.
//
// Rules. Whoever changes something holds [Writer]'s lock, for a bounded piece of work at a time, and never while waiting for batches.
// Batches never take the lock. Memory that batches may have found is used again only after it was withdrawn, published and its epoch
// has passed ([read.Set.WaitEpoch]). Methods named …Locked need the lock.
package change
