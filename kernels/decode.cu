#include "decode.h"

// Reads the hits of a batch from the slabs and writes their rows to the output. Compiled once for each ROW_CHUNK: 4 and 8
// bytes, and 0 for tables whose rows are all raw.

struct Hit {
	const u8 *stored;
	u8 *row;
	u32 position, length; // length is 0 for raw rows
};

INLINE Hit hitOf(const DecodeArgs &a, u32x4 found)
{
	u64 word = (u64)found.y << 32 | found.x;
	u64 slab = a.slabs[0];
#pragma unroll
	for (u32 i = 1; i < MAX_SLABS; i++) // selects, not an indexed parameter
		slab = slabAt(word) == i ? a.slabs[i] : slab;
	Hit h;
	h.stored = (const u8 *)slab + offsetAt(word);
	h.row = (u8 *)a.out + (u64)found.z * a.codec.rowBytes;
	h.position = found.z;
	h.length = compressedAt(word) ? storedAt(word) : 0;
	return h;
}

INLINE Words<GLOBAL> wordsOf(const Hit &h, u32 length) { return Words<GLOBAL>{(const u32 *)h.stored, 0, (length + 3) / 4}; }

// A tile of LANES lanes decodes a row; the tiles of the grid take the hits in turns. Shared memory: the codec's metadata.
// While a tile decodes a row it asks the L2 for the next one.
template <int CHUNK, int STEPS, int LANES> INLINE void decodeRows(const DecodeArgs &a)
{
	extern __shared__ u32x4 dynamic[];
	if (CHUNK != 0)
		loadMeta(a.codec, (u8 *)dynamic);
	Meta<SHARED, STEPS> meta{(const u8 *)dynamic};
	u32 lane = threadID() % LANES;
	u32 lanes = LANES == 32 ? ~0u : ((1u << (LANES & 31)) - 1) << (laneID() & ~(LANES - 1));
	u32 hits = ((const Counters *)a.counters)->hits;
	u32 tiles = gridBlocks() * (blockThreads() / LANES);
	u32 i = (blockID() * blockThreads() + threadID()) / LANES;
	if (i >= hits)
		return;
	const u32x4 *found = (const u32x4 *)a.found;
	u32x4 next = loadConst(found + i);
	for (; i < hits; i += tiles) {
		Hit h = hitOf(a, next);
		if (i + tiles < hits) {
			next = loadConst(found + i + tiles);
			Hit ahead = hitOf(a, next);
			u32 length = ahead.length != 0 ? ahead.length : a.codec.rowBytes;
			for (u32 o = lane * 128; o < length; o += LANES * 128)
				asm volatile("prefetch.global.L2 [%0];" ::"l"(ahead.stored + o));
		}
		if (h.length == 0) {
			tileCopy<LANES>(a.codec, wordsOf(h, a.codec.rowBytes), lane, h.row);
			continue;
		}
		if (CHUNK == 0) {
			if (lane == 0)
				corruptRow(a.counters, h.position);
			continue;
		}
		Words<GLOBAL> words = wordsOf(h, h.length);
		u32 excess = tileDecode<CHUNK ? CHUNK : 4, STEPS, LANES>(a.codec, words, words, meta, lanes, lane, 0, a.codec.quads, 0, h.row);
		if (lane == 0 && storedBytes(a.codec, excess) != h.length)
			corruptRow(a.counters, h.position);
	}
}

// A block decodes a row: its warps first sum the excess of each segment, then decode segments. Shared memory: none.
template <int CHUNK, int STEPS> INLINE void decodeLongRows(const DecodeArgs &a)
{
	__shared__ u32 excess[MAX_SEGMENTS + 1];
	constexpr int C = CHUNK ? CHUNK : 4;
	Meta<GLOBAL, STEPS> meta{(const u8 *)a.codec.meta};
	u32 tid = threadID(), lane = tid & 31, warp = tid / 32, warps = blockThreads() / 32;
	u32 hits = ((const Counters *)a.counters)->hits;
	u32 segments = (a.codec.quads + SEGMENT_QUADS - 1) / SEGMENT_QUADS;
	for (u32 i = blockID(); i < hits; i += gridBlocks()) {
		Hit h = hitOf(a, loadConst((const u32x4 *)a.found + i));
		if (h.length == 0 || CHUNK == 0) {
			Words<GLOBAL> words = wordsOf(h, a.codec.rowBytes);
			if (h.length == 0)
				tileCopy<256>(a.codec, words, tid, h.row);
			else if (tid == 0)
				corruptRow(a.counters, h.position);
			continue;
		}
		Words<GLOBAL> words = wordsOf(h, h.length);
		blockSync(); // excess is free
		for (u32 s = warp; s < segments; s += warps) {
			u32 from = s * SEGMENT_QUADS, to = minimum(from + SEGMENT_QUADS, a.codec.quads);
			u32 sum = tileExcess<C, 32>(words, meta, ~0u, lane, from, to);
			if (lane == 0)
				excess[s + 1] = sum;
		}
		blockSync();
		if (tid == 0) {
			excess[0] = 0;
			for (u32 s = 0; s < segments; s++)
				excess[s + 1] += excess[s];
			if (storedBytes(a.codec, excess[segments]) != h.length)
				corruptRow(a.counters, h.position);
		}
		blockSync();
		for (u32 s = warp; s < segments; s += warps) {
			u32 from = s * SEGMENT_QUADS, to = minimum(from + SEGMENT_QUADS, a.codec.quads);
			tileDecode<C, STEPS, 32>(a.codec, words, words, meta, ~0u, lane, from, to, excess[s], h.row);
		}
	}
}

#define DECODE(steps)                                                                                                            \
	KERNEL void __launch_bounds__(256) decode8x##steps(const DecodeArgs a) { decodeRows<ROW_CHUNK, steps, 8>(a); }               \
	KERNEL void __launch_bounds__(256) decode16x##steps(const DecodeArgs a) { decodeRows<ROW_CHUNK, steps, 16>(a); }             \
	KERNEL void __launch_bounds__(256) decode32x##steps(const DecodeArgs a) { decodeRows<ROW_CHUNK, steps, 32>(a); }             \
	KERNEL void __launch_bounds__(256) decodeLongx##steps(const DecodeArgs a) { decodeLongRows<ROW_CHUNK, steps>(a); }

#if ROW_CHUNK == 4
DECODE(3)
DECODE(5)
#elif ROW_CHUNK == 8
DECODE(4)
DECODE(6)
#else
DECODE(0)
#endif
