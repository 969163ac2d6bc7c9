// Package mrc computes miss-ratio curves of LRU in one pass over the accesses: what share of them would miss, at every cache
// size at once. [Exact] keeps all rows (Olken, LBL 1981); [Shards] a sample of them, by hash of the ID (SHARDS with
// its adjustment; Waldspurger et al., FAST '15).
//
// The stack distance of an access is the size of all rows accessed since its row was accessed last, that one included: LRU
// caches that are at least so large hit. A row larger than the cache is an exception: a cache declines it, the
// distances of others count it.
//
// Sizes are bytes, or rows if every row's size is 1. Nothing here is safe for concurrent use.
package mrc
