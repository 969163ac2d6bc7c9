#include "coder.h"
#include "publish.h"
#include "ticket.h"
#ifdef ROW_FIND
#include "looked.h"
#endif
#ifdef ROW_BUDDY
#include "buddy.h"
#endif
#ifdef ROW_BUILT
#include "decode_built.h"
#endif

// Reads the hits of a batch from the slabs and writes their rows to the output, by a coder: ROW_CODER of ROW_HEADER. With ROW_PEERS some
// rows of the list lie in slabs of other devices. With ROW_FIND there is no list of hits: the kernel looks the rows up. Its
// last blocks read the misses. With ROW_BUDDY the rows are those of a resident table (buddy.h).

// togetherOf says that all tiles of a warp call the coder's decode at the same time: its TOGETHER. Such a coder also has plan(codec, meta,
// table), which is called once a kernel. Its decode takes what plan returns instead of the codec, and the table. RankBytes, its other forms, and
// PartsCoder are such coders.
template <class C, class = void> constexpr bool togetherOf = false;
template <class C> constexpr bool togetherOf<C, decltype((void)C::TOGETHER)> = C::TOGETHER;

// A tile of N lanes decodes a row. The tiles of the grid take the hits in turns. Asynchronous copies stage rows in shared memory: while one
// row is decoded, AHEAD more are being copied, or none, as a.ahead says: then there is room for more tiles. Every N rows, each lane makes the
// ticket of one of the tile's next N rows. Shared memory: the metadata, then for each tile the stages, one more than rows being copied, and
// the scratch, then FIND_SHARED bytes a thread with ROW_FIND.
//
// All tiles of a warp take their k-th rows at the same time, until the warp's first tile, which has the earliest hits, has none left.
// Tiles that ran on their own would synchronize separately, which costs several times as much.
template <class C, int N, int AHEAD, class SOURCE>
INLINE void decodeCoded(const DecodeArgs &a, const u32 *table, SOURCE rows, u32 blocks)
{
	extern __shared__ u32x4 dynamic[];
	const Tile<N> tile = Tile<N>::make();
	const u8 *meta = (const u8 *)dynamic;
	loadMeta(a.codec, (u8 *)dynamic);
	const u32 ahead = a.ahead; // 0 or AHEAD
	[[maybe_unused]] auto plan = [&] {
		if constexpr (togetherOf<C>)
			return C::plan(a.codec, meta, table);
		else
			return 0;
	}();
	u32 perTile = (ahead + 1) * a.stageBytes + a.codec.scratch;
	u8 *ring = (u8 *)dynamic + a.codec.metaBytes + threadID() / N * perTile;
	u8 *scratch = ring + (ahead + 1) * a.stageBytes;
	// Few rows are spread over all blocks.
	u32 first = threadID() / N * blocks + blockID(), tiles = blockThreads() / N * blocks;
	u32 firstOfWarp = threadID() / 32 * (32 / N) * blocks + blockID();
	auto numberOf = [&](u32 k) { return first + k * tiles; }; // the tile's k-th row
	rows.begin(numberOf(tile.lane), N * tiles, a.codec.metaBytes + blockThreads() / N * perTile);
	u32 hits = rows.count;
	using Kept = typename SOURCE::Kept;
	constexpr bool PARTS = sizeof(Kept) != sizeof(Ticket); // rows in two parts
	Kept known;
	auto stage = [&](u32 k, u32 slot) {
		if (k % N == 0)
			known = rows.make(numberOf(k + tile.lane), N * tiles);
		bool seconds = false; // whether one of the rows that the warp knows has a second part
		if constexpr (PARTS)
			seconds = ballot(~0u, known.split != known.length) != 0;
		Ticket t;
		u32 low = tileFrom<N>(~0u, (u32)known.stored, k % N), high = tileFrom<N>(~0u, (u32)(known.stored >> 32), k % N);
		t.stored = (u64)high << 32 | low;
		t.position = tileFrom<N>(~0u, known.position, k % N);
		t.length = tileFrom<N>(~0u, known.length, k % N);
		u32 to = sharedAddress(ring + slot * a.stageBytes);
		i32 split = t.length;
		if constexpr (PARTS)
			if (seconds)
				split = tileFrom<N>(~0u, known.split, k % N);
#pragma unroll 1
		for (u32 at = tile.lane * 16; (int)at < split; at += N * 16)
			copyRow16(to + at, t.stored + at);
		if constexpr (PARTS) {
			u32 low = 0, high = 0;
			if (seconds)
				low = tileFrom<N>(~0u, (u32)known.over, k % N), high = tileFrom<N>(~0u, (u32)(known.over >> 32), k % N);
#pragma unroll 1
			for (u32 at = tile.lane * 16; seconds && (int)at < (int)t.length; at += N * 16)
				if ((i32)at >= split)
					copyRow16(to + at, ((u64)high << 32 | low) + at);
		}
		copyCommit();
		return t;
	};
	Ticket coming[AHEAD];
#pragma unroll
	for (u32 i = 0; i < AHEAD; i++)
		if (i < ahead)
			coming[i] = stage(i, i);
	u32 slot = 0;
	for (u32 k = 0; firstOfWarp + k * tiles < hits; k++) {
		Ticket last = stage(k + ahead, slot == 0 ? ahead : slot - 1), t = ahead == 0 ? last : coming[0];
#pragma unroll
		for (u32 i = 1; i < AHEAD; i++)
			coming[i - 1] = coming[i];
		coming[AHEAD - 1] = last;
		if (ahead == 0)
			copyWaitGroups<0>();
		else
			copyWaitGroups<AHEAD>();
		warpSync(~0u); // the copies of all lanes have arrived
		if (ahead == 0 || (k + AHEAD) % N % (AHEAD + 1) == AHEAD) // so have those of the last make or advance
			rows.advance();
		u8 *row = (u8 *)a.out + (u64)t.position * a.codec.rowBytes;
		Words<SHARED> stored{(const u32 *)(ring + slot * a.stageBytes), 0, ((i32)t.length < 0 ? 0 : t.length + 3) / 4};
		bool raw = t.length == a.codec.rowBytes, coded = !raw && (int)t.length > 0, ok = (int)t.length >= 0;
		if (raw)
			tileCopy<N>(a.codec, stored, tile.lane, row);
		if constexpr (togetherOf<C>) {
			bool was = C::template decode<N>(plan, meta, table, stored, coded ? t.length : 0, scratch, tile, row);
			ok = coded ? was : ok;
		} else if (coded) {
			ok = C::decode(a.codec, meta, stored, t.length, scratch, tile, row);
		}
		if (!ok && tile.lane == 0)
			corruptRow(a.counters, t.position);
		warpSync(~0u); // the stages may be reused
		slot = slot == ahead ? 0 : slot + 1;
	}
	copyWaitGroups<0>();
	rows.end();
}

