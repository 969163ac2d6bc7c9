#include "hash.h"

// quotient returns i / divisor, for i × divisor below 2^64; inverse is 2^64 / divisor, rounded up, or 0 for 1.
INLINE u32 quotient(u32 i, u64 inverse)
{
	u64 low = (u64)i * (u32)inverse >> 32;
	return inverse == 0 ? i : (u32)(((u64)i * (inverse >> 32) + low) >> 32);
}
INLINE u64 quotient(u64 i, u64 inverse) { return inverse == 0 ? i : multiplyHigh(i, inverse); }

// Copies uncompressed rows to the output, whatever memory they lie in: what the benchmarks compare with. Each thread takes
// units of a row in turns, so that no lane idles; it asks for UNITS of them before it stores the first. With HOT, some rows have a copy in
// other memory.
template <bool HOT, class INDEX, class UNIT, int UNITS> INLINE void gatherUnits(const GatherArgs &a, INDEX all, INDEX step)
{
	u32 units = a.rowBytes / sizeof(UNIT);
	u64 inverse = ~0ull / units + 1;
	for (INDEX first = (INDEX)blockID() * blockThreads() + threadID(); first < all; first += UNITS * step) {
		UNIT x[UNITS];
		INDEX n[UNITS];
		u64 row[UNITS];
		u64 mem[UNITS];
#pragma unroll
		for (int k = 0; k < UNITS; k++) {
			n[k] = UNITS == 1 ? first / units : quotient(first + k * step, inverse);
			mem[k] = a.mem;
			if (first + k * step < all)
				row[k] = loadConst((const u64 *)a.rows + n[k]);
		}
#pragma unroll
		for (int k = 0; HOT && k < UNITS; k++) {
			u32 place = first + k * step < all ? *((const u32 *)a.places + row[k]) : ~0u;
			if (place != ~0u) {
				mem[k] = a.hot;
				row[k] = place;
			}
		}
#pragma unroll
		for (int k = 0; k < UNITS; k++)
			if (first + k * step < all)
				x[k] = *((const UNIT *)(mem[k] + row[k] * a.rowBytes) + (u32)(first + k * step - n[k] * units));
#pragma unroll
		for (int k = 0; k < UNITS; k++)
			if (first + k * step < all)
				storeOut((UNIT *)a.out + first + k * step, x[k]);
	}
}

template <class UNIT, int UNITS, bool HOT = false> INLINE void gatherRows(const GatherArgs &a)
{
	u64 all = (u64)a.count * (a.rowBytes / sizeof(UNIT)), step = (u64)gridBlocks() * blockThreads();
	if (UNITS > 1 && all + UNITS * step <= ~0u)
		gatherUnits<HOT, u32, UNIT, UNITS>(a, all, step);
	else
		gatherUnits<HOT, u64, UNIT, UNITS>(a, all, step);
}

// On an H200: of 8 bytes, two units a thread are 12 % faster than one at 2408 bytes, three and four are slower than two; of 4
// bytes, four are 49 % faster than one at 404. Of 16 bytes one unit is fastest, by 1 % with a plain 64-bit division.
KERNEL void __launch_bounds__(256) gather16Kernel(const GatherArgs a) { gatherRows<u32x4, 1>(a); }
KERNEL void __launch_bounds__(256) gather8Kernel(const GatherArgs a) { gatherRows<u32x2, 2>(a); }
KERNEL void __launch_bounds__(256) gather4Kernel(const GatherArgs a) { gatherRows<u32, 4>(a); }
KERNEL void __launch_bounds__(256) gatherHot16Kernel(const GatherArgs a) { gatherRows<u32x4, 1, true>(a); }
