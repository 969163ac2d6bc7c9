// What a pooled batch reads by, which part of it a block has, and what it counts in. With ROW_TABLES it is the batch of the table that a block of a launch for several
// is at, or a part of a captured graph: see pooled_tables.h. serve.cu has the same for batches whose rows are written.
#pragma once
#include "find_key.h"
#include "pooled.h"
#include "publish.h"
#ifdef ROW_TABLES
#include "pooled_tables.h"
#endif

// Counted is what a block has counted, in shared memory.
struct Counted {
	u64 moved; // stored bytes of missed rows
	u32 hits, peers, reasons[NUM_REASONS], reserved;
};

// addCounted adds what a block has counted to what the batch has. One thread calls it. It returns the misses.
template <class C> INLINE u32 addCounted(C *count, const Counted &counted)
{
	u32 misses = 0;
	for (u32 k = 0; k < NUM_REASONS; k++)
		if (counted.reasons[k] != 0) {
			atomicAdd(&count->reasons[k], counted.reasons[k]);
			misses += counted.reasons[k];
		}
	if (counted.peers != 0)
		atomicAdd(&count->peers, counted.peers);
	if (counted.moved != 0)
		atomicAdd(&count->hostBytes, counted.moved);
	return misses;
}

INLINE void addHits(Counters *count, u32 hits, u32 misses)
{
	if (hits != 0)
		atomicAdd(&count->hits, hits);
	if (misses != 0)
		atomicAdd(&count->misses, misses);
}

#ifdef ROW_TABLES
struct Batch {
	const ServeArgs &a;

	INLINE void begin() const {}
	INLINE void begun() const {}

	INLINE const ReplayView &view() const { return tables.table.view; }
	INLINE u64 map() const { return view().map; }
	INLINE u32 buckets() const { return view().buckets; }
	INLINE i64 limit() const { return view().limit; }
	INLINE u64 rejected() const { return view().rejected; }
	INLINE u64 oversize() const { return view().oversize; }
	INLINE u32 peers() const { return view().peers; }
	INLINE const HostTier &tier() const { return view().tier; }
	INLINE u64 slab(u64 word) const { return view().slabs[slabAt(word)]; }
	INLINE const u64 *slabs() const { return view().slabs; }
	INLINE Sampling samples() const
	{
		Sampling s = a.lookup.samples;
		if (captured()) // other accesses are sampled in each replay
			s.accessSeed = hashOf(s.accessSeed + tables.number);
		return s;
	}

	INLINE bool captured() const { return tables.table.state != 0; }
	INLINE ReplayState *state() const { return (ReplayState *)tables.table.state; }
	INLINE Counters *counters() const { return (Counters *)a.lookup.counters; }
	INLINE void corrupt(u32 position) const
	{
		if (captured())
			corruptReplayed((u64)&state()->counts, position);
		else
			corruptRow(a.lookup.counters, position);
	}
	INLINE void corruptHere(u32 position) const { corrupt(position); }
	INLINE void outOfRange(u32 position) const
	{
		if (captured())
			rangeReplayed((u64)&state()->counts, tables.number, 0, 0, position);
		else
			rangeAside(a.lookup.counters, 0, 0, position);
	}
	// add adds what a block has counted. The host knows the rows of a replay, unless offsets say which they are, and counts what is no miss as a hit.
	INLINE void add(const Counted &c) const
	{
		if (!captured()) {
			addHits(counters(), c.hits, addCounted(counters(), c));
			return;
		}
		addCounted(&state()->counts, c);
		if (tables.windows && c.hits != 0)
			atomicAdd(&state()->hits, c.hits);
	}
	INLINE void end() const {}
};
#else
struct Batch {
	const ServeArgs &a;

	INLINE void begin() const {}
	INLINE void begun() const {}

	INLINE u64 map() const { return a.lookup.map; }
	INLINE u32 buckets() const { return a.lookup.buckets; }
	INLINE i64 limit() const { return a.lookup.limit; }
	INLINE u64 rejected() const { return a.lookup.rejected; }
	INLINE u64 oversize() const { return a.lookup.oversize; }
	INLINE u32 peers() const { return a.lookup.peers; }
	INLINE const HostTier &tier() const { return a.tier; }
	INLINE u64 slab(u64 word) const
	{
		u64 slab = a.slabs[0];
#pragma unroll
		for (u32 i = 1; i < MAX_SLABS; i++) // selects, not an indexed parameter
			slab = slabAt(word) == i ? a.slabs[i] : slab;
		return slab;
	}
	INLINE const u64 *slabs() const { return a.slabs; }
	INLINE const Sampling &samples() const { return a.lookup.samples; }

	INLINE Counters *counts() const { return (Counters *)a.lookup.counters; }
	INLINE void corrupt(u32 position) const { corruptRow(a.lookup.counters, position); }
	INLINE void corruptHere(u32 position) const { corrupt(position); }
	INLINE void outOfRange(u32 position) const { rangeAside(a.lookup.counters, 0, 0, position); }
	INLINE void add(const Counted &c) const { addHits(counts(), c.hits, addCounted(counts(), c)); }
	INLINE void end() const { endBatch<END_FETCH>(a.lookup.counters, BatchEnd{a.result, a.batch, 1, 0}); }
};
#endif

#ifndef ROW_TABLES
// tileShare returns at which positions the runs begin that the thread's tile of N lanes adds up: from first to next - 1.
template <int N> INLINE void tileShare(const PoolArgs &p, u64 &first, u64 &next)
{
	first = (u64)((blockID() * blockThreads() + threadID()) / N) * p.tileRows;
	next = first + p.tileRows;
}

// blockShare returns which of n things of the batch are the block's: those from from to to - 1.
INLINE void blockShare(u32 n, u32 &from, u32 &to)
{
	from = (u32)((u64)n * blockID() / gridBlocks());
	to = (u32)((u64)n * (blockID() + 1) / gridBlocks());
}
#endif

// beginCounting begins a batch in a block. All its threads call it, and then wait for each other.
INLINE void beginCounting(const Batch &b, Counted &counted)
{
	if (threadID() < sizeof(Counted) / 4)
		((u32 *)&counted)[threadID()] = 0;
	b.begin();
}

// endCounting counts offsets that are out of order, adds what a block has counted to what the batch has, and ends the batch. All threads of the block
// call it.
INLINE void endCounting(const Batch &b, const PoolArgs &p, const Counted &counted)
{
	if (p.size == 0) {
		u32 from, to;
		blockShare(p.offsetCount, from, to);
		for (u32 i = from + threadID(); i < to; i += blockThreads())
			if (badOffset(p, b.a.lookup.count, i))
				b.outOfRange(i);
	}
	blockSync();
	if (threadID() == 0)
		b.add(counted);
	b.end();
}
