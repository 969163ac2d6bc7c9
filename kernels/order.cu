#include "gpu.h"

// Puts the misses of a batch in the order of their rows' host addresses, by page, in two passes: count the misses of
// each bucket of pages, the last block turning the counts into starts, and place the misses. Within a bucket the order is
// any. Buckets are the counts, the starts and the blocks that have ended; counts and blocks are zero before and after.
constexpr u32 THREADS = 1024, OWN = ORDER_BUCKETS / THREADS; // a thread's buckets, in the block that scans them

INLINE u32 bucketOf(const OrderArgs &a, u64 row)
{
	u64 offset = a.tier.stride != 0 ? row * a.tier.stride : offsetAt(loadConst((const u64 *)a.tier.index + row));
	return (u32)(offset >> a.shift);
}

// missAt returns the batch's i-th miss from the back.
INLINE u32x4 missAt(const OrderArgs &a, u32 i) { return loadConst((const u32x4 *)a.found + a.count - 1 - i); }

KERNEL void __launch_bounds__(1024) orderCountKernel(const OrderArgs a)
{
	__shared__ u32 warps[THREADS / 32], before;
	u32 n = ((const Counters *)a.counters)->misses, tid = threadID();
	u32 *counts = (u32 *)a.buckets, *starts = counts + ORDER_BUCKETS, *ended = starts + ORDER_BUCKETS;
	for (u32 i = blockID() * blockThreads() + tid; i < n; i += gridBlocks() * blockThreads()) {
		u32x4 m = missAt(a, i);
		atomicAdd(counts + bucketOf(a, (u64)m.y << 32 | m.x), 1);
	}
	blockSync();
	if (tid == 0) {
		fenceDevice();
		before = atomicAdd(ended, 1);
		fenceDevice();
	}
	blockSync();
	if (before != gridBlocks() - 1)
		return;
	u64x2 own[OWN / 4]; // four counts each
	u32 sum = 0;
#pragma unroll
	for (u32 i = 0; i < OWN / 4; i++) {
		own[i] = loadShared((const u64x2 *)(counts + tid * OWN) + i);
		sum += (u32)own[i].x + (u32)(own[i].x >> 32) + (u32)own[i].y + (u32)(own[i].y >> 32);
		((u64x2 *)(counts + tid * OWN))[i] = u64x2{0, 0};
	}
	u32 to = tileScan<32>(~0u, sum);
	if (tid % 32 == 31)
		warps[tid / 32] = to;
	blockSync();
	if (tid < 32) {
		u32 w = tid < THREADS / 32 ? warps[tid] : 0, all = tileScan<32>(~0u, w);
		if (tid < THREADS / 32)
			warps[tid] = all - w;
	}
	blockSync();
	u32 at = warps[tid / 32] + to - sum;
#pragma unroll
	for (u32 i = 0; i < OWN / 4; i++) {
		u32 x = (u32)own[i].x, y = (u32)(own[i].x >> 32), z = (u32)own[i].y, w = (u32)(own[i].y >> 32);
		((u32x4 *)(starts + tid * OWN))[i] = u32x4{at, at + x, at + x + y, at + x + y + z};
		at += x + y + z + w;
	}
	if (tid == 0)
		*ended = 0;
}

KERNEL void orderPlaceKernel(const OrderArgs a)
{
	u32 n = ((const Counters *)a.counters)->misses;
	for (u32 i = blockID() * blockThreads() + threadID(); i < n; i += gridBlocks() * blockThreads()) {
		u32x4 m = missAt(a, i);
		u32 at = atomicAdd((u32 *)a.buckets + ORDER_BUCKETS + bucketOf(a, (u64)m.y << 32 | m.x), 1);
		((u32x4 *)a.ordered)[at] = m;
	}
}
