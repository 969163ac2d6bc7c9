// A miss read by a coder's kernels.
#pragma once
#include "coder.h"
#include "miss.h"

// stageRow stages a missed row by a warp and returns its words. m.length is its stored bytes then, 0 if it is corrupt. The stage must be
// free.
template <class C>
INLINE Words<SHARED> stageRow(const RowCodec &codec, const u8 *meta, Miss &m, u32 ahead, u8 *stage, const Tile<32> &tile, bool byLine)
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
	if (m.known)
		return stored;
	u32 length = C::storedLength(codec, meta, stored, tile);
	m.length = length - 1 < m.length ? length : 0;
	stored.limit = (m.length + 3) / 4;
	u64 have = (m.at + first + 31) & ~31ull;
	if (m.at + m.length > have)
		staged(base, have, m.at + m.length);
	return stored;
}

// writeRow writes a staged row by a warp and says whether it was one.
template <class C>
INLINE bool writeRow(const RowCodec &codec, const u8 *meta, const Miss &m, const Words<SHARED> &stored, u8 *scratch, const Tile<32> &tile)
{
	if (m.compressed)
		return m.length != 0 && C::decode(codec, meta, stored, m.length, scratch, tile, m.row);
	tileCopy<32>(codec, stored, tile.lane, m.row);
	return true;
}
