// KERNELS ndzip16 NdzipCoder lanes=16 ROW_WIDTH=16
// KERNELS ndzip32 NdzipCoder lanes=32 ROW_WIDTH=32
// KERNELS ndzip64 NdzipCoder lanes=32 ROW_WIDTH=64
//
// ndzip: see docs/format/ndzip.md. ROW_WIDTH is W: 16, 32 or 64. No metadata, and one param: the row's groups.
//
// A lane takes the column of one bit position, found by a popcount of the head's bits above; a transposition by shuffles makes residuals
// of columns, and a scan makes words of residuals. A warp decodes a group of 32 words a round, or 64, two a lane; half a
// warp two groups of 16 words of 16 bits, side by side in the halves of each lane's word.
#pragma once
#include "coder.h"

struct NdzipCoder {
	static constexpr int LANES = ROW_WIDTH == 16 ? 16 : 32, BLOCKS = 3;
	static constexpr u32 BYTES = ROW_WIDTH / 8, GROUP = ROW_WIDTH * BYTES;

	// above returns the bits of a word that are higher than the i-th from the top.
	static INLINE u32 above(u32 i) { return ~(~0u >> i); }

	// Transposer transposes 32-by-32 matrices, a row a lane, or 16-by-16 ones, two side by side in the halves of 16 lanes: bit 31 - i, or
	// 15 - i of each half, is column i.
	struct Transposer {
		u32 keep[5], turn[5];
		static INLINE Transposer make(u32 lane)
		{
			constexpr u32 low[5] = {0x0000ffff, 0x00ff00ff, 0x0f0f0f0f, 0x33333333, 0x55555555};
			Transposer t;
#pragma unroll
			for (int i = 0; i < 5; i++) {
				u32 half = 16 >> i;
				bool lower = (lane & half) != 0; // rows further down keep the right half and turn the other lane's to the left
				t.keep[i] = lower ? low[i] : ~low[i];
				t.turn[i] = lower ? 32 - half : half;
			}
			return t;
		}
		template <int FIRST = 0> INLINE u32 apply(u32 lanes, u32 x) const
		{
#pragma unroll
			for (int i = FIRST; i < 5; i++) {
				u32 other = tileXor<32>(lanes, x, 16 >> i);
				x = (x & keep[i]) | (funnelWrap(other, other, turn[i]) & ~keep[i]);
			}
			return x;
		}
	};

	// positive undoes what residuals with the highest bit have.
	static INLINE u32 positive(u32 r) { return r ^ ((u32)((int)r >> 31) & 0x7fffffff); }

	static INLINE u32 remainder(const RowCodec &codec) { return codec.rowBytes - codec.params[0] * GROUP; }
	static INLINE u32 lengthOf(const RowCodec &codec, u32 columns)
	{
		return (codec.params[0] + columns) * BYTES + remainder(codec);
	}

	// headWord returns a 32-bit word of the heads, without the bits that are none.
	template <class W> static INLINE u32 headWord(const RowCodec &codec, const W &stored, u32 i)
	{
		u32 x = stored.at(i);
		return ROW_WIDTH == 16 && 2 * i + 1 == codec.params[0] ? x & 0xffff : x;
	}

	template <int N, class W>
	static INLINE u32 storedLength(const RowCodec &codec, const u8 *, const W &stored, const Tile<N> &tile)
	{
		u32 columns = 0;
		for (u32 i = tile.lane; i * 4 < codec.params[0] * BYTES; i += N)
			columns += popcount(headWord(codec, stored, i));
		return lengthOf(codec, tile.sum(columns));
	}

