#include "gpu.h"

// Copies uncompressed rows to the output, whatever memory they lie in: what the benchmarks compare with. Each thread takes
// units of a row in turns, so that no lane idles.
template <class UNIT> INLINE void gatherRows(const GatherArgs &a)
{
	u32 units = a.rowBytes / sizeof(UNIT);
	u64 all = (u64)a.count * units, step = (u64)gridBlocks() * blockThreads();
	for (u64 i = (u64)blockID() * blockThreads() + threadID(); i < all; i += step) {
		u32 n = (u32)(i / units), unit = (u32)(i - (u64)n * units);
		u64 row = loadConst((const u64 *)a.rows + n);
		storeOut((UNIT *)a.out + i, *((const UNIT *)(a.mem + row * a.rowBytes) + unit));
	}
}

KERNEL void __launch_bounds__(256) gather16Kernel(const GatherArgs a) { gatherRows<u32x4>(a); }
KERNEL void __launch_bounds__(256) gather8Kernel(const GatherArgs a) { gatherRows<u32x2>(a); }
KERNEL void __launch_bounds__(256) gather4Kernel(const GatherArgs a) { gatherRows<u32>(a); }
