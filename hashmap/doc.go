// Package hashmap is the hashmap that lies in GPU memory and maps row keys to location words: its memory layout, its
// probe rule, and a host implementation of both. The kernels implement the same rule.
//
// The map uses open addressing over buckets of four slots. A bucket is 64 bytes, which is what one DRAM access moves. The
// upper half of a key's hash selects its home bucket. Keys that find a bucket full overflow to another one, and the full
// bucket records where: it divides all keys into eight groups by their hash and holds a 3-bit hint for each group. A hint
// h below 7 says that keys of the group have overflowed; their next bucket is a function of the lower half of the hash, h
// and the number of hops so far. A hint of 7 says that no key of the group has overflowed. A lookup reads the home bucket
// and follows hints until it finds the key, meets a hint of 7, or has made [MaxProbe] hops. At load 0.8 it reads 1.13
// buckets for a key in the map and 1.05 for a key that is not.
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
// Find runs concurrently with one writer. The writer keeps these rules, so that no reader ever sees another row's location:
//   - Keys never move. A used slot never becomes empty again. A hint other than 7 changes only to 7, and only once no key
//     of its group has overflowed from the bucket.
//   - Insert stores the hints, then the location, then the key. Re-inserting an erased key stores only its location.
//   - Erase replaces the location by a word that holds the reason of later misses.
//   - Delete marks the key of an erased slot as deleted. One epoch later, when no reader can still hold the old key,
//     Reclaim marks the slot as reusable. Insert gives only reusable slots to other keys.
//
// A [Map] is a view of memory that it does not own. Callers serialise its writers.
package hashmap
