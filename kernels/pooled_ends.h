// What becomes of a run's sums in kernels that look rows up ahead (pooled_ahead.h).
#pragma once
#include "pooled_ahead.h"

// beginSums sets sums to what leaves the first row as it is.
template <int EACH> INLINE void beginSums(const PoolArgs &p, float (&x)[EACH])
{
	float first = firstSum(p);
#pragma unroll
	for (int k = 0; k < EACH; k++)
		x[k] = first;
}

// endUnit ends a run of so many rows: it writes the sums x of a unit. what and place are in the entry of the run's last row. Of a bag of several runs that the tile adds up itself
// group has the sums of the runs before, stride words apart, which have before rows.
template <int EACH>
INLINE void endUnit(const PoolArgs &p, u64 out, u32 what, u32 place, u32 rows, u32 before, u32 unit, float (&x)[EACH], float *group, u32 stride)
{
	if ((what & INSIDE) == 0)
		return storePartial<EACH>(p, (u8 *)p.partials + (u64)place * p.partialStride, unit, x);
	u32 all = rows;
	if ((what & FIRST_RUN) == 0) {
#pragma unroll
		for (int k = 0; k < EACH; k++) {
			float sum = group[k * stride], more = p.mode == POOL_MAX ? (x[k] > sum ? x[k] : sum) : sumOf(sum, x[k]);
			x[k] = before == 0 ? x[k] : rows == 0 ? sum : more;
		}
		all += before;
	}
	if (what & BAG_END) {
		finish(p, x, all);
		return storeSums<EACH>(p, (u8 *)out + (u64)place * p.stride, unit, x);
	}
#pragma unroll
	for (int k = 0; k < EACH; k++)
		group[k * stride] = x[k];
}

// startPartial writes the header of a run's place, if the run has one. One lane of a tile calls it.
INLINE void startPartial(const PoolArgs &p, u32 what, u32 place, u32 rows)
{
	if ((what & INSIDE) == 0)
		storeFar((u32 *)((u8 *)p.partials + (u64)place * p.partialStride), rows);
}

// clearEmpty writes zeros for the bags without positions. A warp looks at 32 bags at once.
template <int EACH> INLINE void clearEmpty(const ServeArgs &a, const PoolArgs &p)
{
	if (p.size != 0)
		return;
	const u32 lane = laneID();
	u32 first, end;
	blockShare(p.bags, first, end);
	for (u64 from = first + threadID() / 32 * 32; from < end; from += blockThreads()) {
		u32 bag = (u32)from + lane;
		u32 left = ballot(~0u, bag < end && startOf(p, a.lookup.count, bag) >= startOf(p, a.lookup.count, bag + 1));
		for (; left != 0; left &= left - 1) {
			float zeros[EACH] = {};
			if (lane < a.codec.quads)
				storeSums<EACH>(p, (u8 *)a.lookup.out + (from + lowestBit(left)) * p.stride, lane, zeros);
		}
	}
}

// rowsOfTile finds the positions of a tile, from from to to - 1, and the bag that begins at the first or before it. It returns the most rows that a tile of the warp has. All
// lanes of the warp call it.
template <int N> INLINE u32 rowsOfTile(const PoolArgs &p, u32 count, const Tile<N> &tile, u32 &from, u32 &to, u32 &bag)
{
	from = to = bag = 0;
	const Runs<N> runs{p, tile, count};
	const u32 finish = startOf(p, count, p.bags);
	u64 first, behind;
	tileShare<N>(p, first, behind);
	if (first < finish) {
		u32 next = (u32)minimum64(behind, finish), unused;
		runs.first((u32)first, bag, from);
		to = finish;
		if (next < finish)
			runs.first(next, unused, to);
	}
	to = maximum(from, to);
	u32 longest = to - from;
#pragma unroll
	for (u32 d = N; d < 32; d *= 2)
		longest = maximum(longest, tileXor<32>(~0u, longest, d));
	return longest;
}

// startTile begins the lookups of a tile's first rows. All lanes of the warp call it.
template <int N> INLINE void startTile(const ServeArgs &a, const PoolArgs &p, const Tile<N> &tile, u32 entries, u32 from, u32 to, u32 bag)
{
	u32 count = a.lookup.count;
	LaneRows &own = laneRowsOf(entries);
	TileRows &rows = tileRowsOf<N>(entries);
	if (tile.lane == 0)
		rows = TileRows{from, to, bag, p.size != 0 ? 0 : startOf(p, count, bag), 0, {}};
	copyEnd(p, own, bag + tile.lane);
	warpSync(~0u);
	startRows<N>(batchOf(), tile, rows, own, from + tile.lane < to ? rowAt(a.lookup, from + tile.lane) : 0, 0);
}

// copyWords begins to copy the bytes from have to length of a row that comes by words to an address in shared memory, by lines of 128 bytes.
template <int N> INLINE void copyWords(u32 lane, u32 to, u64 from, u32 have, u32 length)
{
	from &= (1ull << WORDS_SHIFT) - 1;
#pragma unroll 1
	for (i32 i = (i32)(lane * 4) - (i32)(from & 127); i < (i32)length; i += N * 4)
		if (i >= (i32)have)
			copyAsync4(to + i, from + i);
}
