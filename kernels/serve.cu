#include "abi_absent.h"
#include "stage_row.h"
#include "find_key.h"
#include "publish.h"
#include "replay.h"
#include "sample.h"

// Looks up the rows of a batch and writes them, hits from the slabs and misses from the host tier, in one launch, by a coder: ROW_CODER of
// ROW_HEADER. With ROW_REPLAY the batch is a part of a captured graph: see replay.h.
//
// A warp works on warpRows rows on its own, in parts of at most 32 rows. Of each part every lane looks up a row. The warp keeps a list in
// shared memory, hits at the front and misses at the back. Then the warp fetches the misses one by one, and its tiles decode the hits. No
// list goes to global memory, and the lookups of some warps overlap with the decoding of others. The last block to end publishes the
// counters, but not in a captured graph. Shared memory: the codec's metadata, if they fit, then for each warp stageBytes and the scratch of its tiles.
//
// Measured on an H200, 200,000 hits: 64 registers (four blocks per multiprocessor) are best from 256 to 1024 bytes: 154 us at 1024 against
// 168 with 79 registers (three blocks), and 94 us at 512 against 114 with 48 (five). At 4096 bytes, where shared memory leaves three
// blocks, 64 registers cost 1 %. Prefetching all hits of a part at once, not only the next one of each tile, takes 110 us at 512 bytes
// against 91.
constexpr u32 WARPS = 8; // the most of a block

// Batch is the batch, and what it reads and counts in.
#ifdef ROW_REPLAY
// listAbsent lists a row that the host tier does not hold, and zeroes its output, which stays so if the row does not arrive. All lanes of a warp call it. It
// is called, not inlined, so that it takes no registers of its caller.
ASIDE void listAbsent(u64 state, u64 list, u32 count, u64 out, u32 rowBytes, u64 row, u32 position)
{
	u8 *to = (u8 *)out + (u64)position * rowBytes;
	for (u32 b = laneID(); b < rowBytes; b += 32)
		to[b] = 0;
	if (laneID() != 0)
		return;
	u32 k = atomicAdd(&((AbsentState *)state)->absent, 1);
	if (k < count)
		*((u32x4 *)list + k) = u32x4{(u32)row, (u32)(row >> 32), position, 0};
}

// noteAhead notes a row that was read ahead. One lane calls it.
ASIDE void noteAhead(u64 state, u64 ahead, u32 count, u64 row)
{
	u64 k = atomicFetchAdd(&((AbsentState *)state)->read, 1);
	((u64 *)ahead)[k % count] = row;
}

struct Batch {
	const ReplayArgs &replay;
	const ReplayAbsent &absent;
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
	INLINE Sampling samples() const
	{
		Sampling s = a.lookup.samples; // other accesses are sampled in each replay
		s.accessSeed = hashOf(s.accessSeed + now.number);
		return s;
	}

	// held says where the host tier has a row; it returns false if the tier does not hold the row. All lanes of a warp call it. The index of a tier that
	// holds some rows only changes meanwhile: its word is read once, and not by way of a cache that may have an older one.
	INLINE bool held(u32x4 f, u32 lane, Miss &m) const
	{
		if (absent.list == 0) {
			m = missOf(tier(), a.lookup.out, a.codec.rowBytes, f);
			return true;
		}
		u64 row = (u64)f.y << 32 | f.x, word = lane == 0 ? loadDevice((const u64 *)tier().index + row) : 0;
		word = (u64)tileFrom<32>(~0u, (u32)(word >> 32), 0) << 32 | tileFrom<32>(~0u, (u32)word, 0);
		if (!located(word)) {
			listAbsent(absent.state, absent.list, absent.count, a.lookup.out, a.codec.rowBytes, row, f.z);
			return false;
		}
		if (lane == 0 && offsetAt(word) >= absent.aheadFrom)
			noteAhead(absent.state, absent.ahead, absent.count, row);
		m.position = f.z;
		m.row = (u8 *)a.lookup.out + (u64)f.z * a.codec.rowBytes;
		m.at = tier().mem + offsetAt(word);
		m.compressed = compressedAt(word);
		m.known = true;
		m.length = m.compressed ? minimum(storedAt(word), a.codec.rowBytes) : a.codec.rowBytes;
		return true;
	}

	// Without misses the hits are read at once: then a replay of 8,192 rows takes 0.3 us less without prefetches on an H200.
	INLINE bool prefetches(u32 misses) const { return misses != 0; }

