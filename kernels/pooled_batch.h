// What a pooled batch reads by, and what it counts in. With ROW_REPLAY it is a part of a captured graph, and reads by the view of the replay that
// runs: see replay.h. serve.cu has the same for batches whose rows are written.
#pragma once
#include "find.h"
#include "pooled.h"
#include "publish.h"
#include "replay.h"

#ifdef ROW_REPLAY
struct Batch {
	const ReplayArgs &replay;
	const ServeArgs &a;
	ReplayNow &now; // in shared memory

	INLINE void begin() const { beginReplay(replay, &now); }
	INLINE void begun() const { checkReplay(replay, &now); }

	INLINE u64 map() const { return now.view.map; }
	INLINE u32 buckets() const { return now.view.buckets; }
	INLINE i64 limit() const { return now.view.limit; }
	INLINE u64 rejected() const { return now.view.rejected; }
	INLINE u64 oversize() const { return now.view.oversize; }
	INLINE u32 peers() const { return now.view.peers; }
	INLINE const HostTier &tier() const { return now.view.tier; }
	INLINE u64 slab(u64 word) const { return now.view.slabs[slabAt(word)]; }
	INLINE const u64 *slabs() const { return now.view.slabs; } // for batches in shared memory
	INLINE Sampling samples() const
	{
		Sampling s = a.lookup.samples; // other accesses are sampled in each replay
		s.accessSeed = hashOf(s.accessSeed + now.number);
		return s;
	}

	INLINE ReplayCounts *counts() const { return &((ReplayState *)replay.state)->counts; }
	INLINE void corrupt(u32 position) const { corruptReplayed((u64)counts(), position); }
	INLINE void corruptHere(u32 position) const // without a call
	{
		counts()->corruptPosition = position;
		atomicAdd(&counts()->corrupt, 1);
	}
	INLINE void outOfRange(u32 position) const { rangeReplayed((u64)counts(), now.number, 0, 0, position); }
	// countHits does nothing: the host knows the rows of a replay, and counts what is no miss as a hit.
	INLINE void countHits(u32, u32) const {}
	INLINE void end() const
	{
		if (threadID() == 0)
			endReplay(replay);
	}
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
	INLINE void countHits(u32 hits, u32 misses) const
	{
		if (hits != 0)
			atomicAdd(&counts()->hits, hits);
		if (misses != 0)
			atomicAdd(&counts()->misses, misses);
	}
	INLINE void end() const { endBatch<END_FETCH>(a.lookup.counters, BatchEnd{a.result, a.batch, 1, 0}); }
};
#endif

// Counted is what a block has counted, in shared memory.
struct Counted {
	u64 moved; // stored bytes of missed rows
	u32 hits, peers, reasons[NUM_REASONS], reserved;
};

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
	if (p.size == 0)
		for (u32 i = blockID() * blockThreads() + threadID(); i < p.offsetCount; i += gridBlocks() * blockThreads())
			if (badOffset(p, b.a.lookup.count, i))
				b.outOfRange(i);
	blockSync();
	if (threadID() == 0) {
		auto *count = b.counts();
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
		b.countHits(counted.hits, misses);
	}
	b.end();
}
