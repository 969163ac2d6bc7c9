// A batch in a captured graph. A replay begins without host code, so its blocks themselves announce it, each for itself: a block adds 1 to the
// number of blocks that have begun, and only then reads which map, slabs and host tier there are. At its end it adds 1 to the number of those
// that have ended. Whoever withdraws something reads both numbers and waits for the blocks that had begun. So either a block sees what has
// replaced the withdrawn, or the other side sees the block. Both sides need a sequentially consistent fence between their store and their
// load; the other side's is the end of the kernel or copy that withdraws, before the copy that reads the numbers.
//
// No block waits for another one, and nothing crosses the link: on an H200 a store to host memory, its fence, a second kernel and a last block
// that publishes took 7 us more.
#pragma once
#include "hash.h"

// ReplayNow is what a block knows of the replay that runs: what there is to read, and the replay's number, from 0 on.
struct ReplayNow {
	ReplayView view;
	u64 number;
};

// beginReplay announces the block and fills now, in shared memory, for which the block's threads must wait. One warp calls it. The view is read
// before the announcement, so that this takes no time of its own, and taken if its version is still the same afterwards. The memory of views
// stays as long as there are captured batches.
INLINE void beginReplay(const ReplayArgs &r, ReplayNow *now)
{
	constexpr u32 WORDS = sizeof(ReplayView) / 8;
	static_assert(sizeof(ReplayView) % 8 == 0 && WORDS <= 32, "a word a lane");
	const ReplayViews *views = (const ReplayViews *)r.views;
	u32 lane = laneID();
	u64 before = 0, word = 0;
	if (lane == 0)
		before = addSystem(&((ReplayState *)r.state)->begun, 1);
	u64 version = loadSystem(&views->version);
	if (lane < WORDS)
		word = loadDevice((const u64 *)(views->views + version % REPLAY_TURNS) + lane);
	warpSync(~0u);
	if (lane == 0)
		fenceSequential();
	warpSync(~0u);
	u64 latest = loadSystem(&views->version);
	if (lane < WORDS) {
		if (latest != version)
			word = loadDevice((const u64 *)(views->views + latest % REPLAY_TURNS) + lane);
		((u64 *)&now->view)[lane] = word;
	}
	if (lane == 0)
		now->number = before / r.blocks;
}

// endReplay ends a block. One thread calls it, after all have read their last and counted.
INLINE void endReplay(const ReplayArgs &r)
{
	fenceSystem();
	addSystem(&((ReplayState *)r.state)->ended, 1);
}

// The functions below are called, not inlined, so that they take no registers of the kernels that use them.

// corruptReplayed counts a row that does not decode.
ASIDE void corruptReplayed(u64 counts, u32 position)
{
	ReplayCounts *count = (ReplayCounts *)counts;
	count->corruptPosition = position;
	atomicAdd(&count->corrupt, 1);
}

// rangeReplayed counts a row number outside the table and zeroes its output row.
ASIDE void rangeReplayed(u64 counts, u64 number, u64 out, u32 rowBytes, u32 position)
{
	ReplayCounts *count = (ReplayCounts *)counts;
	atomicAdd(&count->outOfRange, 1);
	atomicMax(&count->first, number << 31 | (~position & 0x7fffffff));
	u8 *row = (u8 *)out + (u64)position * rowBytes;
	for (u32 b = 0; b < rowBytes; b++)
		row[b] = 0;
}