	using Counts = ReplayCounts;
	INLINE Counts *counts() const { return &((ReplayState *)replay.state)->counts; }
	INLINE void corrupt(u32 position) const { corruptReplayed((u64)counts(), position); }
	INLINE void outOfRange(u32 position) const { rangeReplayed((u64)counts(), now.number, a.lookup.out, a.codec.rowBytes, position); }
	INLINE void end() const { endReplay(replay); }
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
	INLINE bool held(u32x4 f, u32, Miss &m) const
	{
		m = missOf(a.tier, a.lookup.out, a.codec.rowBytes, f);
		return true;
	}

	INLINE bool prefetches(u32) const { return true; }

	using Counts = Counters;
	INLINE Counts *counts() const { return (Counters *)a.lookup.counters; }
	INLINE void corrupt(u32 position) const { corruptRow(a.lookup.counters, position); }
	INLINE void outOfRange(u32 position) const { rangeAside(a.lookup.counters, a.lookup.out, a.codec.rowBytes, position); }
	INLINE void end() const
	{
		Counters *count = counts();
		fenceDevice();
		u32 before = atomicAdd(&count->hits, 1);
		fenceDevice();
		if (before != gridBlocks() - 1)
			return;
		Counters c = countersNow(count);
#pragma unroll
		for (u32 k = 0; k < NUM_REASONS; k++)
			c.misses += c.reasons[k];
		c.hits = a.lookup.count - c.misses - c.outOfRange;
		publish(count, c, a.result, a.batch);
	}
};
#endif

INLINE u8 *rowOf(const ServeArgs &a, u32 position) { return (u8 *)a.lookup.out + (u64)position * a.codec.rowBytes; }

// prefetchRow prefetches a hit's stored bytes to the L2, by LANES lanes.
template <int LANES> INLINE void prefetchRow(const Batch &b, u64 word, u32 lane)
{
	const u8 *p = (const u8 *)b.slab(word) + offsetAt(word);
	u32 length = compressedAt(word) ? storedAt(word) : b.a.codec.rowBytes;
	for (u32 o = lane * 128; o < length; o += LANES * 128)
		prefetchL2(p + o);
}

INLINE u64 wordOf(u32x4 f) { return (u64)f.y << 32 | f.x; }

// Coded decodes hits and fetches misses by a coder. context returns what hits and miss take as their second argument. TILES is the number
// of tiles of a warp that decode hits.
template <class C, int N> struct Coded {
	using Context = const u8 *; // the metadata
	static constexpr u32 TILES = 32 / N;
	static INLINE Context context(const ServeArgs &a, u8 *shared)
	{
		if (!sharedMetaOf<C> && a.codec.metaBytes == 0)
			blockSync();
		return metaOf<C>(a.codec, shared);
	}
	static INLINE u32 warpBytes(const ServeArgs &a) { return a.stageBytes + TILES * a.codec.scratch; }

	static INLINE void hits(const Batch &b, Context meta, u8 *stage, const u32x4 *list, u32 hits)
	{
		const ServeArgs &a = b.a;
		const Tile<N> tile = Tile<N>::make();
		u8 *scratch = stage + a.stageBytes + laneID() / N * a.codec.scratch;
		for (u32 i = laneID() / N; i < hits; i += TILES) {
			u32x4 f = list[i];
			u64 word = wordOf(f);
			if (i + TILES < hits)
				prefetchRow<N>(b, wordOf(list[i + TILES]), tile.lane);
			u8 *row = rowOf(a, f.z);
			bool raw = !compressedAt(word);
			u32 length = raw ? a.codec.rowBytes : storedAt(word);
			bool ok = raw || length - 1 < a.codec.rowBytes - 1;
			Words<GLOBAL> stored{(const u32 *)(b.slab(word) + offsetAt(word)), 0, ok ? (length + 3) / 4 : 0};
			if (raw)
				tileCopy<N>(a.codec, stored, tile.lane, row);
			else if (ok)
				ok = C::decode(a.codec, meta, stored, length, scratch, tile, row);
			if (!ok && tile.lane == 0)
				b.corrupt(f.z);
			tile.sync(); // the scratch is free
		}
	}

	static INLINE u32 miss(const Batch &b, Context meta, u8 *stage, u32x4 f, u32 lane)
	{
		const ServeArgs &a = b.a;
		Miss m;
		if (!b.held(f, lane, m))
			return 0;
		warpSync(~0u); // the stage is free
		const Tile<32> tile = Tile<32>::make();
		Words<SHARED> stored = stageRow<C>(a.codec, meta, m, a.ahead, stage, tile, a.codec.rowBytes >= LINE_ROW);
		if (writeRow<C>(a.codec, meta, m, stored, stage + a.stageBytes, tile))
			return m.length;
		if (lane == 0)
			b.corrupt(m.position);
		return 0;
	}
};

