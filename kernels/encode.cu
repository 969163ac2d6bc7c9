#include "encode.h"

// Encodes rows in their places in page-locked memory, to the bytes that the Go encoder writes. Compiled once for each
// ROW_CHUNK: 4 and 8 bytes. A warp encodes a row: it stages the row in shared memory, packs its chunks into a second
// buffer there, and writes that back if it is shorter. Shared memory: the codec's metadata, then two buffers of stageBytes
// for each warp. Rows must be shorter than LONG_ROW, and begin at multiples of 4.
template <int CHUNK, int STEPS> INLINE void encodeRows(const EncodeArgs &a)
{
	extern __shared__ u32x4 dynamic[];
	loadMeta(a.codec, (u8 *)dynamic);
	Meta<SHARED, STEPS> meta{(const u8 *)dynamic};
	constexpr u32 N = 16 / CHUNK;
	u32 lane = laneID(), warp = threadID() / 32, warps = gridBlocks() * blockThreads() / 32;
	u8 *stage = (u8 *)dynamic + a.codec.metaBytes + warp * 2 * a.stageBytes;
	u32 *packed = (u32 *)(stage + a.stageBytes);
	u32 rowBytes = a.codec.rowBytes, outWords = a.stageBytes / 4;
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
			u32 bit = a.codec.chunks + (in ? meta.keptBefore(quad) : 0) + excess + sum - more;
			excess += tileFrom<32>(~0u, sum, 31);
			// A row that does not shrink may not fit either.
			if (in && bit + 160 < outWords * 32) {
				u32 chunks = minimum(N, a.codec.chunks - quad * N), flags = 0;
				u64 words[4] = {x.x, x.y, x.z, x.w}, low[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
				for (u32 c = 0; c < N; c++)
					if (c < chunks) {
						bool on = part >> (8 * c) & 1;
						u32 n = CHUNK * 8 - (on ? masked >> (8 * c) & 0xff : 0);
						flags |= (u32)on << c;
						if (CHUNK == 4) {
							putBits(packed, bit, on ? low[c] : words[c], n);
						} else {
							u64 v = on ? low[2 * c] | low[2 * c + 1] << 32 : words[2 * c] | words[2 * c + 1] << 32;
							putBits(packed, bit, v & 0xffffffff, minimum(n, 32));
							if (n > 32)
								putBits(packed, bit + 32, v >> 32, n - 32);
						}
						bit += n;
					}
				atomicOrShared(packed + quad * N / 32, flags << (quad * N & 31));
			}
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
			((u32 *)a.lengths)[i] = length < rowBytes ? length : 0;
		warpSync(~0u); // the buffers are free
	}
}

// Sums what rows back to back would take, those that do not shrink counted raw. A warp takes a row at a time.
template <int CHUNK, int STEPS> INLINE void sampleBytes(const SampleBytesArgs &a)
{
	extern __shared__ u32x4 dynamic[];
	loadMeta(a.codec, (u8 *)dynamic);
	Meta<SHARED, STEPS> meta{(const u8 *)dynamic};
	u32 lane = laneID(), warps = gridBlocks() * blockThreads() / 32;
	u64 sum = 0;
	for (u32 i = (blockID() * blockThreads() + threadID()) / 32; i < a.count; i += warps) {
		const u32 *row = (const u32 *)(a.rows + (u64)i * a.codec.rowBytes);
		u32 excess = 0;
		for (u32 quad = lane; quad < a.codec.quads; quad += 32) {
			u32x4 x = rowQuad(row, quad, a.codec.rowBytes);
			excess += byteSum(meta.masked(quad) & ~participation<CHUNK>(x, meta.plane(quad, 0), meta.plane(quad, 1)));
		}
		sum += minimum(storedBytes(a.codec, tileSum<32>(~0u, excess)), a.codec.rowBytes);
	}
	if (lane == 0 && sum != 0)
		atomicAdd((u64 *)a.sum, sum);
}

#define ENCODE(steps)                                                                                                            \
	KERNEL void __launch_bounds__(256) encodex##steps(const EncodeArgs a) { encodeRows<ROW_CHUNK, steps>(a); }               \
	KERNEL void __launch_bounds__(256) sampleBytesx##steps(const SampleBytesArgs a) { sampleBytes<ROW_CHUNK, steps>(a); }

#if ROW_CHUNK == 4
ENCODE(3)
ENCODE(5)
#else
ENCODE(4)
ENCODE(6)
#endif
