// Package mrc computes miss-ratio curves of LRU caches: the share of accesses that miss, at several cache sizes, from one pass
// over the accesses. [Exact] keeps all rows (Olken, LBL 1981). [Shards] keeps a sample of them, chosen by hash of the ID
// (SHARDS with its adjustment; Waldspurger et al., FAST '15).
//
// The stack distance of an access is the total size of the distinct rows accessed since the last access to its row, the row
// itself included. An LRU cache of at least this size hits. Rows larger than the cache are an exception: a cache does not
// admit them, but the stack distances of other rows count them.
//
// Sizes are in bytes, or in rows if every row's size is 1. Nothing in this package is safe for concurrent use.
package mrc
