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
KERNEL void __launch_bounds__(1024) growKernel(const SampleArgs a)
{
	__shared__ u32 ones[64];
	__shared__ u32 chosen, flip, done;
	u32 tid = threadID(), threads = blockThreads(), lane = tid & 31, warp = tid / 32, width = a.chunkWords * 32, chunk = blockID();
	const u32 *planes = (const u32 *)a.planes + (u64)chunk * width * a.planeWords;
	u32 *alive = (u32 *)a.alive + (u64)chunk * a.planeWords;
	for (u32 w = tid; w < a.planeWords; w += threads)
		alive[w] = w * 32 + 32 <= a.count ? ~0u : (1u << (a.count & 31)) - 1;
	u64 m = 0, v = 0, best = 0, bestMask = 0, bestVal = 0;
	u64 count = a.count;
	for (u32 n = 1; n <= width; n++) {
		blockSync();
		for (u32 b = warp; b < width; b += threads / 32) {
			const u32 *plane = planes + (u64)b * a.planeWords;
			u32 sum = 0;
			for (u32 w = lane; w < a.planeWords; w += 32)
				sum += popcount(alive[w] & plane[w]);
			sum = tileSum<32>(~0u, sum);
			if (lane == 0)
				ones[b] = sum;
		}
		blockSync();
		if (warp == 0) {
			// The most rows kept, and among equals the lowest bit, its ones first.
			u64 top = 0;
			for (u32 b = lane; b < width; b += 32)
				if (!(m >> b & 1)) {
					u64 set = ones[b], clear = count - set;
					u64 key = set >= clear ? set << 8 | (255 - 2 * b) : clear << 8 | (254 - 2 * b);
					top = key > top ? key : top;
				}
#pragma unroll
			for (u32 d = 1; d < 32; d *= 2) {
				u64 other = (u64)tileXor<32>(~0u, (u32)(top >> 32), d) << 32 | tileXor<32>(~0u, (u32)top, d);
				top = other > top ? other : top;
			}
			u32 order = 255 - (top & 0xff), bit = order / 2;
			m |= 1ull << bit;
			if (order % 2 == 0)
				v |= 1ull << bit;
			count = top >> 8;
			if (count * n > best)
				best = count * n, bestMask = m, bestVal = v;
			if (lane == 0) {
				chosen = bit;
				flip = order % 2 == 0 ? 0 : ~0u;
				done = count * width <= best;
			}
		}
		blockSync();
		if (done)
			break;
		const u32 *plane = planes + (u64)chosen * a.planeWords;
		for (u32 w = tid; w < a.planeWords; w += threads)
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

// Sums what the sample's rows would take with each of the masks, rows that do not shrink counted raw. A warp takes a row at
// a time, a lane two of its words.
KERNEL void __launch_bounds__(256) sampleBytesKernel(const SampleBytesArgs a)
{
	u32 lane = laneID(), warps = gridBlocks() * 8, chunks = (a.rowBytes + 4 * a.chunkWords - 1) / (4 * a.chunkWords);
	u32 raw = chunks * (32 * a.chunkWords + 1); // bits of a row of whose chunks none participates
	const u32x2 *masks = (const u32x2 *)a.masks;
	u32 pairs = a.words / 2;
	u64 bytes = 0; // with the lane's masks
	for (u32 i = (blockID() * 256 + threadID()) / 32; i < a.count; i += warps) {
		const u32 *row = (const u32 *)a.rows + (u64)i * a.rowWords;
		u32 saved[MAX_MASKS] = {};
		for (u32 p = lane; p < pairs; p += 32) {
			u32x2 x = {row[2 * p], 2 * p + 1 < a.rowWords ? row[2 * p + 1] : 0};
#pragma unroll
			for (u32 m = 0; m < MAX_MASKS; m++)
				if (m < a.numMasks) {
					u32x2 mask = masks[2 * m * pairs + p], bad = (x & mask) ^ masks[(2 * m + 1) * pairs + p];
					if (a.chunkWords == 2)
						bad.x = bad.y = bad.x | bad.y;
					saved[m] += (bad.x == 0 ? popcount(mask.x) : 0) + (bad.y == 0 ? popcount(mask.y) : 0);
				}
		}
#pragma unroll
		for (u32 m = 0; m < MAX_MASKS; m++) {
			u32 sum = tileSum<32>(~0u, saved[m]);
			if (lane == m)
				bytes += minimum((raw - sum + 7) / 8, a.rowBytes);
		}
	}
	if (lane < a.numMasks && bytes != 0)
		atomicAdd((u64 *)a.sums + lane, bytes);
}
