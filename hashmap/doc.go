// Package hashmap is the hashmap that lies in GPU memory and maps row keys to location words: its memory layout, its
// probe rule, and their execution on the host. The kernels execute the same rule.
//
// Open addressing over buckets of four slots, 64 bytes: what one access to DRAM moves. A key's home bucket comes from the
// upper half of its hash. A full bucket sends keys on to other buckets, and remembers where to: it divides all keys into
// eight groups, by their hash, and has a 3-bit hint for each. Hint h below 7 says that keys of the group that found the
// bucket full went on to the bucket that the lower half of their hash, h and the number of hops so far make; 7, that none
// did. So a lookup reads the home bucket and follows hints to the key, to a hint of 7, or for [MaxProbe] hops. At load
// 0.8 that is 1.13 buckets for a key that is there and 1.05 for one that is not.
//
//	bucket, 64 bytes, 64-byte aligned, little-endian
//	0         8              16        24             32            48            64
//	+---------+--------------+---------+--------------+-------------+-------------+
//	| key 0   | location 0   | key 1   | location 1   | key, loc. 2 | key, loc. 3 |
//	+---------+--------------+---------+--------------+-------------+-------------+
//
//	key       [49:0]  row
//	          [52:50] hint of group 2 s, where s is the slot's number
//	          [55:53] hint of group 2 s + 1
//	          [63:56] table
//	          all ones: empty; without the hints all ones but the last bit: deleted
//	location  slab.Location; of a deleted slot: all ones once it may be used again
//
// Find runs concurrently with one writer. The writer keeps these rules, and no reader ever sees another row's location:
//   - nothing relocates, an empty slot never becomes empty again, and a hint other than 7 changes to 7 only, once no key of
//     its group lies beyond;
//   - Insert stores hints, the location, then the key; re-inserting an erased key stores its location only;
//   - Erase stores a word that is no location, with the reason of later misses;
//   - Delete then changes the key to deleted; an epoch later (no reader can still hold the old key) Reclaim marks the
//     slot, and only then Insert gives it to another key.
//
// [Map] is a view of memory it does not own. Writers serialise among themselves.
package hashmap
