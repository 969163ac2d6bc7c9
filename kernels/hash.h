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

// Keys are compared with their hints set.
#define HINT_BITS (0x3full << HINT_SHIFT)

// Probe walks the buckets where a key may lie.
struct Probe {
	u32 low; // the lower half of the hash
	u32 bucket;
	u32 hops;

	INLINE static Probe of(u64 hash, u32 buckets) { return Probe{(u32)hash, (u32)((hash >> 32) * buckets >> 32), 0}; }

	// next returns the bucket that a hint means here.
	INLINE u32 next(u32 hint, u32 buckets) const
	{
		u32 mixed = low * 0x9e3779b1u + (hops * (NO_HINT + 1) + hint) * 0x85ebca6bu;
		return (u32)((u64)mixed * buckets >> 32);
	}

	// follow goes where the hint says; it returns false at the probe's end.
	INLINE bool follow(u32 hint, u32 buckets)
	{
		if (hint == NO_HINT || hops == MAX_PROBE)
			return false;
		bucket = next(hint, buckets);
		hops++;
		return true;
	}

	// The slot whose key has the hint of the probe's group, and the hint's place there.
	INLINE u32 hintSlot() const { return low % (2 * BUCKET_SLOTS) / 2; }
	INLINE u32 hintShift() const { return HINT_SHIFT + 3 * (low & 1); }
	INLINE u32 hint(u64 word) const { return (u32)(word >> hintShift()) & NO_HINT; }
	INLINE u64 withHint(u64 word, u32 hint) const
	{
		return (word & ~((u64)NO_HINT << hintShift())) | (u64)hint << hintShift();
	}
};
