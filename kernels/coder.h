// What a codec other than IBP gives its kernels, and what they give it. IBP has kernels of its own, tuned to its chunks; every
// other codec writes one struct, its coder, and coder_decode.cu, coder_fetch.cu, coder_encode.cu and serve.cu make kernels of it:
// hits from the slabs, misses from the host tier, in place or packed, small batches, and encoding.
//
// To add a codec: write coder_<name>.h with a struct in it, a line in build.sh, a line in coders (coders.go), and DeviceForm in
// its Go package, whose Kernel is that name. coder_ibp.h is the example. The coder:
//
//	struct SomeCoder {
//		// The narrowest tile that can decode a row: 8, 16 or 32 lanes. Tiles as wide as a row has 16-byte quads are
//		// used, up to a warp; coders.go must say the same.
//		static constexpr int LANES = 8;
//		// Blocks of 256 threads a multiprocessor, for the launch bounds of decoding: 3 leaves 80 registers, 4 leaves 64.
//		static constexpr int BLOCKS = 3;
//
//		// storedLength returns the length in bytes of the stored row whose first bytes are there: DeviceForm.Head of
//		// them at least. 0 if no encoder writes such a row. All lanes return the same. Kernels check that the length
//		// is at most the row's.
//		template <int N, class W>
//		static INLINE u32 storedLength(const RowCodec &codec, const u8 *meta, const W &stored, const Tile<N> &tile);
//
//		// decode writes the row whose stored form has so many bytes, 1 to the row's, and says whether it was one: all
//		// lanes return the same. A row whose content does not end exactly there is corrupt.
//		template <int N, class W>
//		static INLINE bool decode(const RowCodec &codec, const u8 *meta, const W &stored, u32 length, u8 *scratch,
//					  const Tile<N> &tile, u8 *row);
//
//		// encode, if the codec encodes on GPUs, writes the stored form of a row in shared memory, whose last word is padded
//		// with zeros, to out, words of shared memory that are zeros, and returns its length; or the row's length or more if it
//		// does not shrink. It writes no word from room on: a row that does not shrink need not fit.
//		static INLINE u32 encode(const RowCodec &codec, const u8 *meta, const u32 *words, u32 *out, u32 room, u8 *scratch,
//					 const Tile<32> &tile);
//	};
//
// codec has the row's length, the table's params and how rows are written; meta the device metadata, aligned to 16 bytes, in
// shared memory or, of long rows and where it is too large, in global memory: no kernel that runs at the same time writes it. Metadata
// come from a codec, which is trusted; stored bytes are not. stored are the row's words (decode.h), in shared memory or, of long
// rows and in small batches, in global memory, aligned to 4 bytes. at(w) may be asked for any word, and gives garbage past the
// last one, as window does; so may the last word's bytes past the length be. Whoever reads stored.p itself stays below limit + 4
// words. scratch is DeviceForm.Scratch bytes (encoding: EncodeScratch) of shared memory for the tile alone, aligned to 16, with
// anything in it. row is written by the stores below, and never outside the row: each byte once or more, by any lane. What is written of a corrupt
// row does not matter.
//
// All lanes of a tile call these functions together, and so must they call the tile's; the other tiles of the warp are
// elsewhere. Lanes that exchange through scratch call tile.sync between. No function may use blockSync or static shared memory.
#pragma once
#include "decode.h"

// Tile is N lanes of a warp, 8, 16 or 32, that work on a row together.
template <int N> struct Tile {
	u32 lanes; // its lanes of the warp, a bit each
	u32 lane;  // 0 to N - 1
	static INLINE Tile make()
	{
		return Tile{N == 32 ? ~0u : ((1u << (N & 31)) - 1) << (laneID() & ~(N - 1)), threadID() % N};
	}
	// ballot returns the lanes' votes, lane 0's in bit 0.
	INLINE u32 vote(bool yes) const { return ballot(lanes, yes) >> (N == 32 ? 0 : laneID() & ~(N - 1)); }
	INLINE u32 from(u32 x, u32 of) const { return tileFrom<N>(lanes, x, of); }
	INLINE u32 scan(u32 x) const { return tileScan<N>(lanes, x); } // inclusive
	INLINE u32 sum(u32 x) const { return tileSum<N>(lanes, x); }
	INLINE void sync() const { warpSync(lanes); }
};

// storeWord writes word i of a row, as far as it belongs to the row: streaming, where rows begin at words.
INLINE void storeWord(const RowCodec &codec, u8 *row, u32 i, u32 x)
{
	u8 *p = row + i * 4;
	if (codec.store != STORE_1) {
		storeOut((u32 *)p, x);
		return;
	}
	for (u32 b = 0; b < minimum(codec.rowBytes - i * 4, 4); b++)
		p[b] = (u8)(x >> (8 * b));
}

// storeHalf writes the 16 bits at 2 × i of a row of an even number of bytes.
INLINE void storeHalf(const RowCodec &codec, u8 *row, u32 i, u32 x)
{
	u8 *p = row + i * 2;
	if (codec.store != STORE_1) {
		*(u16 *)p = (u16)x;
		return;
	}
	p[0] = (u8)x;
	p[1] = (u8)(x >> 8);
}

// storeDouble writes the 64 bits at 8 × i of a row of a multiple of 8 bytes.
INLINE void storeDouble(const RowCodec &codec, u8 *row, u32 i, u64 x)
{
	if (codec.store <= STORE_8) {
		storeOut((u32x2 *)(row + i * 8), u32x2{(u32)x, (u32)(x >> 32)});
		return;
	}
	storeWord(codec, row, 2 * i, (u32)x);
	storeWord(codec, row, 2 * i + 1, (u32)(x >> 32));
}

// bitsAt returns the 32 bits from a bit position of the stored row on, and bits64At 64 of them.
template <class W> INLINE u32 bitsAt(const W &stored, u32 bit) { return funnelWrap(stored.at(bit / 32), stored.at(bit / 32 + 1), bit); }
template <class W> INLINE u64 bits64At(const W &stored, u32 bit)
{
	u32 a = stored.at(bit / 32), b = stored.at(bit / 32 + 1), c = stored.at(bit / 32 + 2);
	return (u64)funnelWrap(b, c, bit) << 32 | funnelWrap(a, b, bit);
}

// copyRow writes a raw row, a word a lane.
template <int N, class W> INLINE void copyRow(const RowCodec &codec, const W &stored, const Tile<N> &tile, u8 *row)
{
	for (u32 w = tile.lane; w * 4 < codec.rowBytes; w += N)
		storeWord(codec, row, w, stored.at(w));
}

// sharedMetaOf says whether a coder wants its metadata in shared memory whatever their length: SHARED_META.
template <class C, class = void> constexpr bool sharedMetaOf = false;
template <class C> constexpr bool sharedMetaOf<C, decltype((void)C::SHARED_META)> = C::SHARED_META;

// smallOf says whether a coder's functions are small enough to be compiled into a kernel several times: SMALL.
template <class C, class = void> constexpr bool smallOf = false;
template <class C> constexpr bool smallOf<C, decltype((void)C::SMALL)> = C::SMALL;

// metaOf returns the metadata, copied to shared memory where they fit. All threads of the block call it.
template <class C> INLINE const u8 *metaOf(const RowCodec &codec, u8 *shared)
{
	if (!sharedMetaOf<C> && codec.metaBytes == 0)
		return (const u8 *)codec.meta;
	loadMeta(codec, shared);
	return shared;
}

#ifdef ROW_HEADER
#include ROW_HEADER
#endif
