// Package hashmap is the hashmap that lies in GPU memory and maps row keys to location words: its memory layout, its
// probe rule, and their execution on the host. The kernels execute the same rule.
//
// Open addressing over buckets of four slots, 64 bytes, two DRAM sectors read together. A key's home bucket comes from
// the upper half of its hash; a lookup walks from there, bucket by bucket, to the key or the first empty slot, at most
// [MaxProbe] buckets further and never past the last bucket: there is no wrap-around, a short tail after the home
// buckets takes what spills over.
//
//	bucket, 64 bytes, 64-byte aligned, little-endian
//	0         8              16        24             32            48            64
//	+---------+--------------+---------+--------------+-------------+-------------+
//	| key 0   | location 0   | key 1   | location 1   | key, loc. 2 | key, loc. 3 |
//	+---------+--------------+---------+--------------+-------------+-------------+
//
//	key       table << 56 | row; all ones: empty; all ones but the last bit: deleted
//	location  slab.Location; of a deleted slot: all ones once it may be used again
//
// Find runs concurrently with one writer. The writer keeps these rules, and no reader ever sees another row's location:
//   - nothing relocates, and an empty slot never becomes empty again;
//   - Insert stores the location, then the key; re-inserting an erased key stores its location only;
//   - Erase stores a word that is no location, with the reason of later misses;
//   - Delete then changes the key to deleted; an epoch later (no reader can still hold the old key) Reclaim marks the
//     slot, and only then Insert gives it to another key.
//
// [Map] is a view of memory it does not own. Writers serialise among themselves.
package hashmap
