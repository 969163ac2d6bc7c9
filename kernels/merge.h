// Merges misses of the same row. Where several misses near each other in the list are of one row, the warp of the first fetches the row and
// writes it for all of them. Without merging each of them would read the row over the link.
#pragma once
#include "stage_row.h"

// mergesRows says whether the kernel looks for such misses. It does in ordered lists, where misses of a row are near each other, and in
// batches with at least one miss for every MERGE_ROWS rows of the table: then a few in a hundred misses repeat a row.
constexpr u32 MERGE_ROWS = 32;
INLINE bool mergesRows(const FetchArgs &a, u32 misses)
{
	return a.step > 0 && (u64)misses * MERGE_ROWS * a.codec.rowBytes >= (u64)a.tier.bytes;
}

// Repeats are the misses of one row among the 64 misses of a group of the list. A warp reads the group: lane l has the batch positions of
// the group's misses l and l + 32.
struct Repeats {
	u32 low, high; // a bit for each miss of the group that is of the row
	u32 positions[2];
	bool first; // the miss that repeatsOf was called for is the first of them

	INLINE bool left() const { return (low | high) != 0; }
	// next removes a miss and returns its batch position. REQUIRES: left(). The whole warp calls it.
	INLINE u32 next()
	{
		u32 position;
		if (low != 0) {
			position = tileFrom<32>(~0u, positions[0], lowestBit(low));
			low &= low - 1;
		} else {
			position = tileFrom<32>(~0u, positions[1], lowestBit(high));
			high &= high - 1;
		}
		return position;
	}
};

// noRepeats is the value for a miss that is fetched by itself.
INLINE Repeats noRepeats() { return Repeats{0, 0, {0, 0}, true}; }

// repeatsOf returns the misses of the same row as miss i, whose list entry is given. The whole warp calls it.
INLINE Repeats repeatsOf(const FetchArgs &a, u32 i, u32 misses, u32 lane, u32x4 of)
{
	Repeats p;
	u32 group = i & ~63u, bits[2];
#pragma unroll
	for (u32 half = 0; half < 2; half++) {
		u32 k = group + half * 32 + lane;
		u32x4 m = of;
		bool same = k < misses;
		if (same) {
			m = loadConst((const u32x4 *)(a.misses + k * a.step));
			same = m.x == of.x && m.y == of.y;
		}
		p.positions[half] = m.z;
		bits[half] = ballot(~0u, same);
	}
	p.low = bits[0];
	p.high = bits[1];
	p.first = i - group == (p.low != 0 ? lowestBit(p.low) : 32 + lowestBit(p.high));
	return p;
}

// writeRepeats writes a staged row for its miss or, if it has repeats, for all of those. It adds the stored bytes of the misses written to moved.
// A warp writes. Afterwards the stage and the scratch may be reused.
template <class C>
INLINE void writeRepeats(const FetchArgs &a, const u8 *meta, Miss &m, Repeats &repeats, const Words<SHARED> &stored, u8 *scratch, const Tile<32> &tile,
			 u64 &moved)
{
	do {
		if (repeats.left())
			m.position = repeats.next(), m.row = (u8 *)a.out + (u64)m.position * a.codec.rowBytes;
		if (writeRow<C>(a.codec, meta, m, stored, scratch, tile))
			moved += m.length;
		else if (tile.lane == 0)
			corruptRow(a.counters, m.position);
		tile.sync(); // the scratch may be reused, and after the loop the stage
	} while (repeats.left());
}
