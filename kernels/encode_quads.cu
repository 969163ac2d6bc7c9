#include "coder.h"
#include "encode.h"

// Encodes rows in their places by IBP with one mask, in place of encode.cu, to the same bytes as the Go encoder. Rows begin at multiples of
// 4 bytes. Bytes behind a stored row keep their values.

// A warp encodes a row: it stages the row in shared memory, packs its chunks into a second buffer there, and writes that
// back if it is shorter. Shared memory: the codec's metadata, then two buffers of a.rowBytes for each warp. Rows must be
// shorter than LONG_ROW.
template <int CHUNK, int STEPS> INLINE void encodeRows(const EncodeArgs &a)
{
	extern __shared__ u32x4 dynamic[];
	__shared__ Tally all;
	if (threadID() == 0)
		all.clear();
	loadMeta(a.codec, (u8 *)dynamic);
	Meta<SHARED, STEPS> meta{(const u8 *)dynamic};
	u32 lane = laneID(), warp = threadID() / 32, warps = gridBlocks() * blockThreads() / 32;
	u8 *stage = (u8 *)dynamic + a.codec.metaBytes + warp * 2 * a.rowBytes;
	u32 *packed = (u32 *)(stage + a.rowBytes);
	u32 rowBytes = a.codec.rowBytes, outWords = a.rowBytes / 4;
	Tally mine;
	mine.clear();
	for (u32 i = (blockID() * blockThreads() + threadID()) / 32; i < a.count; i += warps) {
		u64 at = a.rows + (u64)i * a.stride, base = at & ~127ull;
		for (u64 from = base + lane * 16; from < at + rowBytes; from += 512)
			if (from + 16 > at)
				copyAsync16(stage + (from - base), from);
		for (u32 w = lane; w < outWords; w += 32)
			packed[w] = 0;
		copyWait();
		warpSync(~0u);
		const u32 *row = (const u32 *)(stage + (at - base));
		u32 excess = 0;
		for (u32 first = 0; first < a.codec.quads; first += 32) {
			u32 quad = first + lane;
			bool in = quad < a.codec.quads;
			u32 part = 0, masked = 0;
			u32x4 x = {0, 0, 0, 0}, y = x;
			if (in) {
				x = rowQuad(row, quad, rowBytes);
				masked = meta.masked(quad);
				y = packQuad<CHUNK, STEPS>(meta, quad, x, part);
			}
			u32 more = byteSum(masked & ~part), sum = tileScan<32>(~0u, more);
			u32 bit = headBits(a.codec) + (in ? meta.keptBefore(quad) : 0) + excess + sum - more;
			excess += tileFrom<32>(~0u, sum, 31);
			// A row that does not shrink may not fit either.
			if (in && bit + 160 < outWords * 32)
				putQuad<CHUNK>(packed, bit, packed, quad, headBits(a.codec) - quad * (16 / CHUNK), x, y, part, masked);
		}
		u32 length = storedBytes(a.codec, excess);
		warpSync(~0u);
		if (length < rowBytes) {
			u32 *to = (u32 *)at;
			for (u32 w = lane; w < length / 4; w += 32)
				to[w] = packed[w];
			if (lane < (length & 3))
				((u8 *)at)[length / 4 * 4 + lane] = (u8)(packed[length / 4] >> (8 * lane));
		}
		if (lane == 0)
			mine.add(a, i, length);
		warpSync(~0u); // the buffers are free
	}
	if (lane == 0)
		all.join(mine);
	blockSync();
	if (threadID() == 0)
		all.flush(a);
}

