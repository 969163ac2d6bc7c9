#include "gpu.h"

// Puts the misses of a batch in the order of their rows' host addresses, by page, in three passes: count the misses of
// each bucket of pages, turn the counts into starts, place the misses. Within a bucket the order is any.

INLINE u32 bucketOf(const OrderArgs &a, u64 row)
{
	u64 offset = a.tier.stride != 0 ? row * a.tier.stride : offsetAt(loadConst((const u64 *)a.tier.index + row));
	return (u32)(offset >> a.shift);
}

// missAt returns the batch's i-th miss from the back.
INLINE u32x4 missAt(const OrderArgs &a, u32 i) { return loadConst((const u32x4 *)a.found + a.count - 1 - i); }

KERNEL void orderCountKernel(const OrderArgs a)
{
	u32 n = ((const Counters *)a.counters)->misses;
	for (u32 i = blockID() * blockThreads() + threadID(); i < n; i += gridBlocks() * blockThreads()) {
		u32x4 m = missAt(a, i);
		atomicAdd((u32 *)a.buckets + bucketOf(a, (u64)m.y << 32 | m.x), 1);
	}
}

// One block of 1024 threads, each with four buckets.
KERNEL void __launch_bounds__(1024) orderScanKernel(const OrderArgs a)
{
	__shared__ u32 warps[32];
	u32 tid = threadID(), lane = tid & 31;
	u32x4 n = ((u32x4 *)a.buckets)[tid];
	u32 own = n.x + n.y + n.z + n.w, sum = tileScan<32>(~0u, own);
	if (lane == 31)
		warps[tid / 32] = sum;
	blockSync();
	if (tid < 32)
		warps[tid] = tileScan<32>(~0u, warps[tid]) - warps[tid];
	blockSync();
	u32 at = warps[tid / 32] + sum - own;
	u32x4 starts = {at, at + n.x, at + n.x + n.y, at + n.x + n.y + n.z};
	((u32x4 *)a.buckets)[tid] = starts;
}

KERNEL void orderPlaceKernel(const OrderArgs a)
{
	u32 n = ((const Counters *)a.counters)->misses;
	for (u32 i = blockID() * blockThreads() + threadID(); i < n; i += gridBlocks() * blockThreads()) {
		u32x4 m = missAt(a, i);
		u32 at = atomicAdd((u32 *)a.buckets + bucketOf(a, (u64)m.y << 32 | m.x), 1);
		((u32x4 *)a.ordered)[at] = m;
	}
}
