#ifdef ROW_CODER
#include "coder_fetch.h"
#else
#include "fetch.h"
#endif
#include "find.h"
#include "publish.h"
#include "sample.h"

// Looks up the rows of a batch and writes them, hits from the slabs and misses from the host tier, in one launch. Compiled
// once for each ROW_CHUNK, as decode.cu is, and for each ROW_CODER.
//
// Each warp goes its own way over warpRows rows, a part at a time: a lane looks up a row, the warp's list takes hits from the
// front and misses from the back, warps fetch misses and tiles decode hits. So no list leaves the multiprocessor, and the
// lookups of some warps hide behind the decoding of others. Shared memory: the codec's metadata, then stageBytes for each
// warp. The last block to end publishes the counters.
//
// Measured on an H200, 200,000 hits: the 64 registers that four blocks an SM leave are best from 256 to 1024 bytes (154 us at
// 1024; 168 with the 79 registers of three blocks, and 114 against 94 at 512 with the 48 of five), and cost 1 % at 4096, where
// shared memory leaves three blocks. Asking the L2 for all hits of a part at once, not for the next one of each tile, takes
// 110 us at 512 bytes against 91.
constexpr u32 WARPS = 8; // of a block, at most

INLINE u64 slabOf(const ServeArgs &a, u64 word)
{
	u64 slab = a.slabs[0];
#pragma unroll
	for (u32 i = 1; i < MAX_SLABS; i++) // selects, not an indexed parameter
		slab = slabAt(word) == i ? a.slabs[i] : slab;
	return slab;
}

INLINE u8 *rowOf(const ServeArgs &a, u32 position) { return (u8 *)a.lookup.out + (u64)position * a.codec.rowBytes; }

// prefetchRow asks the L2 for a hit's bytes, by LANES lanes.
template <int LANES> INLINE void prefetchRow(const ServeArgs &a, u64 word, u32 lane)
{
	const u8 *p = (const u8 *)slabOf(a, word) + offsetAt(word);
	u32 length = compressedAt(word) ? storedAt(word) : a.codec.rowBytes;
	for (u32 o = lane * 128; o < length; o += LANES * 128)
		prefetchL2(p + o);
}

INLINE u64 wordOf(u32x4 f) { return (u64)f.y << 32 | f.x; }

