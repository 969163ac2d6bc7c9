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

// Copies rows from page-locked memory to slots that no other kernel reads, a warp each. Rows and slots begin at multiples
// of 16 bytes, and both have room up to the next one after a row's end.
KERNEL void scatterKernel(const ScatterArgs a)
{
	u32 warps = gridBlocks() * blockThreads() / 32;
	for (u32 n = (blockID() * blockThreads() + threadID()) / 32; n < a.count; n += warps) {
		const ScatterItem *item = (const ScatterItem *)a.items + n;
		const u32x4 *from = (const u32x4 *)((const u8 *)a.stage + item->from);
		u32x4 *to = (u32x4 *)((u8 *)a.slab + item->to);
		for (u32 i = laneID(); i < (item->bytes + 15) / 16; i += 32)
			to[i] = from[i];
	}
}