	template <int N, class W>
	static INLINE bool decode(const RowCodec &codec, const u8 *, const W &stored, u32 length, u8 *, const Tile<N> &tile, u8 *row)
	{
		u32 columns = codec.params[0]; // words of the stored form before the round's columns, heads included
		const Transposer transposer = Transposer::make(tile.lane);
#if ROW_WIDTH == 16
		u32 last = 0, i = tile.lane % 16, bit = 15 - i;
		for (u32 from = 0; from < codec.params[0]; from += N / 8) {
			u32 first = from + tile.lane / 16 * 2; // the half warp's groups are this one and the next
			u32 heads = first < codec.params[0] ? headWord(codec, stored, first / 2) : 0;
			u32 before = tile.from(popcount(heads), 0), more = N == 32 ? tile.from(popcount(heads), N - 1) : 0;
			u32 at = columns + (tile.lane / 16 != 0 ? before : 0), low = heads & 0xffff, high = heads >> 16, x = 0;
			if (low >> bit & 1)
				x = half(stored, at + popcount(low >> bit) - 1);
			if (high >> bit & 1)
				x |= half(stored, at + popcount(low) + popcount(high >> bit) - 1) << 16;
			x = transposer.apply<1>(tile.lanes, x);
			x ^= (x >> 15 & 0x00010001) * 0x7fff;
			u32 a = tileScan<16>(tile.lanes, x & 0xffff), b = tileScan<16>(tile.lanes, x >> 16);
			b += tileFrom<16>(tile.lanes, a, 15);
			u32 sum = tile.from(b, 15), all = tile.from(b, N - 1); // of the first half, and of the second
			a += last + (tile.lane / 16 != 0 ? sum : 0);
			b += last + (tile.lane / 16 != 0 ? sum : 0);
			last += sum + (N == 32 ? all : 0);
			columns += before + more;
			// Even lanes store two words of the first group, odd ones two of the second.
			u32 y = (a & 0xffff) | b << 16;
			y = (y >> 1 & 0x7fff7fff) | (y & 0x00010001) << 15;
			bool odd = tile.lane & 1;
			u32 other = tileXor<32>(tile.lanes, odd ? y & 0xffff : y >> 16, 1);
			if (first + odd < codec.params[0])
				storeWord(codec, row, (first + odd) * 8 + i / 2, odd ? other | (y & 0xffff0000) : (y & 0xffff) | other << 16);
		}
#elif ROW_WIDTH == 32
		u32 last = 0, higher = above(tile.lane), bit = 31 - tile.lane;
		for (u32 g = 0; g < codec.params[0]; g++) {
			u32 head = stored.at(g), x = 0;
			if (head >> bit & 1)
				x = stored.at(columns + popcount(head & higher));
			columns += popcount(head);
			last += tile.scan(positive(transposer.apply(tile.lanes, x)));
			storeWord(codec, row, g * 32 + tile.lane, funnelWrap(last, last, 1));
			last = tile.from(last, 31);
		}
#else
		u64 last = 0;
		u32 higher = above(tile.lane), bit = 31 - tile.lane;
		for (u32 g = 0; g < codec.params[0]; g++) {
			u32 low = stored.at(2 * g), high = stored.at(2 * g + 1);
			u64 a = 0, b = 0; // rows lane and lane + 32 of the columns
			if (high >> bit & 1)
				a = pair(stored, columns + popcount(high & higher));
			if (low >> bit & 1)
				b = pair(stored, columns + popcount(high) + popcount(low & higher));
			columns += popcount(high) + popcount(low);
			// The step of 32 is within lanes; then there are four 32-by-32 matrices.
			u32 aHigh = transposer.apply(tile.lanes, (u32)(a >> 32)), aLow = transposer.apply(tile.lanes, (u32)(b >> 32));
			u32 bHigh = transposer.apply(tile.lanes, (u32)a), bLow = transposer.apply(tile.lanes, (u32)b);
			a = scan(tile, positive64((u64)aHigh << 32 | aLow)) + last;
			storeDouble(codec, row, g * 64 + tile.lane, a >> 1 | a << 63);
			last = from(tile, a);
			b = scan(tile, positive64((u64)bHigh << 32 | bLow)) + last;
			storeDouble(codec, row, g * 64 + 32 + tile.lane, b >> 1 | b << 63);
			last = from(tile, b);
		}
#endif
		for (u32 i = tile.lane; i * 4 < remainder(codec); i += N)
			storeWord(codec, row, codec.params[0] * (GROUP / 4) + i, bitsAt(stored, columns * ROW_WIDTH + i * 32));
		return (columns * BYTES + remainder(codec)) == length;
	}

#if ROW_WIDTH == 16
	// half returns the i-th 16 bits of the stored row.
	template <class W> static INLINE u32 half(const W &stored, u32 i) { return stored.at(i / 2) >> i % 2 * 16 & 0xffff; }
#elif ROW_WIDTH == 64
	// pair returns the i-th 64 bits of the stored row.
	template <class W> static INLINE u64 pair(const W &stored, u32 i) { return (u64)stored.at(2 * i + 1) << 32 | stored.at(2 * i); }
	static INLINE u64 positive64(u64 r) { return r ^ ((u64)((i64)r >> 63) & 0x7fffffffffffffff); }
	// scan returns inclusive sums over a warp, and from what its last lane has.
	static INLINE u64 scan(const Tile<32> &tile, u64 x)
	{
#pragma unroll
		for (u32 d = 1; d < 32; d *= 2) {
			u64 before = (u64)tile.from((u32)(x >> 32), tile.lane - d) << 32 | tile.from((u32)x, tile.lane - d);
			x += tile.lane >= d ? before : 0;
		}
		return x;
	}
	static INLINE u64 from(const Tile<32> &tile, u64 x) { return (u64)tile.from((u32)(x >> 32), 31) << 32 | tile.from((u32)x, 31); }
#endif
};