#ifndef ROW_CODER
// Rows are served by IBP's kernels or, below, by a coder: hits and miss are given what context returns. TILES is the tiles of a warp that
// decode hits.
template <int CHUNK, int STEPS, int LANES> struct Rows {
	using Context = Meta<SHARED, STEPS>;
	static INLINE Context context(const ServeArgs &a, u8 *shared)
	{
		if (CHUNK != 0)
			loadMeta(a.codec, shared);
		else
			blockSync();
		return Context{shared};
	}
	static constexpr u32 TILES = 32 / LANES;
	static INLINE u32 warpBytes(const ServeArgs &a) { return a.stageBytes; }

	// hits decodes the hits of a list, a tile of LANES lanes each.
	static INLINE void hits(const ServeArgs &a, const Context &meta, const u8 *, const u32x4 *list, u32 hits)
	{
		u32 lane = laneID() % LANES;
		u32 lanes = LANES == 32 ? ~0u : ((1u << (LANES & 31)) - 1) << (laneID() & ~(LANES - 1));
		for (u32 i = laneID() / LANES; i < hits; i += TILES) {
			u32x4 f = list[i];
			u64 word = wordOf(f);
			if (i + TILES < hits)
				prefetchRow<LANES>(a, wordOf(list[i + TILES]), lane);
			const u32 *stored = (const u32 *)(slabOf(a, word) + offsetAt(word));
			u8 *row = rowOf(a, f.z);
			if (!compressedAt(word)) {
				tileCopy<LANES>(a.codec, Words<GLOBAL>{stored, 0, (a.codec.rowBytes + 3) / 4}, lane, row);
				continue;
			}
			if (CHUNK == 0) {
				if (lane == 0)
					corruptRow(a.lookup.counters, f.z);
				continue;
			}
			u32 length = storedAt(word);
			Words<GLOBAL> words{stored, 0, (length + 3) / 4};
			u32 excess = tileDecode<CHUNK ? CHUNK : 4, STEPS, LANES>(a.codec, words, words, meta, lanes, lane, 0, a.codec.quads, 0, row);
			if (lane == 0 && (storedBytes(a.codec, excess) != length || length >= a.codec.rowBytes))
				corruptRow(a.lookup.counters, f.z);
		}
	}

	// miss fetches a row and returns its stored bytes, 0 if it is corrupt.
	static INLINE u32 miss(const ServeArgs &a, const Context &meta, u8 *stage, u32x4 f, u32 lane)
	{
		constexpr int C = CHUNK ? CHUNK : 4;
		Miss m = missOf(a.tier, a.lookup.out, a.codec.rowBytes, f);
		if (m.compressed && CHUNK == 0) {
			if (lane == 0)
				corruptRow(a.lookup.counters, m.position);
			return 0;
		}
		auto staged = [&](u64 base, u64 from, u64 to) {
			stageBytes<32>(stage, base, from, to, lane, a.codec.rowBytes >= LINE_ROW);
			copyWait();
			warpSync(~0u);
		};
		u64 base = m.at & ~127ull;
		u32 first = m.known ? m.length : minimum(a.ahead, m.length);
		warpSync(~0u); // the stage is free
		staged(base, m.at, m.at + first);
		Words<SHARED> words{(const u32 *)(stage + (m.at - base)), 0, (m.length + 3) / 4};
		if (!m.compressed) {
			tileCopy<32>(a.codec, words, lane, m.row);
			return m.length;
		}
		bool ok = true;
		if (!m.known) {
			u32 length = storedBytes(a.codec, tileExcess<C, 32>(words, meta, ~0u, lane, 0, a.codec.quads));
			ok = length <= m.length;
			m.length = minimum(length, m.length);
			u64 have = (m.at + first + 31) & ~31ull;
			if (m.at + m.length > have)
				staged(base, have, m.at + m.length);
		}
		u32 excess = tileDecode<C, STEPS, 32>(a.codec, words, words, meta, ~0u, lane, 0, a.codec.quads, 0, m.row);
		if (ok && storedBytes(a.codec, excess) == m.length)
			return m.length;
		if (lane == 0)
			corruptRow(a.lookup.counters, m.position);
		return 0;
	}
};
#else
template <class C, int N> struct Coded {
	using Context = const u8 *; // the metadata
	static constexpr u32 TILES = 32 / N;
	static INLINE Context context(const ServeArgs &a, u8 *shared)
	{
		if (a.codec.metaBytes == 0)
			blockSync();
		return metaOf(a.codec, shared);
	}
	static INLINE u32 warpBytes(const ServeArgs &a) { return a.stageBytes + TILES * a.codec.scratch; }

	static INLINE void hits(const ServeArgs &a, Context meta, u8 *stage, const u32x4 *list, u32 hits)
	{
		const Tile<N> tile = Tile<N>::make();
		u8 *scratch = stage + a.stageBytes + laneID() / N * a.codec.scratch;
		for (u32 i = laneID() / N; i < hits; i += TILES) {
			u32x4 f = list[i];
			u64 word = wordOf(f);
			if (i + TILES < hits)
				prefetchRow<N>(a, wordOf(list[i + TILES]), tile.lane);
			u8 *row = rowOf(a, f.z);
			bool raw = !compressedAt(word);
			u32 length = raw ? a.codec.rowBytes : storedAt(word);
			bool ok = raw || length - 1 < a.codec.rowBytes - 1;
			Words<GLOBAL> stored{(const u32 *)(slabOf(a, word) + offsetAt(word)), 0, ok ? (length + 3) / 4 : 0};
			if (raw)
				tileCopy<N>(a.codec, stored, tile.lane, row);
			else if (ok)
				ok = C::decode(a.codec, meta, stored, length, scratch, tile, row);
			if (!ok && tile.lane == 0)
				corruptRow(a.lookup.counters, f.z);
			tile.sync(); // the scratch is free
		}
	}

	static INLINE u32 miss(const ServeArgs &a, Context meta, u8 *stage, u32x4 f, u32 lane)
	{
		Miss m = missOf(a.tier, a.lookup.out, a.codec.rowBytes, f);
		warpSync(~0u); // the stage is free
		const Tile<32> tile = Tile<32>::make();
		Words<SHARED> stored = stageRow<C>(a.codec, meta, m, a.ahead, stage, tile, a.codec.rowBytes >= LINE_ROW);
		if (writeRow<C>(a.codec, meta, m, stored, stage + a.stageBytes, tile))
			return m.length;
		if (lane == 0)
			corruptRow(a.lookup.counters, m.position);
		return 0;
	}
};
#endif

