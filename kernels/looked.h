// A batch whose rows a decoding kernel looks up itself.
#pragma once
#include "fetch_rows.h"
#include "find.h"
#include "publish.h"
#include "sample.h"
#include "ticket.h"

// The lookup of a lane, in shared memory: the bucket that it reads, by slots, and its state: the key with the hints set or EMPTY_KEY, the
// lower half of the hash, and the hops or LOOKED_UP. Once it is LOOKED_UP, slot 0 has the location word in place of a key. Slots of the
// same number lie side by side for all lanes of a warp, so that no two lanes meet in a bank.
constexpr u32 LOOKED_UP = ~0u, LOOKUP_PLANE = 32 * 16, LOOKUP_STATE = BUCKET_SLOTS * LOOKUP_PLANE;
static_assert(LOOKUP_STATE + LOOKUP_PLANE == 32 * FIND_SHARED, "FIND_SHARED");

INLINE u8 *lookupAt(u32 offset)
{
	extern __shared__ u32x4 dynamic[];
	return (u8 *)dynamic + offset;
}

INLINE void copyBucket(u32 offset, u64 map, u32 bucket)
{
	u32 to = sharedAddress(lookupAt(offset));
#pragma unroll
	for (u32 i = 0; i < BUCKET_SLOTS; i++)
		copyAsync16(to + i * LOOKUP_PLANE, map + ((u64)bucket * BUCKET_SLOTS + i) * sizeof(u64x2));
}

// startLookup starts the copy of a key's home bucket, of none for EMPTY_KEY.
ASIDE void startLookup(u32 offset, u64 map, u32 buckets, u64 key)
{
	Probe p = Probe::of(hashOf(key), buckets);
	u8 *at = lookupAt(offset);
	bool none = key == EMPTY_KEY;
	if (none)
		*(u64x2 *)at = u64x2{~0xffull, 0};
	else
		copyBucket(offset, map, p.bucket);
	key |= HINT_BITS;
	*(u32x4 *)(at + LOOKUP_STATE) = u32x4{(u32)key, (u32)(key >> 32), p.low, none ? LOOKED_UP : 0};
}

// stepLookup reads the bucket whose copy has arrived. It returns true if it started the copy of a further one.
ASIDE bool stepLookup(u32 offset, u64 map, u32 buckets)
{
	u8 *at = lookupAt(offset);
	u32x4 state = *(const u32x4 *)(at + LOOKUP_STATE);
	if (state.w == LOOKED_UP)
		return false;
	u64 key = (u64)state.y << 32 | state.x, hints = 0, word = ~0xffull;
	Probe p{state.z, 0, state.w};
	bool found = false;
#pragma unroll
	for (u32 i = 0; i < BUCKET_SLOTS; i++) {
		u64x2 slot = *(const u64x2 *)(at + i * LOOKUP_PLANE);
		if ((slot.x | HINT_BITS) == key)
			found = true, word = slot.y;
		hints = p.hintSlot() == i ? slot.x : hints;
	}
	bool onward = !found && p.follow(p.hint(hints), buckets);
	if (onward)
		copyBucket(offset, map, p.bucket);
	else
		*(u64 *)at = word;
	*(u32 *)(at + LOOKUP_STATE + 12) = onward ? p.hops : LOOKED_UP;
	return onward;
}

// Looked makes the tickets of a batch by looking its rows up, a row a lane. A row that misses gets no ticket and goes to the back of the
// list. The lookups of the next tickets run while the kernel decodes: copies of buckets belong to the same groups as copies of rows, and
// advance reads what has arrived. All lanes of a warp call its functions together.
struct Looked {
	const DecodeArgs &a;
	const LookupArgs &l;
	u32 count;
	u32 hits;    // of the warp
	u32 waiting; // lanes whose lookup has a copy under way
	u32 offset;  // of the lane's lookup in shared memory
	i64 next;    // the row number to be looked up next

	INLINE Looked(const FindArgs &args) : a(args.decode), l(args.lookup), count(args.lookup.count), hits(0) {}
	INLINE i64 number(u32 row) const { return row < count ? rowAt(l, row) : -1; }
	INLINE void start(i64 of)
	{
		bool ok = (u64)of < (u64)l.limit;
		startLookup(offset, l.map, l.buckets, ok ? (u64)l.table << 56 | (u64)of : EMPTY_KEY);
		waiting = ballot(~0u, ok);
	}
	INLINE void begin(u32 row, u32 step, u32 shared)
	{
		offset = shared + threadID() / 32 * (32 * FIND_SHARED) + laneID() * 16;
		next = number(row + step);
		start(number(row));
	}
	// advance is called when all copies of the thread have arrived.
	INLINE void advance()
	{
		if (waiting != 0)
			waiting = ballot(~0u, stepLookup(offset, l.map, l.buckets));
	}
	INLINE Ticket make(u32 row, u32 step)
	{
		while (waiting != 0) { // in the beginning, and for the few rows that lie many hops away
			copyWait();
			advance();
		}
		u64 word = *(const u64 *)lookupAt(offset), key = *(const u64 *)lookupAt(offset + LOOKUP_STATE) & ~HINT_BITS;
		bool in = row < count, ok = (key | HINT_BITS) != EMPTY_KEY;
		bool hit = located(word); // no row out of range has a location
		hits += popcount(ballot(~0u, hit));
		if (ballot(~0u, ok && !hit) != 0) {
			i64 of = (i64)(key & ((1ull << HINT_SHIFT) - 1));
			missAside(l.counters, l.found + (u64)(count - 1) * sizeof(Found), ok && !hit, of, row, word, l.rejected, l.oversize);
		}
		if (in && !ok)
			rangeAside(l.counters, l.out, l.rowBytes, row);
		const Sampling &s = l.samples;
		if (s.ring != 0)
			sampleAside(s.ring, s.head, s.accessSeed, s.keySeed, s.mask, s.accessBelow, s.keyBelow, key, ok, row);
		Ticket t{0, 0, 0};
		if (hit)
			t = ticketOf(a, u32x4{(u32)word, (u32)(word >> 32), row, 0});
		start(next);
		next = number(row + 2 * step);
		return t;
	}
	INLINE void end() const
	{
		if (laneID() == 0)
			atomicAdd(&((Counters *)l.counters)->hits, hits);
	}
};

// decoderDone ends a block that looks rows up.
INLINE void decoderDone(const FindArgs &a)
{
	blockSync();
	if (threadID() == 0) {
		fenceDevice();
		atomicAdd(&((Counters *)a.lookup.counters)->batch, END_DECODE);
	}
}

// fetchLast is what the last blocks of the grid do: they wait until all blocks before them are done, and read the misses. Blocks begin in
// the order of their numbers, so those before them run or have run.
template <class C> INLINE void fetchLast(const FindArgs &a)
{
	Counters *count = (Counters *)a.lookup.counters;
	if (threadID() == 0)
		while (loadDevice(&count->batch) / END_DECODE != a.decoders)
			sleepNanos(100);
	blockSync();
	fenceDevice();
	u32 block = blockID() - a.decoders, blocks = gridBlocks() - a.decoders;
	if (missesOf(a.fetch) != 0)
		fetchCoded<C, true>(a.fetch, block, blocks);
	endBatch<END_FETCH>(a.lookup.counters, a.fetch.end, blocks);
}