// A block encodes a row into its scratch memory, in segments of one quad per thread, and copies the result to the row's place if it is
// shorter. Shared memory: a segment's payload, 4 words a thread and 4 more, and the segment's participation bits.
template <int CHUNK, int STEPS> INLINE void encodeLongRows(const EncodeArgs &a)
{
	extern __shared__ u32x4 dynamic[];
	__shared__ u32 warpSums[33];
	constexpr u32 N = 16 / CHUNK;
	Meta<GLOBAL, STEPS> meta{(const u8 *)a.codec.meta};
	u32 tid = threadID(), threads = blockThreads(), lane = tid & 31, warp = tid / 32;
	u32 rowBytes = a.codec.rowBytes, quads = a.codec.quads, chunks = headBits(a.codec);
	u32 *packed = (u32 *)dynamic, *flags = packed + 4 * threads + 4;
	u32 *out = (u32 *)(a.scratch + (u64)blockID() * a.rowBytes);
	Tally mine;
	mine.clear();
	for (u32 i = blockID(); i < a.count; i += gridBlocks()) {
		u32 *row = (u32 *)(a.rows + (u64)i * a.stride);
		u32 excess = 0, carry = 0; // carry is the bits known so far of the word in which the segment's payload begins
		for (u32 base = 0; base < quads; base += threads) {
			for (u32 w = tid; w < 4 * threads + 4; w += threads)
				packed[w] = w == 0 ? carry : 0;
			if (tid < threads * N / 32)
				flags[tid] = 0;
			u32 quad = base + tid, next = base + threads;
			bool in = quad < quads;
			u32 part = 0, masked = 0;
			u32x4 x = {0, 0, 0, 0}, y = x;
			if (in) {
				x = rowQuad(row, quad, rowBytes);
				masked = meta.masked(quad);
				y = packQuad<CHUNK, STEPS>(meta, quad, x, part);
			}
			u32 more = byteSum(masked & ~part), sum = tileScan<32>(~0u, more);
			if (lane == 31)
				warpSums[warp] = sum;
			blockSync();
			if (warp == 0) {
				u32 of = lane < threads / 32 ? warpSums[lane] : 0, sums = tileScan<32>(~0u, of);
				warpSums[lane] = sums - of;
				if (lane == 31)
					warpSums[32] = sums;
			}
			blockSync();
			u32 first = (chunks + meta.keptBefore(base) + excess) / 32; // word of the row
			u32 bit = chunks + (in ? meta.keptBefore(quad) : 0) + excess + warpSums[warp] + sum - more;
			if (in)
				putQuad<CHUNK>(packed, bit - 32 * first, flags, tid, chunks - quad * N, x, y, part, masked);
			excess += warpSums[32];
			u32 last = (chunks + (next < quads ? meta.keptBefore(next) : keptBits(a.codec)) + excess) / 32;
			blockSync();
			for (u32 w = tid; w < last - first; w += threads)
				out[first + w] = packed[w];
			u32 flagWord = base * N / 32 + tid;
			if (tid < threads * N / 32 && flagWord < chunks / 32)
				out[flagWord] = flags[tid];
			carry = packed[last - first];
			blockSync();
			if (next >= quads && tid == 0) {
				out[last] = carry;
				// The payload begins in the word that the participation bits end in.
				if (chunks % 32 != 0)
					out[chunks / 32] |= flags[chunks / 32 - base * N / 32];
			}
		}
		blockSync();
		u32 length = storedBytes(a.codec, excess);
		if (length < rowBytes) {
			for (u32 w = tid; w < length / 4; w += threads)
				row[w] = out[w];
			if (tid < (length & 3))
				((u8 *)row)[length / 4 * 4 + tid] = (u8)(out[length / 4] >> (8 * tid));
		}
		if (tid == 0)
			mine.add(a, i, length);
		blockSync(); // the scratch memory is free
	}
	if (tid == 0)
		mine.flush(a);
}

KERNEL void __launch_bounds__(256) encode32(const EncodeArgs a) { encodeRows<ROW_CODER::CHUNK, ROW_CODER::STEPS>(a); }
KERNEL void __launch_bounds__(1024) encodeLong(const EncodeArgs a) { encodeLongRows<ROW_CODER::CHUNK, ROW_CODER::STEPS>(a); }
