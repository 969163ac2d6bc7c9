// KERNELS raw RawCoder lanes=8
//
// Rows of a table without a codec. A row that says to be compressed is corrupt.
#pragma once
#include "coder.h"

struct RawCoder {
	static constexpr int LANES = 8, BLOCKS = 3, CHUNK = 0, STEPS = 0;
	static constexpr bool SMALL = true;

	template <int N, class W> static INLINE u32 storedLength(const RowCodec &, const u8 *, const W &, const Tile<N> &) { return 0; }
	template <int N, class W>
	static INLINE bool decode(const RowCodec &, const u8 *, const W &, u32, u8 *, const Tile<N> &, u8 *)
	{
		return false;
	}
};
