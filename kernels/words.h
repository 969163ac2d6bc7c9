// What all coders need: the words of a stored row, and the writing of a row, quad by quad of 16 bytes.
//
// Stored rows are not trusted: no load reaches further than 20 bytes past the stored length.
#pragma once
#include "gpu.h"

// Space is the memory in which words lie.
enum Space { GLOBAL, SHARED };

// Words are the words of a stored row. p points to word base of the row. No word past limit + 4 is read.
template <Space SPACE> struct Words {
	const u32 *p;
	u32 base, limit;
	INLINE u32 at(u32 w) const
	{
		const u32 *q = p + (minimum(w, limit) - base);
		return SPACE == GLOBAL ? loadConst(q) : *q;
	}
	INLINE void window(u32 w, u32 (&x)[5]) const
	{
		const u32 *q = p + (minimum(w, limit) - base);
#pragma unroll
		for (int i = 0; i < 5; i++)
			x[i] = SPACE == GLOBAL ? loadConst(q + i) : q[i];
	}
};

// storeQuad writes a quad's bytes as far as they belong to the row.
INLINE void storeQuad(u8 *row, u32 quad, u32x4 x, u32 rowBytes, u32 store)
{
	u8 *p = row + quad * 16;
	u32 left = rowBytes - quad * 16;
	if (store == STORE_16) {
		storeOut((u32x4 *)p, x);
	} else if (store == STORE_8) {
		storeOut((u32x2 *)p, x.xy);
		if (left > 8)
			storeOut((u32x2 *)p + 1, x.zw);
	} else if (store == STORE_4) {
		storeOut((u32 *)p, x.x);
		if (left > 4)
			storeOut((u32 *)p + 1, x.y);
		if (left > 8)
			storeOut((u32 *)p + 2, x.z);
		if (left > 12)
			storeOut((u32 *)p + 3, x.w);
	} else {
		u64 low = (u64)x.y << 32 | x.x, high = (u64)x.w << 32 | x.z;
#pragma unroll 1
		for (u32 i = 0; i < minimum(left, 16); i++) {
			p[i] = (u8)low;
			low = low >> 8 | high << 56;
			high >>= 8;
		}
	}
}

// tileCopy writes a raw row.
template <int LANES, class W>
INLINE void tileCopy(const RowCodec &codec, const W &words, u32 lane, u8 *row)
{
	for (u32 quad = lane; quad < codec.quads; quad += LANES) {
		u32 x[5];
		words.window(quad * 4, x);
		storeQuad(row, quad, u32x4{x[0], x[1], x[2], x[3]}, codec.rowBytes, codec.store);
	}
}

INLINE void corruptRow(u64 counters, u32 position)
{
	Counters *count = (Counters *)counters;
	count->corruptPosition = position;
	atomicAdd(&count->corrupt, 1);
}

// loadMeta copies the metadata to shared memory. All threads of the block call it.
INLINE void loadMeta(const RowCodec &codec, u8 *shared)
{
	for (u32 i = threadID() * 16; i < codec.metaBytes; i += blockThreads() * 16)
		*(u32x4 *)(shared + i) = loadConst((const u32x4 *)(codec.meta + i));
	blockSync();
}
