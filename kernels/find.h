// The probe of one key a lane: see package hashmap. Lookup has its own, of four lanes a bucket.
#pragma once
#include "hash.h"

// findKey returns a key's location word, or no location with reason 0.
INLINE u64 findKey(const LookupArgs &a, u64 key)
{
	Probe p = Probe::of(hashOf(key), a.buckets);
	key |= HINT_BITS;
	for (;;) {
		const u64x2 *bucket = (const u64x2 *)a.map + (u64)p.bucket * BUCKET_SLOTS;
		u64x2 s[BUCKET_SLOTS];
#pragma unroll
		for (u32 i = 0; i < BUCKET_SLOTS; i++)
			s[i] = loadSlot(bucket + i);
		u64 hints = s[0].x;
#pragma unroll
		for (u32 i = 0; i < BUCKET_SLOTS; i++) {
			if ((s[i].x | HINT_BITS) == key)
				return s[i].y;
			hints = p.hintSlot() == i ? s[i].x : hints; // a select, not an indexed register
		}
		if (!p.follow(p.hint(hints), a.buckets))
			return ~0xffull;
	}
}
