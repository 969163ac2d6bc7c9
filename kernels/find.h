// The probe of one key a lane: see package hashmap. Lookup has its own, of several keys a lane.
#pragma once
#include "hash.h"

// findKey returns a key's location word, or no location with reason 0.
INLINE u64 findKey(const LookupArgs &a, u64 key)
{
	u32 home = homeOf(hashOf(key), a.homes), last = lastOf(home, a.buckets);
	for (u32 bucket = home; bucket <= last; bucket++) {
		const u64x2 *p = (const u64x2 *)a.map + (u64)bucket * BUCKET_SLOTS;
		u64x2 s[BUCKET_SLOTS];
#pragma unroll
		for (u32 i = 0; i < BUCKET_SLOTS; i++)
			s[i] = loadShared(p + i);
#pragma unroll
		for (u32 i = 0; i < BUCKET_SLOTS; i++) {
			if (s[i].x == key)
				return s[i].y;
			if (s[i].x == EMPTY_KEY)
				return ~0xffull;
		}
	}
	return ~0xffull;
}
