#include "merge.h"
#include "publish.h"

// Reads the misses of a batch from the host tier, over the link, and writes their rows to the output. Compiled once for
// each ROW_CHUNK, as decode.cu is.
//
// A row's bytes go to shared memory by asynchronous copies whose lanes ask for aligned lines of 128 bytes, the first and last
// line trimmed to sectors of 32 bytes: 16 bytes a lane, so that a warp asks for four lines at once, or in rows of
// LINE_ROW and more 4 bytes a lane, one line after the other. Seen on an H200 over PCIe 5: 53 against 46 GB/s at 512 bytes,
// but 49 against 57 at 2408.
//
// The length of a compressed row in place is not known before its participation bits are there: so many bytes are read
// first, the rest, seldom more than a sector, once the bits have said where the row ends.

// A warp fetches a row; the warps of the grid take the misses in turns. Shared memory: the codec's metadata, then stageBytes for
// each warp.
template <int CHUNK, int STEPS> INLINE void fetchRows(const FetchArgs &a)
{
	extern __shared__ u32x4 dynamic[];
	constexpr int C = CHUNK ? CHUNK : 4;
	if (CHUNK != 0)
		loadMeta(a.codec, (u8 *)dynamic);
	Meta<SHARED, STEPS> meta{(const u8 *)dynamic};
	u32 lane = laneID();
	u8 *stage = (u8 *)dynamic + a.codec.metaBytes + threadID() / 32 * a.stageBytes;
	u32 misses = ((const Counters *)a.counters)->misses, warps = gridBlocks() * (blockThreads() / 32);
	bool byLine = a.codec.rowBytes >= LINE_ROW, merges = mergesRows(a, misses);
	u64 moved = 0;
	for (u32 i = (blockID() * blockThreads() + threadID()) / 32; i < misses; i += warps) {
		u32x4 found = loadConst((const u32x4 *)(a.misses + i * a.step));
		Peers peers = merges ? peersOf(a, i, misses, lane, found) : noPeers();
		if (!peers.first)
			continue;
		Miss m = missOf(a, found);
		bool ok = !m.compressed || CHUNK != 0;
		u64 base = m.at & ~127ull;
		Words<SHARED> words{(const u32 *)(stage + (m.at - base)), 0, (m.length + 3) / 4};
		if (ok) {
			u32 first = m.known ? m.length : minimum(a.ahead, m.length);
			stageBytes<32>(stage, base, m.at, m.at + first, lane, byLine);
			copyWait();
			warpSync(~0u);
			if (m.compressed && !m.known) {
				u32 length = storedBytes(a.codec, tileExcess<C, 32>(words, meta, ~0u, lane, 0, a.codec.quads));
				ok = length <= m.length;
				m.length = minimum(length, m.length);
				u64 have = (m.at + first + 31) & ~31ull;
				if (m.at + m.length > have) {
					stageBytes<32>(stage, base, have, m.at + m.length, lane, byLine);
					copyWait();
				}
				warpSync(~0u);
			}
		}
		do {
			if (peers.left())
				m.position = peers.next(), m.row = (u8 *)a.out + (u64)m.position * a.codec.rowBytes;
			bool whole = ok;
			if (!m.compressed) {
				tileCopy<32>(a.codec, words, lane, m.row);
			} else if (CHUNK != 0) {
				u32 excess = tileDecode<C, STEPS, 32>(a.codec, words, words, meta, ~0u, lane, 0, a.codec.quads, 0, m.row);
				whole = ok && storedBytes(a.codec, excess) == m.length;
			}
			if (whole)
				moved += m.length;
			else if (lane == 0)
				corruptRow(a.counters, m.position);
		} while (peers.left());
		warpSync(~0u); // the stage is free
	}
	if (lane == 0 && moved != 0)
		addHostBytes(a.counters, moved);
}

