// A batch in a captured graph. A replay begins without host code, so its blocks themselves announce it, each for itself: a block adds 1 to the
// number of blocks that have begun, and only then reads which map, slabs and host tier there are, and what is in them. At its end it adds 1 to
// the number of those that have ended. Whoever withdraws something has a kernel read both numbers, replayLook, and waits for the blocks that
// had begun. So either a block sees what has replaced the withdrawn, or the other side sees the block. Both sides need a sequentially
// consistent fence between their store and their load.
//
// No block waits for another one, and nothing crosses the link.
#pragma once
#include "hash.h"

// ReplayNow is what a block knows of the replay that runs.
struct ReplayNow {
	ReplayView view;
	u64 version; // of the view
	u64 latest;  // what it must be
	u64 number;  // of the replay, from 0 on
};

// readView reads a view. All lanes of a warp call it.
INLINE void readView(const ReplayViews *views, u64 version, ReplayView *view)
{
	constexpr u32 WORDS = sizeof(ReplayView) / 8;
	static_assert(sizeof(ReplayView) % 8 == 0 && WORDS <= 32, "a word a lane");
	if (laneID() < WORDS)
		((u64 *)view)[laneID()] = loadDevice((const u64 *)(views->views + version % REPLAY_TURNS) + laneID());
}

// beginReplay begins to announce the block and to fill now, in shared memory. The last warp announces, and the one before reads the view
// meanwhile, whether or not it will be the latest: the memory of the views stays as long as there are captured batches. All threads call it, then
// wait for each other, then call checkReplay.
INLINE void beginReplay(const ReplayArgs &r, ReplayNow *now)
{
	const ReplayViews *views = (const ReplayViews *)r.views;
	u32 warp = threadID() / 32, last = blockThreads() / 32 - 1;
	if (warp == last && laneID() == 0) {
		u64 before = atomicFetchAdd(&((ReplayState *)r.state)->begun, 1);
		fenceSequential();
		now->latest = loadSystem(&views->version);
		now->number = before / r.blocks;
	}
	if (warp == (last == 0 ? 0 : last - 1)) {
		u64 version = loadSame(&views->version);
		readView(views, version, &now->view);
		if (laneID() == 0)
			now->version = version;
	}
}

// checkReplay reads the latest view, if another one was read. It stays in its place, as the block is announced.
INLINE void checkReplay(const ReplayArgs &r, ReplayNow *now)
{
	if (now->version == now->latest)
		return;
	if (threadID() < 32)
		readView((const ReplayViews *)r.views, now->latest, &now->view);
	blockSync();
}

// endReplay ends a block. One thread calls it, after all have read their last, written and counted.
INLINE void endReplay(const ReplayArgs &r)
{
	fenceDevice();
	atomicAdd(&((ReplayState *)r.state)->ended, 1);
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
