// The hashmap's probe rule: see package hashmap.
#pragma once
#include "gpu.h"

#define EMPTY_KEY (~0ull)
#define DELETED_KEY (~1ull)

INLINE u64 hashOf(u64 key)
{
	key ^= key >> 33;
	key *= 0xff51afd7ed558ccdull;
	key ^= key >> 33;
	key *= 0xc4ceb9fe1a85ec53ull;
	return key ^ key >> 33;
}

INLINE u64 multiplyHigh(u64 a, u64 b)
{
	u64 r;
	asm("mul.hi.u64 %0, %1, %2;" : "=l"(r) : "l"(a), "l"(b));
	return r;
}

INLINE u32 homeOf(u64 hash, u32 homes) { return (u32)((hash >> 32) * homes >> 32); }

// lastOf returns the last bucket of a probe that begins at home.
INLINE u32 lastOf(u32 home, u32 buckets) { return minimum(home + MAX_PROBE, buckets - 1); }

// findIn returns the location of key, or the word that says why there is none. It reads two slots, a sector, at a time.
INLINE u64 findIn(const u64x2 *map, u32 homes, u32 buckets, u64 key)
{
	u32 home = homeOf(hashOf(key), homes);
	u64 i = (u64)home * BUCKET_SLOTS, end = ((u64)lastOf(home, buckets) + 1) * BUCKET_SLOTS;
	for (; i < end; i += 2) {
		u64x2 a = loadShared(map + i), b = loadShared(map + i + 1);
		if (a.x == key)
			return a.y;
		if (a.x == EMPTY_KEY)
			break;
		if (b.x == key)
			return b.y;
		if (b.x == EMPTY_KEY)
			break;
	}
	return ~0xffull;
}
