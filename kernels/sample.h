// Appending to a sample ring: see docs/format/samples.md.
#pragma once
#include "hash.h"

// appendSample claims a record for each lane that keeps its access, the warp's at once, and writes it. Records that nobody
// has read are overwritten: the reader counts them.
INLINE void appendSample(const Sampling &s, u64 key, u32 kept, u32 lane)
{
	u32 lanes = ballot(~0u, kept != 0);
	if (lanes == 0)
		return;
	u64 first = 0;
	u32 leader = popcount((lanes & -lanes) - 1);
	if (lane == leader)
		first = atomicFetchAdd((u64 *)s.head, popcount(lanes));
	u32 low = tileFrom<32>(~0u, (u32)first, leader), high = tileFrom<32>(~0u, (u32)(first >> 32), leader);
	if (kept != 0) {
		u64 at = ((u64)high << 32 | low) + popcount(lanes & ((1u << lane) - 1));
		u64 slot = at & s.mask;
		u32 lap = (u32)(at >> popcount(s.mask)) + 1; // a division would take longer than all the rest
		u32 check = (u32)(hashOf(key ^ lap) >> 35) << 3 | kept;
		*(u32x4 *)((SampleRecord *)s.ring + slot) = u32x4{(u32)key, (u32)(key >> 32), lap, check};
	}
}

INLINE u32 sampled(const Sampling &s, u64 key, u32 position, bool miss)
{
	u32 draw = (u32)(hashOf(s.accessSeed ^ position) >> 32);
	u32 kept = (draw < s.accessBelow ? SAMPLED_ACCESS : 0) | (miss && draw < s.missBelow ? SAMPLED_MISS : 0);
	if (s.keyBelow != 0 && (u32)(hashOf(s.keySeed ^ key) >> 32) < s.keyBelow)
		kept |= SAMPLED_KEY;
	return kept;
}

// sampleAside is for kernels that sample seldom: see ASIDE.
ASIDE void sampleAside(u64 ring, u64 head, u64 accessSeed, u64 keySeed, u32 mask, u32 accessBelow, u32 keyBelow, u32 missBelow, u64 key, bool ok, bool miss,
	u32 position)
{
	Sampling s = {ring, head, accessSeed, keySeed, mask, accessBelow, keyBelow, missBelow};
	appendSample(s, key, ok ? sampled(s, key, position, miss) : 0, laneID());
}
