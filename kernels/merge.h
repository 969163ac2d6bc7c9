// Misses of one row that a batch asks for several times. Of those near each other in the list the first one's warp fetches the row and
// writes it for all: reads of the same row, of several warps at once, each cross the link.
#pragma once
#include "fetch.h"

// mergesRows says whether to look for them: in ordered lists, where misses of a row are near each other, and only where the batch misses
// so large a part of the table that a few in a hundred of its misses are of rows that it misses before.
constexpr u32 MERGE_ROWS = 32; // of the table, at most, for each miss
INLINE bool mergesRows(const FetchArgs &a, u32 misses)
{
	return a.step > 0 && (u64)misses * MERGE_ROWS * a.codec.rowBytes >= (u64)a.tier.bytes;
}

// Peers are the misses of one row among the 64 that share a group with it in the list: a warp reads the group, lane l has the
// positions of its misses l and l + 32.
struct Peers {
	u32 low, high; // bits of the group
	u32 positions[2];
	bool first; // the miss that was asked for is the first of them

	INLINE bool left() const { return (low | high) != 0; }
	// next takes a position. The whole warp calls it, and there are some left.
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

// noPeers is what a miss has that is fetched by itself.
INLINE Peers noPeers() { return Peers{0, 0, {0, 0}, true}; }

// peersOf returns the peers of miss i, of being it. The whole warp calls it.
INLINE Peers peersOf(const FetchArgs &a, u32 i, u32 misses, u32 lane, u32x4 of)
{
	Peers p;
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
