// The reading of misses: see fetch.cu.
#pragma once
#include "merge.h"

// A warp fetches a row. The warps of `blocks` blocks take the misses in turns; block is this one's number among them. LISTED_NOW says that
// the same kernel wrote the list. Shared memory: the metadata, if they fit, then for each warp stageBytes and the scratch.
template <class C, bool LISTED_NOW> INLINE void fetchCoded(const FetchArgs &a, u32 block, u32 blocks)
{
	extern __shared__ u32x4 dynamic[];
	const Tile<32> tile = Tile<32>::make();
	const u8 *meta = metaOf<C>(a.codec, (u8 *)dynamic);
	u8 *stage = (u8 *)dynamic + a.codec.metaBytes + threadID() / 32 * (a.stageBytes + a.codec.scratch);
	u8 *scratch = stage + a.stageBytes;
	u32 misses = ((const Counters *)a.counters)->misses, warps = blocks * (blockThreads() / 32);
	bool byLine = a.codec.rowBytes >= LINE_ROW, merges = mergesRows(a, misses);
	u64 moved = 0;
	for (u32 i = (block * blockThreads() + threadID()) / 32; i < misses; i += warps) {
		u32x4 found = LISTED_NOW ? loadWritten((const u32x4 *)(a.misses + i * a.step)) : loadConst((const u32x4 *)(a.misses + i * a.step));
		Repeats repeats = merges ? repeatsOf(a, i, misses, tile.lane, found) : noRepeats();
		if (!repeats.first)
			continue;
		Miss m = missOf(a, found);
		Words<SHARED> stored = stageRow<C>(a.codec, meta, m, a.ahead, stage, tile, byLine);
		writeRepeats<C>(a, meta, m, repeats, stored, scratch, tile, moved);
	}
	if (tile.lane == 0 && moved != 0)
		addHostBytes(a.counters, moved);
}
