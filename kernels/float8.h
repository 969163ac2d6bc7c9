// Float8 values with scales as float32: see Float8 of package reduce, which does the same on the host.
#pragma once
#include "pooled.h"

// float8Bytes returns the elements of four bytes. The bits of e4m3 are put where a float32 has its exponent and fraction, which makes them 2^120 times too
// small; subnormal values too.
INLINE void float8Bytes(u32 four, u32 element, float *x)
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		u32 b = four >> 8 * i;
		if (element == POOL_E5M2) {
			x[i] = ofHalf(b << 8 & 0xff00);
			continue;
		}
		float value = productOf(asFloat((b & 0x80) << 24 | (b & 0x7f) << 20), 0x1p120f);
		x[i] = (b & 0x7f) == 0x7f ? asFloat(0x7fc00000) : value;
	}
}

// RowInShared is a row in shared memory, aligned to 4 bytes. word reads at an offset that is a multiple of 4.
struct RowInShared {
	const u8 *row;
	INLINE u32 word(u32 offset) const { return *(const u32 *)(row + offset); }
	INLINE u32 byte(u32 offset) const { return row[offset]; }
};

// scaleOf returns the scale of a block, given at which offset of a row the scales begin.
template <class R> INLINE float scaleOf(const Float8Args &f, const R &row, u32 scales, u32 block)
{
	if (f.scales == FLOAT8_FLOAT32)
		return asFloat(row.word(scales + block * 4));
	u32 s = row.byte(scales + block);
	return asFloat(s == 0 ? 0x00400000 : s == 255 ? 0x7fc00000 : s << 23);
}

// float8Piece returns the elements of piece i of a row that has so many columns.
template <class R> INLINE void float8Piece(const Float8Args &f, u32 element, const R &row, u32 columns, u32 i, float (&x)[8])
{
	float8Bytes(row.word(8 * i), element, x);
	float8Bytes(row.word(8 * i + 4), element, x + 4);
	if (f.scales != FLOAT8_UNSCALED) {
		float scale = scaleOf(f, row, columns, i / f.block);
#pragma unroll
		for (int k = 0; k < 8; k++)
			x[k] = productOf(x[k], scale);
	}
	float factor = asFloat(f.factor);
#pragma unroll
	for (int k = 0; k < 8; k++)
		x[k] = productOf(x[k], factor);
}
