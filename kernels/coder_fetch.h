// A miss read by a coder's kernels.
#pragma once
#include "coder.h"
#include "fetch.h"

// fetchRow stages a missed row by a warp, writes it, and returns the stored bytes it took, 0 if it is corrupt. The stage must be
// free.
template <class C>
INLINE u32 fetchRow(const RowCodec &codec, const u8 *meta, Miss m, u32 ahead, u8 *stage, u8 *scratch, const Tile<32> &tile, bool byLine)
{
	auto staged = [&](u64 base, u64 from, u64 to) {
		stageBytes<32>(stage, base, from, to, tile.lane, byLine);
		copyWait();
		tile.sync();
	};
	u64 base = m.at & ~127ull;
	u32 first = m.known ? m.length : minimum(ahead, m.length);
	staged(base, m.at, m.at + first);
	Words<SHARED> stored{(const u32 *)(stage + (m.at - base)), 0, (m.length + 3) / 4};
	if (!m.compressed) {
		tileCopy<32>(codec, stored, tile.lane, m.row);
		return m.length;
	}
	if (!m.known) {
		u32 length = C::storedLength(codec, meta, stored, tile);
		if (length - 1 >= m.length)
			return 0;
		m.length = length;
		stored.limit = (length + 3) / 4;
		u64 have = (m.at + first + 31) & ~31ull;
		if (m.at + length > have)
			staged(base, have, m.at + length);
	}
	return m.length != 0 && C::decode(codec, meta, stored, m.length, scratch, tile, m.row) ? m.length : 0;
}
