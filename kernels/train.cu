#include "gpu.h"

// The mask search's inputs: a training sample transposed to bit planes, and masks grown on them. See package ibp.

// Transposes 32 rows × 32 words a block of 1024 threads; blocks take tiles in turns. Rows past the last are zeros.
KERNEL void __launch_bounds__(1024) planesKernel(const SampleArgs a)
{
	__shared__ u32 tile[32][33];
	u32 x = threadID() % 32, y = threadID() / 32;
	u32 across = (a.words + 31) / 32;
	u64 tiles = (u64)across * a.planeWords;
	for (u64 t = blockID(); t < tiles; t += gridBlocks()) {
		u32 group = (u32)(t / across), first = (u32)(t % across) * 32;
		u64 row = (u64)group * 32 + y;
		blockSync();
		tile[y][x] = row < a.count && first + x < a.rowWords ? ((const u32 *)a.rows)[row * a.rowWords + first + x] : 0;
		blockSync();
		u32 bits = tile[x][y], plane = 0; // this warp has word first + y of 32 rows
#pragma unroll
		for (u32 b = 0; b < 32; b++) {
			u32 votes = ballot(~0u, bits >> b & 1);
			if (x == b)
				plane = votes;
		}
		if (first + y < a.words)
			((u32 *)a.planes)[((u64)(first + y) * 32 + x) * a.planeWords + group] = plane;
	}
}

// Grows the mask of a chunk a block, as planes.grow of package ibp does, to the same mask.
KERNEL void __launch_bounds__(256) growKernel(const SampleArgs a)
{
	__shared__ u32 ones[64];
	__shared__ u32 chosen, flip, done;
	u32 tid = threadID(), lane = tid & 31, warp = tid / 32, width = a.chunkWords * 32, chunk = blockID();
	const u32 *planes = (const u32 *)a.planes + (u64)chunk * width * a.planeWords;
	u32 *alive = (u32 *)a.alive + (u64)chunk * a.planeWords;
	for (u32 w = tid; w < a.planeWords; w += 256)
		alive[w] = w * 32 + 32 <= a.count ? ~0u : (1u << (a.count & 31)) - 1;
	u64 m = 0, v = 0, best = 0, bestMask = 0, bestVal = 0;
	u64 count = a.count;
	for (u32 n = 1; n <= width; n++) {
		blockSync();
		for (u32 b = warp; b < width; b += 8) {
			const u32 *plane = planes + (u64)b * a.planeWords;
			u32 sum = 0;
			for (u32 w = lane; w < a.planeWords; w += 32)
				sum += popcount(alive[w] & plane[w]);
			sum = tileSum<32>(~0u, sum);
			if (lane == 0)
				ones[b] = sum;
		}
		blockSync();
		if (tid == 0) {
			u32 bit = 0;
			i64 keep = -1;
			bool one = false;
			for (u32 b = 0; b < width; b++) {
				if (m >> b & 1)
					continue;
				i64 set = ones[b], clear = (i64)count - set;
				if (set > keep)
					bit = b, keep = set, one = true;
				if (clear > keep)
					bit = b, keep = clear, one = false;
			}
			m |= 1ull << bit;
			if (one)
				v |= 1ull << bit;
			count = (u64)keep;
			if (count * n > best)
				best = count * n, bestMask = m, bestVal = v;
			chosen = bit;
			flip = one ? 0 : ~0u;
			done = count * width <= best;
		}
		blockSync();
		if (done)
			break;
		const u32 *plane = planes + (u64)chosen * a.planeWords;
		for (u32 w = tid; w < a.planeWords; w += 256)
			alive[w] &= plane[w] ^ flip;
	}
	if (tid == 0) {
		u64 *result = (u64 *)a.results + 2 * chunk;
		result[0] = bestMask;
		result[1] = bestVal;
	}
}

// Counts the ones of each plane, a warp a plane, into 32-bit words.
KERNEL void __launch_bounds__(256) onesKernel(const SampleArgs a)
{
	u32 lane = laneID();
	for (u32 p = (blockID() * 256 + threadID()) / 32; p < a.words * 32; p += gridBlocks() * 8) {
		const u32 *plane = (const u32 *)a.planes + (u64)p * a.planeWords;
		u32 sum = 0;
		for (u32 w = lane; w < a.planeWords; w += 32)
			sum += popcount(plane[w]);
		sum = tileSum<32>(~0u, sum);
		if (lane == 0)
			((u32 *)a.results)[p] = sum;
	}
}
