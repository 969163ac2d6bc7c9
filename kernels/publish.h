// What ends a batch: its counters go to page-locked memory and are zero for the next one.
#pragma once
#include "gpu.h"

// publish writes a batch's counters and number to page-locked memory. One thread calls it, after it has seen all counting. The
// host reads them after the kernel's end: there is no fence here, which would have to wait for the link.
INLINE void publish(Counters *count, const Counters &c, u64 result, u64 batch)
{
	u64x2 *to = (u64x2 *)result, *zero = (u64x2 *)count;
	const u64x2At8 *from = (const u64x2At8 *)&c;
#pragma unroll
	for (u32 i = 0; i < 4; i++)
		zero[i] = u64x2{0, 0};
#pragma unroll
	for (u32 i = 0; i < 3; i++)
		to[i] = from[i];
	to[3] = u64x2{c.hostBytes, batch << 32 | c.peers};
}

// countersNow returns counters that other blocks have added to.
INLINE Counters countersNow(const Counters *count)
{
	Counters c;
#pragma unroll
	for (u32 i = 0; i < 4; i++)
		((u64x2At8 *)&c)[i] = loadShared((const u64x2 *)count + i);
	return c;
}

// What Counters.batch counts meanwhile: blocks of the kernel that fetches, blocks of the one that decodes, and kernels that have ended.
constexpr u32 END_FETCH = 1, END_DECODE = 1 << 15, END_BLOCKS = (1 << 15) - 1, END_KERNEL = 1u << 30;

// endBatch publishes a batch's counters if this block is the last of so many to end, of the last kernel, whichever that is. All threads of
// the block call it at their end, PART being END_FETCH or END_DECODE. A launch of its own for that took the caller's thread 4 us.
template <u32 PART> INLINE void endBatch(u64 counters, const BatchEnd &end, u32 blocks = gridBlocks())
{
	if (end.result == 0)
		return;
	blockSync();
	if (threadID() != 0)
		return;
	Counters *count = (Counters *)counters;
	fenceDevice();
	u32 before = atomicAdd(&count->batch, PART);
	if ((before / PART & END_BLOCKS) != blocks - 1)
		return;
	fenceDevice();
	if (end.kernels > 1 && atomicAdd(&count->batch, END_KERNEL) / END_KERNEL != end.kernels - 1)
		return;
	fenceDevice();
	publish(count, countersNow(count), end.result, end.batch);
}
