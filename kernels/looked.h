// A batch whose rows a decoding kernel looks up itself.
#pragma once
#include "fetch_rows.h"
#include "find.h"
#include "publish.h"
#include "sample.h"
#include "ticket.h"

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

// Looked makes the tickets of a batch by looking its rows up, a row a lane. A row that misses gets no ticket and goes to the back of the
// list. The lookups of the next tickets run while the kernel decodes: copies of buckets belong to the same groups as copies of rows, and
// advance reads what has arrived. All lanes of a warp call its functions together.
struct Looked {
	using Kept = Ticket;
	const DecodeArgs &a;
	const LookupArgs &l;
	u32 count;
	u32 hits;    // of the warp
	u32 waiting; // lanes whose lookup has a copy under way
	u32 offset;  // of the lane's state in shared memory
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
		offset = shared + threadID() / 32 * (32 * FIND_SHARED) + LOOKUP_STATE + laneID() * 16;
		next = number(row + step);
		start(number(row));
	}
	// advance is called when all copies of the warp's threads have arrived, and after a warpSync.
	INLINE void advance()
	{
		if (waiting != 0)
			waiting = ballot(~0u, (waiting >> laneID() & 1) != 0 && stepLookup(offset, l.map, l.buckets));
	}
	INLINE Ticket make(u32 row, u32 step)
	{
		while (waiting != 0) { // in the beginning, and for the few rows that lie many hops away
			copyWait();
			warpSync(~0u);
			advance();
		}
		u64x2 state = *(const u64x2 *)lookupAt(offset);
		u64 key = state.x & ~HINT_BITS, word = state.y;
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
			sampleAside(s.ring, s.head, s.accessSeed, s.keySeed, s.mask, s.accessBelow, s.keyBelow, s.missBelow, key, ok, ok && !hit, row);
		Ticket t{0, 0, 0};
		if (hit)
			t = ticketOf(a, u32x4{(u32)word, (u32)(word >> 32), row, 0});
		warpSync(~0u); // all lanes have read their words
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

// fetchLast is what the last blocks of the grid do: they wait until all blocks before them are done, and read the misses. Blocks are
// dispatched in the order of their numbers, so those before them run or have run. CUDA does not promise that order, but its GPUs keep it.
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
