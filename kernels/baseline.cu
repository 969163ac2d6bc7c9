#include "hash.h"

// quotient returns i / divisor, for i × divisor below 2^64; inverse is 2^64 / divisor, rounded up (0 for 1).
INLINE u32 quotient(u32 i, u64 inverse)
{
	u64 low = (u64)i * (u32)inverse >> 32;
	return inverse == 0 ? i : (u32)(((u64)i * (inverse >> 32) + low) >> 32);
}
INLINE u64 quotient(u64 i, u64 inverse) { return inverse == 0 ? i : multiplyHigh(i, inverse); }

// Copies uncompressed rows to the output, whatever memory they lie in: what the benchmarks compare with. Each thread takes
// units of a row in turns, so that no lane idles; it asks for UNITS of them before it stores the first.
template <class INDEX, class UNIT, int UNITS> INLINE void gatherUnits(const GatherArgs &a, INDEX all, INDEX step)
{
	u32 units = a.rowBytes / sizeof(UNIT);
	u64 inverse = ~0ull / units + 1;
	for (INDEX first = (INDEX)blockID() * blockThreads() + threadID(); first < all; first += UNITS * step) {
		UNIT x[UNITS];
#pragma unroll
		for (int k = 0; k < UNITS; k++) {
			INDEX i = first + k * step;
			if (i < all) {
				INDEX n = quotient(i, inverse);
				u64 row = loadConst((const u64 *)a.rows + n);
				x[k] = *((const UNIT *)(a.mem + row * a.rowBytes) + (u32)(i - n * units));
			}
		}
#pragma unroll
		for (int k = 0; k < UNITS; k++)
			if (first + k * step < all)
				storeOut((UNIT *)a.out + first + k * step, x[k]);
	}
}

template <class UNIT, int UNITS> INLINE void gatherRows(const GatherArgs &a)
{
	u64 all = (u64)a.count * (a.rowBytes / sizeof(UNIT)), step = (u64)gridBlocks() * blockThreads();
	if (all + UNITS * step <= ~0u)
		gatherUnits<u32, UNIT, UNITS>(a, all, step);
	else
		gatherUnits<u64, UNIT, UNITS>(a, all, step);
}

// On an H200 two units of 8 bytes a thread are 12 % faster than one at 2408 bytes, four 10 %; of 16 bytes one is fastest.
KERNEL void __launch_bounds__(256) gather16Kernel(const GatherArgs a) { gatherRows<u32x4, 1>(a); }
KERNEL void __launch_bounds__(256) gather8Kernel(const GatherArgs a) { gatherRows<u32x2, 2>(a); }
KERNEL void __launch_bounds__(256) gather4Kernel(const GatherArgs a) { gatherRows<u32, 4>(a); }