// A block fetches a row: its participation bits are read in place for the segments' bit positions, as in decodeLongRows;
// then each warp stages and decodes segments. Shared memory: stageBytes for each warp, enough for a segment whole.
template <int CHUNK, int STEPS> INLINE void fetchLongRows(const FetchArgs &a)
{
	extern __shared__ u32x4 dynamic[];
	__shared__ u32 excess[MAX_SEGMENTS + 1];
	constexpr int C = CHUNK ? CHUNK : 4;
	Meta<GLOBAL, STEPS> meta{(const u8 *)a.codec.meta};
	u32 tid = threadID(), lane = tid & 31, warp = tid / 32, warps = blockThreads() / 32;
	u8 *stage = (u8 *)dynamic + warp * a.stageBytes;
	u32 misses = ((const Counters *)a.counters)->misses;
	u32 segments = (a.codec.quads + SEGMENT_QUADS - 1) / SEGMENT_QUADS;
	for (u32 i = blockID(); i < misses; i += gridBlocks()) {
		Miss m = missOf(a, loadConst((const u32x4 *)(a.misses + i * a.step)));
		if (m.compressed && CHUNK == 0) {
			if (tid == 0)
				corruptRow(a.counters, m.position);
			continue;
		}
		if (!m.compressed) {
			for (u32 s = warp; s < segments; s += warps) {
				u32 from = s * SEGMENT_QUADS, to = minimum(from + SEGMENT_QUADS, a.codec.quads);
				u64 start = m.at + from * 16, base = start & ~127ull;
				stageBytes<32>(stage, base, start, m.at + minimum(to * 16, m.length), lane, true);
				copyWait();
				warpSync(~0u);
				const u32 *words = (const u32 *)(stage + (start - base));
				for (u32 q = from + lane; q < to; q += 32) {
					const u32 *w = words + (q - from) * 4;
					storeQuad(m.row, q, u32x4{w[0], w[1], w[2], w[3]}, a.codec.rowBytes, a.codec.store);
				}
				warpSync(~0u);
			}
			if (tid == 0)
				addHostBytes(a.counters, m.length);
			continue;
		}
		Words<GLOBAL> header{(const u32 *)m.at, 0, (m.length + 3) / 4};
		blockSync(); // excess is free
		for (u32 s = warp; s < segments; s += warps) {
			u32 from = s * SEGMENT_QUADS, to = minimum(from + SEGMENT_QUADS, a.codec.quads);
			u32 sum = tileExcess<C, 32>(header, meta, ~0u, lane, from, to);
			if (lane == 0)
				excess[s + 1] = sum;
		}
		blockSync();
		if (tid == 0) {
			excess[0] = 0;
			for (u32 s = 0; s < segments; s++)
				excess[s + 1] += excess[s];
			u32 length = storedBytes(a.codec, excess[segments]);
			if (m.known ? length == m.length : length <= m.length)
				addHostBytes(a.counters, length);
			else
				corruptRow(a.counters, m.position);
		}
		blockSync();
		u32 limit = (m.length + 3) / 4;
		for (u32 s = warp; s < segments; s += warps) {
			u32 from = s * SEGMENT_QUADS, to = minimum(from + SEGMENT_QUADS, a.codec.quads);
			u32 bits = a.codec.chunks + meta.keptBefore(from) + excess[s];
			u32 end = a.codec.chunks + excess[s + 1] + (to < a.codec.quads ? meta.keptBefore(to) : a.codec.keptBits);
			u32 word = minimum(bits / 32, limit), wordEnd = minimum((end + 31) / 32, limit);
			u64 start = m.at + (u64)word * 4, base = start & ~127ull;
			stageBytes<32>(stage, base, start, m.at + (u64)wordEnd * 4, lane, true);
			copyWait();
			warpSync(~0u);
			Words<SHARED> words{(const u32 *)(stage + (start - base)), word, limit};
			tileDecode<C, STEPS, 32>(a.codec, header, words, meta, ~0u, lane, from, to, excess[s], m.row);
			warpSync(~0u);
		}
	}
}

#define FETCH(steps)                                                                                                             \
	KERNEL void __launch_bounds__(256) fetch32x##steps(const FetchArgs a)                                                        \
	{                                                                                                                           \
		if (missesOf(a) != 0)                                                                                           \
			fetchRows<ROW_CHUNK, steps>(a);                                                                         \
		endBatch<END_FETCH>(a.counters, a.end);                                                                         \
	}                                                                                                                           \
	KERNEL void __launch_bounds__(256) fetchLongx##steps(const FetchArgs a)                                                      \
	{                                                                                                                           \
		fetchLongRows<ROW_CHUNK, steps>(a);                                                                             \
		endBatch<END_FETCH>(a.counters, a.end);                                                                         \
	}

#if ROW_CHUNK == 4
FETCH(3)
FETCH(5)
#elif ROW_CHUNK == 8
FETCH(4)
FETCH(6)
#else
FETCH(0)
#endif
