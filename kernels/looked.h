// A batch whose rows a decoding kernel looks up itself.
#pragma once
#include "fetch_coded.h"
#include "lookups.h"
#include "publish.h"
#include "sample.h"
#include "ticket.h"

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
