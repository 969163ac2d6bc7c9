// The encoder's parts: see decode.h for the device metadata.
#pragma once
#include "decode.h"

// rowQuad returns the words of a quad, zeros beyond the row.
INLINE u32x4 rowQuad(const u32 *row, u32 quad, u32 rowBytes)
{
	u32 w[4];
#pragma unroll
	for (u32 i = 0; i < 4; i++) {
		u32 at = quad * 16 + i * 4;
		w[i] = at < rowBytes ? row[quad * 4 + i] : 0;
		if (at < rowBytes && rowBytes - at < 4)
			w[i] &= (1u << (8 * (rowBytes - at))) - 1;
	}
	return u32x4{w[0], w[1], w[2], w[3]};
}

// participation returns which chunks of a quad participate, each as a byte of ones or zeros.
template <int CHUNK> INLINE u32 participation(u32x4 x, u32x4 mask, u32x4 val)
{
	u32x4 bad = (x & mask) ^ val;
	if (CHUNK == 4)
		return (bad.x == 0 ? 0xff : 0) | (bad.y == 0 ? 0xff00 : 0) | (bad.z == 0 ? 0xff0000 : 0) | (bad.w == 0 ? 0xff000000 : 0);
	return ((bad.x | bad.y) == 0 ? 0xff : 0) | ((bad.z | bad.w) == 0 ? 0xff00 : 0);
}

// packQuad gathers the kept bits of a quad's chunks at their low ends, and says which chunks participate.
template <int CHUNK, int STEPS, class M> INLINE u32x4 packQuad(const M &meta, u32 quad, u32x4 x, u32 &part)
{
	u32x4 mask = meta.plane(quad, 0);
	part = participation<CHUNK>(x, mask, meta.plane(quad, 1));
	x &= ~mask;
	if (CHUNK == 4) {
#pragma unroll
		for (int i = 0; i < STEPS; i++) {
			u32x4 t = x & meta.plane(quad, 2 + i);
			x = (x ^ t) | t >> (1 << i);
		}
		return x;
	}
	u64 a = (u64)x.y << 32 | x.x, b = (u64)x.w << 32 | x.z;
#pragma unroll
	for (int i = 0; i < STEPS; i++) {
		u32x4 m = meta.plane(quad, 2 + i);
		u64 t = a & ((u64)m.y << 32 | m.x), u = b & ((u64)m.w << 32 | m.z);
		a = (a ^ t) | t >> (1 << i);
		b = (b ^ u) | u >> (1 << i);
	}
	return u32x4{(u32)a, (u32)(a >> 32), (u32)b, (u32)(b >> 32)};
}

// putBits sets the low n bits of x, 0 to 32 with zeros above, at a bit position of words that are zero there.
INLINE void putBits(u32 *words, u32 bit, u64 x, u32 n)
{
	if (n == 0)
		return;
	x <<= bit & 31;
	atomicOrShared(words + bit / 32, (u32)x);
	if ((bit & 31) + n > 32)
		atomicOrShared(words + bit / 32 + 1, (u32)(x >> 32));
}