template <class R> INLINE void serveRows(const ServeArgs &a)
{
	extern __shared__ u32x4 dynamic[];
	__shared__ u32x4 lists[WARPS][32];
	__shared__ u32 reasons[NUM_REASONS], peers;
	u32 tid = threadID(), lane = laneID();
	if (tid < NUM_REASONS)
		reasons[tid] = 0;
	if (tid == 0)
		peers = 0;
	const typename R::Context context = R::context(a, (u8 *)dynamic);
	u32x4 *list = lists[tid / 32];
	u8 *stage = (u8 *)dynamic + a.codec.metaBytes + tid / 32 * R::warpBytes(a);
	Counters *count = (Counters *)a.lookup.counters;
	u64 from = (u64)((blockID() * blockThreads() + tid) / 32) * a.warpRows, moved = 0;
	u32 to = (u32)minimum64(from + a.warpRows, a.lookup.count), below = (1u << lane) - 1;
	for (u32 at = (u32)minimum64(from, to); at < to; at += a.part) {
		u32 i = at + lane;
		bool in = lane < a.part && i < to;
		i64 row = in ? rowAt(a.lookup, i) : -1;
		bool ok = (u64)row < (u64)a.lookup.limit;
		u64 key = (u64)a.lookup.table << 56 | (u64)row, word = ok ? findKey(a.lookup.map, a.lookup.buckets, key) : ~0xffull;
		if (a.lookup.samples.ring != 0)
			appendSample(a.lookup.samples, key, ok ? sampled(a.lookup.samples, key, i) : 0, lane);
		u32 hits = ballot(~0u, ok && located(word)), misses = ballot(~0u, ok && !located(word));
		if (hits >> lane & 1) {
			u32 k = popcount(hits & below);
			list[k] = u32x4{(u32)word, (u32)(word >> 32), i, 0};
			if (k < R::TILES) // later ones are asked for by the decoder
				prefetchRow<1>(a, word, 0);
		}
		if (a.lookup.peers != 0) {
			u32 away = ballot(~0u, (hits >> lane & 1) != 0 && inPeers(a.lookup.peers, word));
			if (lane == 0 && away != 0)
				__atomic_fetch_add(&peers, popcount(away), __ATOMIC_RELAXED);
		}
		if (misses != 0) {
			u32 why = NUM_REASONS;
			if (misses >> lane & 1) {
				why = missReason(word, row, a.lookup.rejected, a.lookup.oversize);
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
			rangeAside(a.lookup.counters, a.lookup.out, a.codec.rowBytes, i);
		warpSync(~0u);
#pragma unroll 1
		for (u32 k = 0; k < popcount(misses); k++)
			moved += R::miss(a, context, stage, list[31 - k], lane);
		R::hits(a, context, stage, list, popcount(hits));
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

#define SERVE(name, ...)                                                                                                         \
	KERNEL void __launch_bounds__(256, 4) name(const ServeArgs a) { serveRows<__VA_ARGS__>(a); }
#define SERVES(steps)                                                                                                            \
	SERVE(serve8x##steps, Rows<ROW_CHUNK, steps, 8>)                                                                          \
	SERVE(serve16x##steps, Rows<ROW_CHUNK, steps, 16>)                                                                        \
	SERVE(serve32x##steps, Rows<ROW_CHUNK, steps, 32>)

#ifdef ROW_CODER
// Small batches wait for launches more than for lanes: one narrow kernel is enough.
SERVE(serve32, Coded<ROW_CODER, 32>)
#if ROW_LANES <= 8
SERVE(serve8, Coded<ROW_CODER, 8>)
#endif
#elif ROW_CHUNK == 4
SERVES(3)
SERVES(5)
#elif ROW_CHUNK == 8
SERVES(4)
SERVES(6)
#else
SERVES(0)
#endif
