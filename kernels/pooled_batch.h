// What a pooled batch reads by, and what it counts in. With ROW_TABLES it is that of the table that a block of a launch for several is at, or
// a part of a captured graph, and reads by the view of the replay that runs: see pooled_tables.h.
#pragma once
#include "find.h"
#include "publish.h"
#ifdef ROW_TABLES
#include "pooled_tables.h"
#endif

// Counted is what a block has counted, in shared memory.
struct Counted {
	u32 hits, peers, reasons[NUM_REASONS];
};

// addCounted adds that to the batch's, and returns the misses. One thread calls it.
template <class C> INLINE u32 addCounted(C *count, const Counted &c)
{
	u32 misses = 0;
	for (u32 k = 0; k < NUM_REASONS; k++)
		if (c.reasons[k] != 0) {
			atomicAdd(&count->reasons[k], c.reasons[k]);
			misses += c.reasons[k];
		}
	if (c.peers != 0)
		atomicAdd(&count->peers, c.peers);
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
	const PooledTablesArgs &t;
	const Tables &s;
	const ServeArgs &a;

	INLINE void begin() const {}
	INLINE void begun() const {}

	INLINE u64 map() const { return s.table.view.map; }
	INLINE u32 buckets() const { return s.table.view.buckets; }
	INLINE i64 limit() const { return s.table.view.limit; }
	INLINE u64 rejected() const { return s.table.view.rejected; }
	INLINE u64 oversize() const { return s.table.view.oversize; }
	INLINE u32 peers() const { return s.table.view.peers; }
	INLINE const HostTier &tier() const { return s.table.view.tier; }
	INLINE u64 slab(u64 word) const { return s.table.view.slabs[slabAt(word)]; }
	INLINE Sampling samples() const
	{
		Sampling of = a.lookup.samples;
		if (captured()) // other accesses are sampled in each replay
			of.accessSeed = hashOf(of.accessSeed + s.number);
		return of;
	}

	INLINE bool captured() const { return t.state != 0; }
	INLINE ReplayState *state() const { return (ReplayState *)s.table.state; }
	INLINE Counters *counters() const { return (Counters *)a.lookup.counters; }
	INLINE void corrupt(u32 position) const
	{
		if (captured())
			corruptReplayed((u64)&state()->counts, position);
		else
			corruptRow(a.lookup.counters, position);
	}
	INLINE void outOfRange(u32 position) const
	{
		if (captured())
			rangeReplayed((u64)&state()->counts, s.number, 0, 0, position);
		else
			rangeAside(a.lookup.counters, 0, 0, position);
	}
	INLINE void addMoved(u64 bytes) const { atomicAdd(captured() ? &state()->counts.hostBytes : &counters()->hostBytes, bytes); }
	// add adds what a block has counted. The host knows the rows of a replay, unless offsets say which they are, and counts what is no miss as a hit.
	INLINE void add(const Counted &c) const
	{
		if (!captured()) {
			addHits(counters(), c.hits, addCounted(counters(), c));
			return;
		}
		addCounted(&state()->counts, c);
		if (t.offsets != 0 && c.hits != 0)
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
	INLINE const Sampling &samples() const { return a.lookup.samples; }

	INLINE Counters *counts() const { return (Counters *)a.lookup.counters; }
	INLINE void corrupt(u32 position) const { corruptRow(a.lookup.counters, position); }
	INLINE void outOfRange(u32 position) const { rangeAside(a.lookup.counters, 0, 0, position); }
	INLINE void addMoved(u64 bytes) const { atomicAdd(&counts()->hostBytes, bytes); }
	INLINE void add(const Counted &c) const { addHits(counts(), c.hits, addCounted(counts(), c)); }
	INLINE void end() const { endBatch<END_FETCH>(a.lookup.counters, BatchEnd{a.result, a.batch, 1, 0}); }
};
#endif
