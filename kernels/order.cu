#include "order.h"

// Puts the misses of a batch in the order of their rows' host addresses, by page: where no lookup has counted the misses of each bucket
// of pages, count them, and then place them. Within a bucket the order is any.
constexpr u32 THREADS = 1024; // of a block that counts

// missAt returns the batch's i-th miss from the back.
INLINE u32x4 missAt(const OrderArgs &a, u32 i) { return loadConst((const u32x4 *)a.found + a.count - 1 - i); }

KERNEL void __launch_bounds__(1024) orderCountKernel(const OrderArgs a)
{
	__shared__ u32 warps[THREADS / 32];
	u32 n = ((const Counters *)a.counters)->misses;
	for (u32 i = blockID() * blockThreads() + threadID(); i < n; i += gridBlocks() * blockThreads()) {
		u32x4 m = missAt(a, i);
		countMiss(a.pages, (u64)m.y << 32 | m.x);
	}
	endCounting<THREADS>(a.pages, warps);
}

KERNEL void orderPlaceKernel(const OrderArgs a)
{
	u32 n = ((const Counters *)a.counters)->misses;
	for (u32 i = blockID() * blockThreads() + threadID(); i < n; i += gridBlocks() * blockThreads()) {
		u32x4 m = missAt(a, i);
		u32 at = atomicAdd((u32 *)a.pages.buckets + ORDER_BUCKETS + bucketOf(a.pages, (u64)m.y << 32 | m.x), 1);
		((u32x4 *)a.ordered)[at] = m;
	}
}
