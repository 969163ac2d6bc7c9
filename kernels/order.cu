#include "gpu.h"

// Puts the misses of a batch in the order of their rows' host addresses, by page, in two passes: count the misses of
// each bucket of pages and turn the counts into starts, then place the misses. Within a bucket the order is any.

INLINE u32 bucketOf(const OrderArgs &a, u64 row)
{
	u64 offset = a.tier.stride != 0 ? row * a.tier.stride : offsetAt(loadConst((const u64 *)a.tier.index + row));
	return (u32)(offset >> a.shift);
}

// missAt returns the batch's i-th miss from the back.
INLINE u32x4 missAt(const OrderArgs &a, u32 i) { return loadConst((const u32x4 *)a.found + a.count - 1 - i); }

// The last block to end turns the counts into starts; each of its threads has sixteen buckets. The word behind the buckets
// counts blocks.
KERNEL void __launch_bounds__(1024) orderCountKernel(const OrderArgs a)
{
	__shared__ u32 warps[32];
	__shared__ bool last;
	u32 n = ((const Counters *)a.counters)->misses, tid = threadID(), lane = tid & 31;
	for (u32 i = blockID() * blockThreads() + tid; i < n; i += gridBlocks() * blockThreads()) {
		u32x4 m = missAt(a, i);
		atomicAdd((u32 *)a.buckets + bucketOf(a, (u64)m.y << 32 | m.x), 1);
	}
	asm volatile("fence.acq_rel.gpu;" ::: "memory");
	blockSync();
	if (tid == 0)
		last = atomicAdd((u32 *)a.buckets + ORDER_BUCKETS, 1) == gridBlocks() - 1;
	blockSync();
	if (!last)
		return;
	asm volatile("fence.acq_rel.gpu;" ::: "memory");
	u64x2 *buckets = (u64x2 *)a.buckets + tid * 4;
	u32x4 x[4];
	u32 own = 0;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		u64x2 v = loadShared(buckets + i);
		x[i] = u32x4{(u32)v.x, (u32)(v.x >> 32), (u32)v.y, (u32)(v.y >> 32)};
		own += x[i].x + x[i].y + x[i].z + x[i].w;
	}
	u32 sum = tileScan<32>(~0u, own);
	if (lane == 31)
		warps[tid / 32] = sum;
	blockSync();
	if (tid < 32)
		warps[tid] = tileScan<32>(~0u, warps[tid]) - warps[tid];
	blockSync();
	u32 at = warps[tid / 32] + sum - own;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		((u32x4 *)buckets)[i] = u32x4{at, at + x[i].x, at + x[i].x + x[i].y, at + x[i].x + x[i].y + x[i].z};
		at += x[i].x + x[i].y + x[i].z + x[i].w;
	}
}
static_assert(ORDER_BUCKETS == 1024 * 16, "sixteen a thread");

KERNEL void orderPlaceKernel(const OrderArgs a)
{
	u32 n = ((const Counters *)a.counters)->misses;
	for (u32 i = blockID() * blockThreads() + threadID(); i < n; i += gridBlocks() * blockThreads()) {
		u32x4 m = missAt(a, i);
		u32 at = atomicAdd((u32 *)a.buckets + bucketOf(a, (u64)m.y << 32 | m.x), 1);
		((u32x4 *)a.ordered)[at] = m;
	}
}
