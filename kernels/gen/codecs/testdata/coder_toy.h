// KERNELS toy ToyCoder lanes=8
//
// The codec that a test adds: package toy. Params: the words of a row, and those of the bits in front. No metadata.
#pragma once
#include "coder.h"

struct ToyCoder {
	static constexpr int LANES = 8, BLOCKS = 3;

	template <int N, class W>
	static INLINE u32 storedLength(const RowCodec &codec, const u8 *, const W &stored, const Tile<N> &tile)
	{
		u32 sum = 0;
		for (u32 w = tile.lane; w < codec.params[0]; w += N)
			sum += stored.at(w / 32) >> (w & 31) & 1;
		return (codec.params[1] + tile.sum(sum)) * 4;
	}

	template <int N, class W>
	static INLINE bool decode(const RowCodec &codec, const u8 *, const W &stored, u32 length, u8 *, const Tile<N> &tile, u8 *row)
	{
		u32 at = codec.params[1];
		for (u32 from = 0; from < codec.params[0]; from += N) {
			u32 w = from + tile.lane, there = 0;
			if (w < codec.params[0])
				there = stored.at(w / 32) >> (w & 31) & 1;
			u32 through = tile.scan(there);
			if (w < codec.params[0])
				storeWord(codec, row, w, there ? stored.at(at + through - 1) : 0);
			at += tile.from(through, N - 1);
		}
		return at * 4 == length;
	}
};