// decodeRows is decodeCoded by the coder's Other if it has one and its other(codec) is true. The choice is made once, outside the loop over rows:
// inside it would cost a branch a row, and registers.
template <class C, int N, int AHEAD, class SOURCE>
INLINE auto decodeRows(const DecodeArgs &a, const u32 *table, SOURCE rows, u32 blocks, int) -> decltype(C::other(a.codec), void())
{
	if (C::other(a.codec))
		decodeCoded<typename C::Other, N, AHEAD>(a, table, rows, blocks);
	else
		decodeCoded<C, N, AHEAD>(a, table, rows, blocks);
}
template <class C, int N, int AHEAD, class SOURCE>
INLINE void decodeRows(const DecodeArgs &a, const u32 *table, SOURCE rows, u32 blocks, long)
{
	decodeCoded<C, N, AHEAD>(a, table, rows, blocks);
}

// decodeFar is the coder's decodeLong if it has one, else its decode.
template <class C, class W>
INLINE auto decodeFar(const RowCodec &codec, const u8 *meta, const W &stored, u32 length, u8 *scratch, const Tile<32> &tile, u8 *row, int)
	-> decltype(C::decodeLong(codec, meta, stored, length, scratch, tile, row))
{
	return C::decodeLong(codec, meta, stored, length, scratch, tile, row);
}
template <class C, class W>
INLINE bool decodeFar(const RowCodec &codec, const u8 *meta, const W &stored, u32 length, u8 *scratch, const Tile<32> &tile, u8 *row, long)
{
	return C::decode(codec, meta, stored, length, scratch, tile, row);
}

// Decodes rows that are too long for a stage: a warp decodes a row directly from the slab, with the metadata in global memory. Shared memory:
// the scratch of each warp.
template <class C, class SOURCE> INLINE void decodeCodedLong(const DecodeArgs &a, SOURCE rows)
{
	extern __shared__ u32x4 dynamic[];
	const Tile<32> tile = Tile<32>::make();
	u8 *scratch = (u8 *)dynamic + threadID() / 32 * a.codec.scratch;
	u32 hits = rows.all(), warps = blockThreads() / 32 * gridBlocks();
	for (u32 i = threadID() / 32 * gridBlocks() + blockID(); i < hits; i += warps) {
		typename SOURCE::Kept t = rows.one(i);
		u8 *row = (u8 *)a.out + (u64)t.position * a.codec.rowBytes;
		bool ok = t.length != BAD_LENGTH;
		auto stored = rows.words(t, ok ? (t.length + 3) / 4 : 0);
		if (t.length == a.codec.rowBytes)
			tileCopy<32>(a.codec, stored, tile.lane, row);
		else if (ok && (sizeof(t) == sizeof(Ticket) || t.length != 0))
			ok = decodeFar<C>(a.codec, (const u8 *)a.codec.meta, stored, t.length, scratch, tile, row, 0);
		if (!ok && tile.lane == 0)
			corruptRow(a.counters, t.position);
		tile.sync(); // the scratch is free
	}
}

