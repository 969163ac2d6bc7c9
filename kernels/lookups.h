// Lookups that run beside other work of a warp: buckets come to shared memory by asynchronous copies.
#pragma once
#include "find_key.h"

// The lookups of a warp, one a lane, in shared memory: a bucket for each lane, then for each lane its state. The state is the key with the
// hints set, or EMPTY_KEY, then the lower half of the hash and the hops, or the location word once that is known. The slots of a bucket are
// turned by half the lane's number, so that neither copies nor lanes that read meet in a bank.
constexpr u32 LOOKUP_STATE = 32 * BUCKET_BYTES;
static_assert(LOOKUP_STATE + 32 * 16 == 32 * FIND_SHARED, "FIND_SHARED");

// lookupAt returns a lane's state; offset is its place in shared memory. bucketsAt returns the buckets of the warp.
INLINE u32x4 *lookupAt(u32 offset)
{
	extern __shared__ u32x4 dynamic[];
	return (u32x4 *)((u8 *)dynamic + offset);
}
INLINE u8 *bucketsAt(u32 offset) { return (u8 *)(lookupAt(offset) - laneID()) - LOOKUP_STATE; }
INLINE u32 slotAt(u32 lane, u32 slot) { return lane * BUCKET_BYTES + (slot + lane / 2) % BUCKET_SLOTS * (u32)sizeof(u64x2); }

// startLookup starts the copy of a key's home bucket, of none for EMPTY_KEY. Four lanes copy a bucket, which is one access to memory. All
// lanes of the warp call it, once all have read what was looked up before.
ASIDE void startLookup(u32 offset, u64 map, u32 buckets, u64 key)
{
	Probe p = Probe::of(hashOf(key), buckets);
	u32 lane = laneID(), slot = lane % BUCKET_SLOTS, to = sharedAddress(bucketsAt(offset));
	u32 bucket = key == EMPTY_KEY ? ~0u : p.bucket;
	key |= HINT_BITS;
	*lookupAt(offset) = bucket == ~0u ? u32x4{~0u, ~0u, ~0xffu, ~0u} : u32x4{(u32)key, (u32)(key >> 32), p.low, 0};
#pragma unroll
	for (u32 i = 0; i < BUCKET_SLOTS; i++) {
		u32 of = i * (32 / BUCKET_SLOTS) + lane / BUCKET_SLOTS, at = tileFrom<32>(~0u, bucket, of);
		if (at != ~0u)
			copyAsync16(to + slotAt(of, slot), map + ((u64)at * BUCKET_SLOTS + slot) * sizeof(u64x2));
	}
}

// stepLookup reads the bucket whose copy has arrived. It returns true if it started the copy of a further one.
ASIDE bool stepLookup(u32 offset, u64 map, u32 buckets)
{
	u32x4 state = *lookupAt(offset);
	u32 lane = laneID();
	u8 *copies = bucketsAt(offset);
	u64 key = (u64)state.y << 32 | state.x, hints = 0, word = ~0xffull;
	Probe p{state.z, 0, state.w};
	bool found = false;
#pragma unroll
	for (u32 i = 0; i < BUCKET_SLOTS; i++) {
		u64x2 slot = *(const u64x2 *)(copies + slotAt(lane, i));
		if ((slot.x | HINT_BITS) == key)
			found = true, word = slot.y;
		hints = p.hintSlot() == i ? slot.x : hints;
	}
	bool onward = !found && p.follow(p.hint(hints), buckets);
	if (onward) {
		u32 to = sharedAddress(copies);
#pragma unroll
		for (u32 i = 0; i < BUCKET_SLOTS; i++)
			copyAsync16(to + slotAt(lane, i), map + ((u64)p.bucket * BUCKET_SLOTS + i) * sizeof(u64x2));
	}
	*((u64 *)lookupAt(offset) + 1) = onward ? (u64)p.hops << 32 | p.low : word;
	return onward;
}
