// Hits by a coder that puts rows together in shared memory: the coder ROW_BUILT, SparseHits for one. Its build is decode of coder.h, but for
// three differences: all tiles of a warp call it at the same time, and length 0 says that a tile has no row to decode; it may use the
// warp's votes; and it leaves the row in scratch, which has room for the row's quads and a word in front of DeviceForm.Scratch bytes.
#pragma once
#include "coder.h"
#include "store.h"
#include "ticket.h"

// A tile of N lanes decodes a row. The tiles of the grid take the hits in turns. While a row is decoded the next one is being copied to shared
// memory if a.ahead is 1. If it is 0, there is room for more tiles. Every N rows, each lane makes the ticket of one of the tile's next N rows, of a list entry that was copied N rows before.
//
// All tiles of a warp take their k-th rows at the same time, until the warp's first tile, which has the earliest hits, has none left.
//
// Shared memory: the metadata, then for each tile BUILT_TICKETS bytes a lane, the stages, one more than rows being copied, and
// the scratch.
template <class C, int N> INLINE void decodeBuilt(const DecodeArgs &a)
{
	extern __shared__ u32x4 dynamic[];
	static_assert(BUILT_TICKETS == 2 * sizeof(Ticket) + 16, "BUILT_TICKETS");
	const Tile<N> tile = Tile<N>::make();
	loadMeta(a.codec, (u8 *)dynamic);
	u8 *own = (u8 *)dynamic + a.codec.metaBytes + threadID() / N * (N * BUILT_TICKETS + (a.ahead + 1) * a.stageBytes + a.codec.scratch);
	u32x4 *tickets = (u32x4 *)own, *next = tickets + 2 * N + tile.lane; // two rounds of N tickets; the entry of the lane's next one
	u8 *ring = own + N * BUILT_TICKETS, *scratch = ring + (a.ahead + 1) * a.stageBytes;
	// Few rows are spread over all blocks.
	u32 tiles = blockThreads() / N * gridBlocks(), lead = threadID() / 32 * (32 / N) * gridBlocks() + blockID();
	u32 ahead = threadID() / N * gridBlocks() + blockID() + tile.lane * tiles; // the row of the lane's next ticket
	u32 hits = ((const Counters *)a.counters)->hits;
	if (ahead < hits)
		*next = loadConst((const u32x4 *)a.found + ahead);
	auto stage = [&](u32 k) {
		if (k % N == 0) {
			Ticket t{0, 0, 0};
			if (ahead < hits)
				t = ticketOf(a, *next);
			tickets[(k & N) + tile.lane] = u32x4{(u32)t.stored, (u32)(t.stored >> 32), t.position, t.length};
			ahead += N * tiles;
			if (ahead < hits)
				copyAsync16(sharedAddress(next), a.found + (u64)ahead * 16);
			warpSync(~0u);
		}
		u32x4 t = tickets[k & (2 * N - 1)];
		u64 from = (u64)t.y << 32 | t.x;
		u32 to = sharedAddress(ring) + (k & a.ahead) * a.stageBytes;
#pragma unroll 1
		for (u32 at = tile.lane * 16; (int)at < (int)t.w; at += N * 16)
			copyRow16(to + at, from + at);
		copyCommit();
	};
	if (a.ahead != 0)
		stage(0);
	for (u32 k = 0; lead < hits; k++, lead += tiles) {
		stage(k + a.ahead);
		if (a.ahead != 0)
			copyWaitGroups<1>();
		else
			copyWaitGroups<0>();
		warpSync(~0u); // the copies of all lanes have arrived
		u32x2 t = *(const u32x2 *)((const u32 *)(tickets + (k & (2 * N - 1))) + 2);
		u8 *row = (u8 *)a.out + (u64)t.x * a.codec.rowBytes, *stored = ring + (k & a.ahead) * a.stageBytes;
		bool raw = t.y == a.codec.rowBytes, coded = !raw && (int)t.y > 0;
		bool ok = C::build((const u8 *)dynamic, a.codec, (const u32 *)stored, coded ? t.y : 0, scratch, tile);
		if (raw || coded)
			storeBuilt<N>(a.codec.store, row, raw ? stored : scratch, tile.lane, a.codec.rowBytes);
		if ((coded ? !ok : (int)t.y < 0) && tile.lane == 0)
			corruptRow(a.counters, t.x);
		warpSync(~0u); // the stages and the scratch may be reused
	}
	copyWaitGroups<0>();
}
