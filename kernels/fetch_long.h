// Long missed rows of IBP with one mask, and of tables without a codec: a block fetches a row, in segments.
#pragma once
#include "ibp.h"
#include "miss.h"

// A block fetches a row. As in decodeLongRows, it first reads the participation bits in place, from which the segments' bit positions
// follow. Then each warp stages and decodes segments. Shared memory: for each warp stageBytes, which is room for a whole segment.
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
			u32 bits = headBits(a.codec) + meta.keptBefore(from) + excess[s];
			u32 end = headBits(a.codec) + excess[s + 1] + (to < a.codec.quads ? meta.keptBefore(to) : keptBits(a.codec));
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
