// Counts the misses of a batch by the page of the host tier that their rows lie in. A bucket is one page or several. From the counts follow
// the places at which the misses of each bucket begin when they are put in the order of their rows' addresses. The memory holds the counts,
// the starts, and the number of blocks that have ended. Counts and that number are zero before and after a batch.
#pragma once
#include "gpu.h"

INLINE u32 bucketOf(const PageArgs &p, u64 row)
{
	u64 offset = p.stride != 0 ? row * p.stride : offsetAt(loadConst((const u64 *)p.index + row));
	return (u32)(offset >> p.shift);
}

INLINE void countMiss(const PageArgs &p, u64 row) { atomicAdd((u32 *)p.buckets + bucketOf(p, row), 1); }

// countsOf adds up four counts.
INLINE u32 countsOf(u64x2 four) { return (u32)four.x + (u32)(four.x >> 32) + (u32)four.y + (u32)(four.y >> 32); }

// endCounting turns the counts into starts and zeroes the counts. The last block of the grid that calls it does the work. All THREADS threads
// of a block call it after they have counted. warps is shared memory that nobody else uses, a word for each warp.
template <u32 THREADS> INLINE void endCounting(const PageArgs &p, u32 *warps)
{
	constexpr u32 WARPS = THREADS / 32, ROUND = 32 * 4, ROUNDS = ORDER_BUCKETS / WARPS / ROUND; // a warp's buckets are neighbours
	u32 *counts = (u32 *)p.buckets, *starts = counts + ORDER_BUCKETS, *ended = starts + ORDER_BUCKETS;
	u32 tid = threadID(), lane = tid & 31, warp = tid / 32;
	blockSync();
	if (tid == 0) {
		fenceDevice();
		warps[0] = atomicAdd(ended, 1);
		fenceDevice();
	}
	blockSync();
	u32 before = warps[0];
	blockSync();
	if (before != gridBlocks() - 1)
		return;
	u32 first = warp * ROUNDS * ROUND + lane * 4, sum = 0;
#pragma unroll 4
	for (u32 r = 0; r < ROUNDS; r++)
		sum += countsOf(loadShared((const u64x2 *)(counts + first + r * ROUND)));
	sum = warpSum(sum);
	if (lane == 0)
		warps[warp] = sum;
	blockSync();
	u32 at = warpSum(lane < warp ? warps[lane] : 0);
#pragma unroll 4
	for (u32 r = 0; r < ROUNDS; r++) {
		u64x2 *own = (u64x2 *)(counts + first + r * ROUND);
		u64x2 four = loadShared(own);
		u32 x = (u32)four.x, y = (u32)(four.x >> 32), z = (u32)four.y;
		u32 through = tileScan<32>(~0u, countsOf(four)), from = at + through - countsOf(four);
		*(u32x4 *)(starts + first + r * ROUND) = u32x4{from, from + x, from + x + y, from + x + y + z};
		*own = u64x2{0, 0};
		at += tileFrom<32>(~0u, through, 31);
	}
	if (tid == 0)
		*ended = 0;
}
