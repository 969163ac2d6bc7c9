// The contract between a codec and its kernels. A codec writes one struct, its coder. These files make kernels of it:
//
//	decode.cu   hits of a list, from slabs; with ROW_PEERS also from slabs of other devices; with ROW_BUDDY rows of resident tables
//	fetch.cu    misses, from the host tier, in place or packed
//	share.cu    misses that the host's processors help with
//	serve.cu    small batches, hits and misses in one launch
//	encode.cu   encoding
//
// A coder may have tuned kernels in place of some of these: IBP with one mask has decode_pairs.cu, decode_two.cu, encode_quads.cu and fetch_long.h, and
// rank has RankBytes and RankBits. tuning.h lists them all.
//
// To add a codec NAME: write the Go package codec/NAME with its Families and, in its DeviceForm, the name of the kernels; write
// kernels/coder_NAME.h with the struct, beginning with a KERNELS line for each set of kernels; and put NAME in codec/codecs.list.
// "make kernels" does the rest. gen/codecs/testdata has the smallest example. A KERNELS line is
//
//	// KERNELS name struct lanes=N [encode] [MACRO=value]...
//
// where name is what DeviceForm.Kernel says, lanes is the struct's LANES, and encode says that there is an encoder. The struct:
//
//	struct SomeCoder {
//		// The narrowest tile that can decode a row: 8, 16 or 32 lanes. A row gets a tile with a lane for each of its 16-byte
//		// quads, but at least LANES and at most a warp.
//		static constexpr int LANES = 8;
//		// Blocks of 256 threads per multiprocessor, for the launch bounds of decoding: 3 leaves 80 registers, 4 leaves 64.
//		static constexpr int BLOCKS = 3;
//
//		// storedLength returns the length in bytes of a stored row of which the first DeviceForm.Head bytes are there, or 0 if no
//		// encoder writes such a row. All lanes return the same. Kernels check that the length is at most the row's.
//		template <int N, class W>
//		static INLINE u32 storedLength(const RowCodec &codec, const u8 *meta, const W &stored, const Tile<N> &tile);
//
//		// decode writes the row whose stored form has length bytes, at least 1 and at most the row's, and returns whether the stored
//		// form is valid. All lanes return the same. A row whose content does not end exactly at length is corrupt.
//		template <int N, class W>
//		static INLINE bool decode(const RowCodec &codec, const u8 *meta, const W &stored, u32 length, u8 *scratch,
//					  const Tile<N> &tile, u8 *row);
//
//		// decodeLong, if there is one, is decode of hits of rows that are too long for a stage, by a warp.
//		template <class W>
//		static INLINE bool decodeLong(const RowCodec &codec, const u8 *meta, const W &stored, u32 length, u8 *scratch,
//					      const Tile<32> &tile, u8 *row);
//
//		// encode, if the codec encodes on GPUs, writes the stored form of a row to out and returns its length, or the row's length
//		// or more if the row does not shrink. words is the row in shared memory, the last word padded with zeros. out is
//		// shared memory of room words, all zeros at first. encode writes no word from room on: a row that does not shrink
//		// need not fit.
//		static INLINE u32 encode(const RowCodec &codec, const u8 *meta, const u32 *words, u32 *out, u32 room, u8 *scratch,
//					 const Tile<32> &tile);
//	};
//
// codec has the row's length, the table's params and the units by which rows are written.
//
// meta is the device metadata, aligned to 16 bytes. It lies in shared memory or, for long rows and where it is too large, in global memory,
// where no kernel that runs at the same time writes it. Metadata come from a codec and are trusted. Stored bytes are not.
//
// stored is the words of the stored row (words.h), aligned to 4 bytes. It lies in shared memory or, for long rows and in small batches,
// in global memory. at(w) and window may be asked for any word. Past the last word, and past length within the last word, they return
// garbage. Code that reads stored.p itself stays below word limit + 4.
//
// scratch is DeviceForm.Scratch bytes (for encode: EncodeScratch) of shared memory, aligned to 16, for this tile alone. Its content is
// undefined at first.
//
// row is written by the store functions below, never outside the row; each byte is written at least once, by any lane. What is written
// for a corrupt row does not matter.
//
// All lanes of a tile call a coder's functions together, and the functions of the tile too. Other tiles of the warp may be elsewhere.
// Lanes that exchange data through scratch call tile.sync in between. No function may use blockSync or static shared memory.
#pragma once
#include "words.h"

// Tile is N lanes of a warp, 8, 16 or 32, that work on a row together.
template <int N> struct Tile {
	u32 lanes; // the tile's lanes of the warp, a bit each
	u32 lane;  // 0 to N - 1
	static INLINE Tile make()
	{
		return Tile{N == 32 ? ~0u : ((1u << (N & 31)) - 1) << (laneID() & ~(N - 1)), threadID() % N};
	}
	// vote returns the lanes' votes, that of lane 0 in bit 0.
	INLINE u32 vote(bool yes) const { return ballot(lanes, yes) >> (N == 32 ? 0 : laneID() & ~(N - 1)); }
	INLINE u32 from(u32 x, u32 of) const { return tileFrom<N>(lanes, x, of); }
	INLINE u32 scan(u32 x) const { return tileScan<N>(lanes, x); } // inclusive
	INLINE u32 sum(u32 x) const { return tileSum<N>(lanes, x); }
	INLINE void sync() const { warpSync(lanes); }
};

// storeWord writes word i of a row, except for bytes past the row's end. The store is a streaming one where rows begin at words.
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

// copyRow writes a raw row. Each lane writes words.
template <int N, class W> INLINE void copyRow(const RowCodec &codec, const W &stored, const Tile<N> &tile, u8 *row)
{
	for (u32 w = tile.lane; w * 4 < codec.rowBytes; w += N)
		storeWord(codec, row, w, stored.at(w));
}

// sharedMetaOf says whether a coder's metadata always go to shared memory: its SHARED_META. The default is: where they fit.
template <class C, class = void> constexpr bool sharedMetaOf = false;
template <class C> constexpr bool sharedMetaOf<C, decltype((void)C::SHARED_META)> = C::SHARED_META;

// smallOf says whether a coder's functions are small enough to be compiled into a kernel several times: its SMALL. The default is no.
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
