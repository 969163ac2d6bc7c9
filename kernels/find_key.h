// Looks one key up per lane, by the probe of package hashmap. lookup.cu has another probe, with four lanes a bucket.
#pragma once
#include "hash.h"

// findKey returns the location word of a key. For a key that is not in the map it is one without a location, with reason 0.
INLINE u64 findKey(u64 map, u32 buckets, u64 key)
{
	Probe p = Probe::of(hashOf(key), buckets);
	key |= HINT_BITS;
	for (;;) {
		const u64x2 *bucket = (const u64x2 *)map + (u64)p.bucket * BUCKET_SLOTS;
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
		if (!p.follow(p.hint(hints), buckets))
			return ~0xffull;
	}
}

// missReason returns the reason of a miss: that of the location word or, for a row that the hashmap never held, that of the row bits.
INLINE u32 missReason(u64 word, i64 row, u64 rejected, u64 oversize)
{
	u32 why = (u32)word & 0xff;
	if (why == 0)
		why = bitAt(oversize, row) ? 4 : bitAt(rejected, row) ? 1 : 0;
	return minimum(why, NUM_REASONS - 1);
}

// The functions below are called, not inlined, so that they take no registers of the kernels that use them.

// missAside puts the rows of those lanes of a warp for which missed is true at the back of a list, and counts them by reason. list is the
// address of the last entry.
ASIDE void missAside(u64 counters, u64 list, bool missed, i64 row, u32 position, u64 word, u64 rejected, u64 oversize)
{
	Counters *count = (Counters *)counters;
	u32 lane = laneID(), misses = ballot(~0u, missed), first = 0;
	if (lane == 0)
		first = atomicAdd(&count->misses, popcount(misses));
	first = tileFrom<32>(~0u, first, 0);
	u32 why = NUM_REASONS;
	if (missed) {
		why = missReason(word, row, rejected, oversize);
		*((u32x4 *)list - first - popcount(misses & ((1u << lane) - 1))) = u32x4{(u32)row, (u32)((u64)row >> 32), position, why};
	}
	for (u32 left = misses; left != 0;) {
		u32 one = tileFrom<32>(~0u, why, popcount((left & -left) - 1)), same = ballot(~0u, why == one);
		if (lane == 0)
			atomicAdd(&count->reasons[one], popcount(same));
		left &= ~same;
	}
}

// rangeAside counts a row number outside the table and zeroes its output row.
ASIDE void rangeAside(u64 counters, u64 out, u32 rowBytes, u32 position)
{
	Counters *count = (Counters *)counters;
	atomicAdd(&count->outOfRange, 1);
	atomicMax(&count->notFirst, ~position);
	u8 *row = (u8 *)out + (u64)position * rowBytes;
	for (u32 b = 0; b < rowBytes; b++)
		row[b] = 0;
}