// The kernels: op, form and lanes make the name. The forms Bytes and Bits are the coders ROW_BYTES and ROW_BITS, and have at most one row on its way.
// With ROW_BUILT, all rows that have a stage are decoded by decodeBuilt.
#ifdef ROW_FIND
#define ROWS(form, lanes, coder, ahead, table)                                                                                   \
	KERNEL void __launch_bounds__(256, coder::BLOCKS) find##form##lanes(const FindArgs a)                                    \
	{                                                                                                                        \
		if (blockID() >= a.decoders) {                                                                                   \
			fetchLast<ROW_CODER>(a);                                                                                 \
			return;                                                                                                  \
		}                                                                                                                \
		decodeRows<coder, lanes, ahead>(a.decode, table<coder>(), Looked(a), a.decoders, 0);                             \
		decoderDone(a);                                                                                                  \
	}
#elif defined ROW_BUDDY
#define ROWS(form, lanes, coder, ahead, table)                                                                                   \
	KERNEL void __launch_bounds__(256, coder::BLOCKS) buddy##form##lanes(const BuddyArgs a)                                  \
	{                                                                                                                        \
		beginBuddy(a);                                                                                                   \
		decodeRows<coder, lanes, ahead>(a.decode, table<coder>(), BuddyRows<true>(a, true), gridBlocks(), 0);            \
		endBuddy(a);                                                                                                     \
	}
#else
#ifdef ROW_PEERS
#define NAME(form, lanes) decodePeers##form##lanes
#else
#define NAME(form, lanes) decode##form##lanes
#endif
#define ROWS(form, lanes, coder, ahead, table)                                                                                   \
	KERNEL void __launch_bounds__(256, coder::BLOCKS) NAME(form, lanes)(const DecodeArgs a)                                  \
	{                                                                                                                        \
		decodeRows<coder, lanes, ahead>(a, table<coder>(), Listed(a), gridBlocks(), 0);                                  \
		endBatch<END_DECODE>(a.counters, a.end);                                                                         \
	}
#endif
template <class C> INLINE const u32 *noTable() { return 0; }
template <class C> INLINE const u32 *filledTable()
{
	__shared__ u32 table[C::TABLE];
	C::fill(table);
	return table;
}

#ifndef ROW_AHEAD
#define ROW_AHEAD CODER_AHEAD
#endif
#ifdef ROW_FIND // only of the coders ROW_BYTES and ROW_BITS
#elif defined ROW_BUILT
#define BUILT(lanes)                                                                                                             \
	KERNEL void __launch_bounds__(256, ROW_BUILT::BLOCKS) NAME(Built, lanes)(const DecodeArgs a)                             \
	{                                                                                                                        \
		decodeBuilt<ROW_BUILT, lanes>(a);                                                                                \
		endBatch<END_DECODE>(a.counters, a.end);                                                                         \
	}
BUILT(8)
BUILT(16)
BUILT(32)
#else
ROWS(, 32, ROW_CODER, ROW_AHEAD, noTable)
#if ROW_LANES <= 16
ROWS(, 16, ROW_CODER, ROW_AHEAD, noTable)
#endif
#if ROW_LANES <= 8
ROWS(, 8, ROW_CODER, ROW_AHEAD, noTable)
#endif
#endif
#ifdef ROW_BYTES
ROWS(Bytes, 8, ROW_BYTES, 1, filledTable)
ROWS(Bytes, 16, ROW_BYTES, 1, filledTable)
ROWS(Bytes, 32, ROW_BYTES, 1, filledTable)
#endif
#ifdef ROW_BITS
ROWS(Bits, 8, ROW_BITS, 1, filledTable)
ROWS(Bits, 16, ROW_BITS, 1, filledTable)
ROWS(Bits, 32, ROW_BITS, 1, filledTable)
#endif
static_assert(ROW_CODER::LANES == ROW_LANES, "ROW_LANES");

#ifdef ROW_BUDDY
KERNEL void __launch_bounds__(256) buddyLong(const BuddyArgs a)
{
	beginBuddy(a);
	decodeCodedLong<ROW_CODER>(a.decode, Buddy(a, laneID() == 0));
	endBuddy(a);
}
#elif !defined ROW_PEERS && !defined ROW_FIND
KERNEL void __launch_bounds__(256) decodeLong(const DecodeArgs a)
{
	decodeCodedLong<ROW_CODER>(a, Listed(a));
	endBatch<END_DECODE>(a.counters, a.end);
}
#endif
