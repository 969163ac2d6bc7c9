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
