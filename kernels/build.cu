#include "hash.h"

// Builds a hashmap of all its entries at once, to the bytes of hashmap.Build: entries are sorted by hash, here by counting
// those of each home bucket and sorting the few of each by insertion; entry i of that order then lies at slot i + the
// greatest 4 h - starts[h] over homes h up to its own, which is at its home or right after its predecessor.

INLINE u32 homeOfKey(const BuildArgs &a, u64 key) { return homeOf(hashOf(key), a.homes); }

KERNEL void buildCountKernel(const BuildArgs a)
{
	const u64x2 *entries = (const u64x2 *)a.entries;
	for (u32 i = blockID() * blockThreads() + threadID(); i < a.count; i += gridBlocks() * blockThreads())
		atomicAdd((u32 *)a.starts + homeOfKey(a, entries[i].x), 1);
}

struct Add {
	INLINE static u32 zero() { return 0; }
	INLINE static u32 of(u32 a, u32 b) { return a + b; }
};

// Max is of signed numbers.
struct Max {
	INLINE static u32 zero() { return 0x80000000; }
	INLINE static u32 of(u32 a, u32 b) { return (int)a > (int)b ? a : b; }
};

// blockScan returns what OP makes of the values of the threads before, and of all of a block of 1024.
template <class OP> INLINE u32 blockScan(u32 x, u32 &all)
{
	__shared__ u32 warps[33];
	u32 lane = laneID(), warp = threadID() / 32, sum = x;
#pragma unroll
	for (u32 d = 1; d < 32; d *= 2) {
		u32 before = tileFrom<32>(~0u, sum, lane - d);
		if (lane >= d)
			sum = OP::of(before, sum);
	}
	u32 before = tileFrom<32>(~0u, sum, lane - 1);
	blockSync();
	if (lane == 31)
		warps[warp] = sum;
	blockSync();
	if (threadID() == 0) {
		u32 total = OP::zero();
		for (u32 w = 0; w < 32; w++) {
			u32 own = warps[w];
			warps[w] = total;
			total = OP::of(total, own);
		}
		warps[32] = total;
	}
	blockSync();
	all = warps[32];
	return lane == 0 ? warps[warp] : OP::of(warps[warp], before);
}

// A block of 1024 threads sums its part of n values, four a thread.
template <class OP> INLINE void scanParts(u32 *values, u32 *sums, u32 n)
{
	u32 at = blockID() * SCAN_PART + threadID() * 4, x = OP::zero(), all;
	for (u32 i = at; i < minimum(at + 4, n); i++)
		x = OP::of(x, values[i]);
	blockScan<OP>(x, all);
	if (threadID() == 0)
		sums[blockID()] = all;
}

// One block turns the sums of the parts into what precedes each.
template <class OP> INLINE void scanSums(u32 *sums, u32 parts)
{
	u32 carry = OP::zero();
	for (u32 from = 0; from < parts; from += 1024) {
		u32 i = from + threadID(), all;
		u32 x = i < parts ? sums[i] : OP::zero(), before = blockScan<OP>(x, all);
		if (i < parts)
			sums[i] = OP::of(carry, before);
		carry = OP::of(carry, all);
	}
}

// Each block scans its part; INCLUSIVE says whether a value's own counts.
template <class OP, bool INCLUSIVE> INLINE void scanApply(u32 *values, const u32 *sums, u32 n)
{
	u32 at = blockID() * SCAN_PART + threadID() * 4, x = OP::zero(), all;
	for (u32 i = at; i < minimum(at + 4, n); i++)
		x = OP::of(x, values[i]);
	u32 before = OP::of(sums[blockID()], blockScan<OP>(x, all));
	for (u32 i = at; i < minimum(at + 4, n); i++) {
		u32 own = values[i];
		values[i] = INCLUSIVE ? OP::of(before, own) : before;
		before = OP::of(before, own);
	}
}

KERNEL void __launch_bounds__(1024) buildSumPartsKernel(const BuildArgs a) { scanParts<Add>((u32 *)a.starts, (u32 *)a.sums, a.homes); }
KERNEL void __launch_bounds__(1024) buildSumSumsKernel(const BuildArgs a) { scanSums<Add>((u32 *)a.sums, a.parts); }
KERNEL void __launch_bounds__(1024) buildSumApplyKernel(const BuildArgs a)
{
	scanApply<Add, false>((u32 *)a.starts, (const u32 *)a.sums, a.homes);
}

// Places the entries at their homes' starts, in any order; ends, a copy of starts, counts on.
KERNEL void buildPlaceKernel(const BuildArgs a)
{
	const u64x2 *entries = (const u64x2 *)a.entries;
	for (u32 i = blockID() * blockThreads() + threadID(); i < a.count; i += gridBlocks() * blockThreads()) {
		u64x2 e = entries[i];
		((u64x2 *)a.sorted)[atomicAdd((u32 *)a.ends + homeOfKey(a, e.x), 1)] = e;
	}
}

// Sorts each home's entries by hash, which no two keys share, and leaves 4 h - starts[h] in ends.
KERNEL void buildSortKernel(const BuildArgs a)
{
	u64x2 *sorted = (u64x2 *)a.sorted;
	for (u32 h = blockID() * blockThreads() + threadID(); h < a.homes; h += gridBlocks() * blockThreads()) {
		u32 start = ((const u32 *)a.starts)[h], end = ((u32 *)a.ends)[h];
		for (u32 i = start + 1; i < end; i++) {
			u64x2 e = sorted[i];
			u64 hash = hashOf(e.x);
			u32 j = i;
			for (; j > start && hashOf(sorted[j - 1].x) > hash; j--)
				sorted[j] = sorted[j - 1];
			sorted[j] = e;
			if (j > start && sorted[j - 1].x == e.x)
				atomicAdd((u32 *)a.failed, 1);
		}
		((u32 *)a.ends)[h] = 4 * h - start;
	}
}

KERNEL void __launch_bounds__(1024) buildMaxPartsKernel(const BuildArgs a) { scanParts<Max>((u32 *)a.ends, (u32 *)a.sums, a.homes); }
KERNEL void __launch_bounds__(1024) buildMaxSumsKernel(const BuildArgs a) { scanSums<Max>((u32 *)a.sums, a.parts); }
KERNEL void __launch_bounds__(1024) buildMaxApplyKernel(const BuildArgs a)
{
	scanApply<Max, true>((u32 *)a.ends, (const u32 *)a.sums, a.homes);
}

// Writes the entries to their slots; all others are filled with ones before.
KERNEL void buildWriteKernel(const BuildArgs a)
{
	for (u32 i = blockID() * blockThreads() + threadID(); i < a.count; i += gridBlocks() * blockThreads()) {
		u64x2 e = ((const u64x2 *)a.sorted)[i];
		u32 home = homeOfKey(a, e.x);
		u64 slot = (u64)i + (i64)(int)((const u32 *)a.ends)[home];
		if (slot >= ((u64)lastOf(home, a.buckets) + 1) * BUCKET_SLOTS)
			atomicAdd((u32 *)a.failed, 1);
		else
			((u64x2 *)a.map)[slot] = e;
	}
}