// serveRows serves the batch.
template <class R> INLINE void serveRows(const Batch &b)
{
	extern __shared__ u32x4 dynamic[];
	__shared__ u32x4 lists[WARPS][32];
	__shared__ u32 reasons[NUM_REASONS], peers;
	const ServeArgs &a = b.a;
	u32 tid = threadID(), lane = laneID();
	u64 from = (u64)((blockID() * blockThreads() + tid) / 32) * a.warpRows, moved = 0;
	u32 to = (u32)minimum64(from + a.warpRows, a.lookup.count), below = (1u << lane) - 1, at = (u32)minimum64(from, to);
	// The first row numbers are read before the block waits.
	auto number = [&](u32 at) { return lane < a.part && at + lane < to ? rowAt(a.lookup, at + lane) : -1; };
	i64 row = number(at);
	if (tid < NUM_REASONS)
		reasons[tid] = 0;
	if (tid == 0)
		peers = 0;
	b.begin();
	const typename R::Context context = R::context(a, (u8 *)dynamic);
	b.begun();
	u32x4 *list = lists[tid / 32];
	u8 *stage = (u8 *)dynamic + a.codec.metaBytes + tid / 32 * R::warpBytes(a);
	auto *count = b.counts();
	for (; at < to; at += a.part, row = number(at)) {
		u32 i = at + lane;
		bool in = lane < a.part && i < to;
		bool ok = (u64)row < (u64)b.limit();
		u64 key = (u64)a.lookup.table << 56 | (u64)row, word = ok ? findKey(b.map(), b.buckets(), key) : ~0xffull;
		if (a.lookup.samples.ring != 0) {
			const Sampling &s = b.samples();
			appendSample(s, key, ok ? sampled(s, key, i, !located(word)) : 0, lane);
		}
		u32 hits = ballot(~0u, ok && located(word)), misses = ballot(~0u, ok && !located(word));
		if (hits >> lane & 1) {
			u32 k = popcount(hits & below);
			list[k] = u32x4{(u32)word, (u32)(word >> 32), i, 0};
			if (k < R::TILES && b.prefetches(misses)) // hits prefetches the later ones
				prefetchRow<1>(b, word, 0);
		}
		if (b.peers() != 0) {
			u32 away = ballot(~0u, (hits >> lane & 1) != 0 && inPeers(b.peers(), word));
			if (lane == 0 && away != 0)
				__atomic_fetch_add(&peers, popcount(away), __ATOMIC_RELAXED);
		}
		if (misses != 0) {
			u32 why = NUM_REASONS;
			if (misses >> lane & 1) {
				why = missReason(word, row, b.rejected(), b.oversize());
				list[31 - popcount(misses & below)] = u32x4{(u32)row, (u32)((u64)row >> 32), i, why};
			}
#pragma unroll
			for (u32 k = 0; k < NUM_REASONS; k++) {
				u32 n = popcount(ballot(~0u, why == k));
				if (lane == k && n != 0)
					__atomic_fetch_add(&reasons[k], n, __ATOMIC_RELAXED);
			}
		}
		if (in && !ok)
			b.outOfRange(i);
		warpSync(~0u);
#pragma unroll 1
		for (u32 k = 0; k < popcount(misses); k++)
			moved += R::miss(b, context, stage, list[31 - k], lane);
		R::hits(b, context, stage, list, popcount(hits));
		warpSync(~0u); // the list is free
	}
	if (lane == 0 && moved != 0)
		atomicAdd(&count->hostBytes, moved);
	blockSync();
	if (tid != 0)
		return;
#pragma unroll
	for (u32 k = 0; k < NUM_REASONS; k++)
		if (reasons[k] != 0)
			atomicAdd(&count->reasons[k], reasons[k]);
	if (peers != 0)
		atomicAdd(&count->peers, peers);
	b.end();
}

#ifdef ROW_REPLAY
#define SERVE(lanes)                                                                                                             \
	KERNEL void __launch_bounds__(256, 4) replay##lanes(const ReplayRowsArgs r)                                              \
	{                                                                                                                        \
		__shared__ ReplayNow now;                                                                                        \
		serveRows<Coded<ROW_CODER, lanes>>(Batch{r.replay, r.absent, r.replay.serve, now});                              \
	}
#else
#define SERVE(lanes)                                                                                                             \
	KERNEL void __launch_bounds__(256, 4) serve##lanes(const ServeArgs a)                                                    \
	{                                                                                                                        \
		serveRows<Coded<ROW_CODER, lanes>>(Batch{a});                                                                    \
	}
#endif

// Small batches wait for launches more than for lanes. So one narrow kernel besides the widest is enough, except for the tuned coders.
SERVE(32)
#ifdef ROW_PAIRS
SERVE(16)
#endif
#if ROW_LANES <= 8
SERVE(8)
#endif
