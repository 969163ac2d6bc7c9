// How the pooled kernels of IBP with one mask expand a lane's quads: what the lane keeps of the metadata, in registers, and loads from shared memory.
#pragma once
#include "ibp.h"

// BySteps expands by the steps that the metadata have, as ibp.h does: for all tables. Shared memory: the metadata.
template <int CHUNK, int STEPS> struct BySteps {
	Planes<STEPS> planes;
	u32 masked, before; // masked bits of the chunks, and bits before the quad's in a row all of whose chunks participate
	static INLINE u32 shared(const RowCodec &codec) { return codec.metaBytes; }
	// prepare writes the shared memory. All threads of the block call it, and then wait for each other.
	static INLINE void prepare(const RowCodec &codec)
	{
		extern __shared__ u32x4 dynamic[];
		for (u32 i = threadID(); i < codec.metaBytes / 16; i += blockThreads())
			dynamic[i] = loadConst((const u32x4 *)codec.meta + i);
	}
	INLINE void load(const RowCodec &codec, u32 quad)
	{
		extern __shared__ u32x4 dynamic[];
		Meta<SHARED, STEPS> meta{(const u8 *)dynamic};
		planes = meta.planes(quad);
		masked = meta.masked(quad);
		before = headBits(codec) + meta.keptBefore(quad);
	}
	INLINE u32x4 expand(const u32 (&words)[5], u32 at, u32 part) const { return expandQuad<CHUNK>(words, at, planes, part, masked); }
};

// ByShifts is for tables of 4-byte chunks whose bits move by at most D distances in each chunk, other than 0: a bit moves by the number of masked bits below it. It
// shifts a chunk by each of them: with one or two this takes half the instructions of the steps. Shared memory, for each quad: the bits that stay, and the values of
// the masked ones; for each distance the bits that move by it; all 16 bytes each. Then words: masked, before, and for each distance one with the chunks' distances, a byte each.
template <int CHUNK, int STEPS, int D> struct ByShifts {
	static constexpr u32 PLANES = 2 + D, QUAD = PLANES * 16 + 16;
	static_assert(CHUNK == 4 && D <= 2, "");
	u32x4 stay, value, to[D];
	u32 masked, before, by[D];
	static INLINE u32 shared(const RowCodec &codec) { return codec.quads * QUAD; }
	static INLINE void prepare(const RowCodec &codec)
	{
		extern __shared__ u32x4 dynamic[];
		const Meta<GLOBAL, STEPS> meta{(const u8 *)codec.meta};
		for (u32 i = threadID(); i < codec.quads * 4; i += blockThreads()) {
			u32 quad = i / 4, word = i % 4, *own = (u32 *)((u8 *)dynamic + quad * QUAD);
			u32 mask = wordOf(meta.plane(quad, 0), word), moved = ~mask, below = (mask & -mask) - 1;
			own[word] = moved & below; // those below the lowest masked bit, all if there is none
			own[4 + word] = wordOf(meta.plane(quad, 1), word);
			moved &= ~below;
#pragma unroll
			for (u32 d = 0; d < D; d++) { // the lowest of those that are left, up to the next masked bit
				u32 above = mask & -(moved & -moved), here = moved & ((above & -above) - 1);
				own[4 * (2 + d) + word] = here;
				((u8 *)(own + 4 * PLANES + 2 + d))[word] = (u8)popcount(mask & ((here & -here) - 1) & (here == 0 ? 0 : ~0u));
				moved &= ~here;
			}
			if (word == 0)
				own[4 * PLANES] = meta.masked(quad), own[4 * PLANES + 1] = headBits(codec) + meta.keptBefore(quad);
		}
	}
	static INLINE u32 wordOf(u32x4 x, u32 i) { return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w; }
	INLINE void load(const RowCodec &, u32 quad)
	{
		extern __shared__ u32x4 dynamic[];
		const u32x4 *own = (const u32x4 *)((const u8 *)dynamic + quad * QUAD);
		stay = own[0], value = own[1];
#pragma unroll
		for (int d = 0; d < D; d++)
			to[d] = own[2 + d], by[d] = own[PLANES][2 + d];
		masked = own[PLANES].x, before = own[PLANES].y;
	}
	INLINE u32x4 expand(const u32 (&words)[5], u32 at, u32 part) const
	{
		u32x4 y = chunksAt(words, at, part, masked), e = (y & stay) | value;
#pragma unroll
		for (int d = 0; d < D; d++) {
			u32x4 moved = {shiftLeft(y.x, by[d]), shiftLeft(y.y, by[d] >> 8), shiftLeft(y.z, by[d] >> 16), shiftLeft(y.w, by[d] >> 24)};
			e |= moved & to[d];
		}
		y.x = part & 0x01 ? e.x : y.x;
		y.y = part & 0x0100 ? e.y : y.y;
		y.z = part & 0x010000 ? e.z : y.z;
		y.w = part & 0x01000000 ? e.w : y.w;
		return y;
	}
};
