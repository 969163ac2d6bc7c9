// What ends a batch: its counters go to page-locked memory and are zero for the next one.
#pragma once
#include "gpu.h"

// publish writes a batch's counters and number to page-locked memory. One thread calls it, after it has seen all counting. The
// host reads them after the kernel's end: there is no fence here, which would have to wait for the link.
INLINE void publish(Counters *count, const Counters &c, u64 result, u64 batch)
{
	u64x2 *to = (u64x2 *)result, *zero = (u64x2 *)count;
	const u64x2 *from = (const u64x2 *)&c;
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
		((u64x2 *)&c)[i] = loadShared((const u64x2 *)count + i);
	return c;
}
