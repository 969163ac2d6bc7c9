#include "gpu.h"

// Kernels that change a cache while other kernels read it.

// Stores words where other kernels load them, each by one 8-byte store, in any order: what must be seen in an order is
// stored by launches in that order. words may be page-locked. The grid covers them in turns.
KERNEL void storeKernel(const StoreArgs a)
{
	u64 *target = (u64 *)a.target;
	const u64 *words = (const u64 *)a.words;
	for (u32 n = blockID() * blockThreads() + threadID(); n < a.count; n += gridBlocks() * blockThreads()) {
		u64 index = words[2 * n], value = words[2 * n + 1];
		if (index < (u64)a.limit)
			storeSystem(target + index, value);
	}
}

// Copies rows from page-locked memory to slots that no other kernel reads. Rows and slots begin at multiples of 16 bytes, and both have room up to the
// next one after a row's end. A warp takes up to 32 neighbouring items, its lanes an item each, and has the first 512 bytes of four rows on their way at
// once: what it copies is far away.
KERNEL void scatterKernel(const ScatterArgs a)
{
	constexpr u32 AT_ONCE = 4;
	const u32 lane = laneID(), warps = gridBlocks() * blockThreads() / 32;
	const u32 each = minimum(32, (a.count + warps - 1) / warps);
	for (u32 first = (blockID() * blockThreads() + threadID()) / 32 * each; first < a.count; first += warps * each) {
		u32x4 item = {0, 0, 0, 0};
		if (lane < each && first + lane < a.count)
			item = loadTier(a.items + (first + lane) * sizeof(ScatterItem));
		for (u32 k = 0; k < each; k += AT_ONCE) {
			u32x4 *to[AT_ONCE], x[AT_ONCE];
			const u32x4 *from[AT_ONCE];
			u32 quads[AT_ONCE];
#pragma unroll
			for (u32 r = 0; r < AT_ONCE; r++) {
				to[r] = (u32x4 *)(a.slab + ((u64)laneFrom(item.y, k + r) << 32 | laneFrom(item.x, k + r)));
				from[r] = (const u32x4 *)(a.stage + laneFrom(item.z, k + r));
				quads[r] = (laneFrom(item.w, k + r) + 15) / 16;
				x[r] = u32x4{0, 0, 0, 0};
				if (lane < quads[r])
					x[r] = loadTier((u64)(from[r] + lane));
			}
#pragma unroll
			for (u32 r = 0; r < AT_ONCE; r++) {
				if (lane < quads[r])
					to[r][lane] = x[r];
				for (u32 i = lane + 32; i < quads[r]; i += 32)
					to[r][i] = loadTier((u64)(from[r] + i));
			}
		}
	}
}
