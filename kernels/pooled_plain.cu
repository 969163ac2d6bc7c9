#include "pooled.h"

// Adds up uncompressed rows in bags of one size, in the order of the batch, and writes the sums as float32: what benchmarks of pooled batches compare
// with. A tile of LANES lanes sums a bag, a lane each of its quads, and has UNITS rows on their way at once.
template <int LANES, int EACH> INLINE void gatherPool(const GatherPoolArgs &a)
{
	constexpr int UNITS = 8;
	u32 lane = threadID() % LANES, tiles = gridBlocks() * (blockThreads() / LANES);
	for (u64 bag = (u64)(blockID() * blockThreads() + threadID()) / LANES; bag < a.bags; bag += tiles) {
		const u64 *rows = (const u64 *)a.rows + bag * a.bag;
		for (u32 quad = lane; quad < a.quads; quad += LANES) {
			float sum[EACH];
#pragma unroll
			for (int i = 0; i < EACH; i++)
				sum[i] = asFloat(0x80000000);
			for (u32 first = 0; first < a.bag; first += UNITS) {
				u32x4 x[UNITS];
#pragma unroll
				for (int k = 0; k < UNITS; k++)
					if (first + k < a.bag)
						x[k] = loadConst((const u32x4 *)a.mem + loadConst(rows + first + k) * a.quads + quad);
#pragma unroll
				for (int k = 0; k < UNITS; k++) {
					if (first + k >= a.bag)
						continue;
					float y[EACH];
					unpack<EACH>(x[k], POOL_BFLOAT16, y);
#pragma unroll
					for (int i = 0; i < EACH; i++)
						sum[i] = sumOf(sum[i], y[i]);
				}
			}
			u32x4 *to = (u32x4 *)a.out + (bag * a.quads + quad) * (EACH / 4);
#pragma unroll
			for (int i = 0; i < EACH; i += 4)
				storeFar(to + i / 4, u32x4{bitsOf(sum[i]), bitsOf(sum[i + 1]), bitsOf(sum[i + 2]), bitsOf(sum[i + 3])});
		}
	}
}

#define GATHER_POOL(lanes)                                                                                                       \
	KERNEL void __launch_bounds__(256) gatherPool##lanes(const GatherPoolArgs a)                                              \
	{                                                                                                                        \
		if (a.bfloat16)                                                                                                      \
			gatherPool<lanes, 8>(a);                                                                                         \
		else                                                                                                                 \
			gatherPool<lanes, 4>(a);                                                                                         \
	}
GATHER_POOL(8)
GATHER_POOL(16)
GATHER_POOL(32)
