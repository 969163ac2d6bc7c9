// Units of misses as share.cu reads them: neighbours in an ordered list.
#pragma once
#include "merge.h"

// Rows of up to SHARE_ROW bytes (abi.h), of which two quads a lane are a row wherever it begins in its sector: a tile reads ROWS rows of a unit at once, 16 bytes a lane. Where address translation is the limit, this is faster
// than fetch.cu, where the warps of all multiprocessors read a row each: on an H200 with a 16 GB table 15.5 against 10.9 GB/s with
// 256-byte rows, 30.3 against 22.3 with 512-byte rows. With a 2 GB table, where the link is the limit, it is no faster.

constexpr int ROWS = 4, PARTS = 2;

// one returns element r of an array in registers. Where r is not known at compile time, it selects among all elements.
template <class T> INLINE T one(const T (&x)[ROWS], int r)
{
	T y = x[0];
#pragma unroll
	for (int i = 1; i < ROWS; i++)
		y = r == i ? x[i] : y;
	return y;
}

// fetchUnit writes the misses from up to to, and returns their stored bytes. If STAGED, the first slot bytes of each row lie in the staging
// memory; the rest is read from the host tier. REQUIRES: stage has room for a row, the sector before it and what a window reads past it.
template <class C, int LANES, bool STAGED>
INLINE u64 fetchUnit(const ShareFetchArgs &args, const u8 *meta, u8 *stage, u8 *scratch, const Tile<LANES> &tile, u32 from, u32 to)
{
	const FetchArgs &a = args.fetch;
	const u32 lane = tile.lane;
	u32 first = from + threadID() / LANES, tiles = blockThreads() / LANES;
	u64 moved = 0;
	for (u32 i = first; i < to; i += tiles * ROWS) {
		Miss m[ROWS];
		u32x4 x[ROWS][PARTS];
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			u32 k = i + r * tiles;
			if (k >= to)
				break;
			m[r] = missOf(a, loadConst((const u32x4 *)(a.misses + k * a.step)));
			u64 start = m[r].at & ~31ull;
			u64 end = (m[r].at + (m[r].known ? m[r].length : minimum(a.ahead, m[r].length)) + 31) & ~31ull;
			if (STAGED)
				start = args.share.stage + (u64)k * args.share.slot, end = start + args.share.slot;
#pragma unroll
			for (int p = 0; p < PARTS; p++) {
				u64 at = start + (p * LANES + lane) * 16;
				if (at < end)
					x[r][p] = STAGED ? loadArrived(at) : loadTier(at);
			}
		}
		// Writes a miss, of which the lanes have the first bytes in x.
		auto write = [&](Miss m, const u32x4(&x)[PARTS]) {
			u32 skip = STAGED ? 0 : (u32)m.at & 31;
			u32 first = m.known ? m.length : minimum(a.ahead, m.length);
			u32 have = STAGED ? args.share.slot : ((skip + first + 31) & ~31u) - skip;
#pragma unroll
			for (int p = 0; p < PARTS; p++)
				if ((p * LANES + lane) * 16 < skip + have)
					((u32x4 *)stage)[p * LANES + lane] = x[p];
			tile.sync();
			u32 *row = (u32 *)(stage + skip);
			Words<SHARED> stored{row, 0, (m.length + 3) / 4};
			bool ok = true;
			if (m.compressed && !m.known) {
				u32 length = C::storedLength(a.codec, meta, stored, tile);
				ok = length - 1 < m.length;
				m.length = ok ? length : 0;
				stored.limit = (m.length + 3) / 4;
			}
			if (have < m.length) {
				for (u32 w = have / 4 + lane; w * 4 < m.length; w += LANES)
					row[w] = loadConst((const u32 *)m.at + w);
				tile.sync();
			}
			if (!m.compressed)
				tileCopy<LANES>(a.codec, stored, lane, m.row);
			else
				ok = ok && m.length != 0 && C::decode(a.codec, meta, stored, m.length, scratch, tile, m.row);
			if (ok)
				moved += m.length;
			else if (lane == 0)
				corruptRow(a.counters, m.position);
			tile.sync(); // the stage and the scratch are free
		};
		if constexpr (smallOf<C>) {
#pragma unroll
			for (int r = 0; r < ROWS; r++) {
				if (i + r * tiles >= to)
					break;
				write(m[r], x[r]);
			}
		} else {
			// A large decoder is compiled into the kernel once, not ROWS times.
#pragma unroll 1
			for (int r = 0; r < ROWS && i + r * tiles < to; r++) {
				u32x4 of[PARTS];
#pragma unroll
				for (int p = 0; p < PARTS; p++) {
					of[p] = x[0][p];
#pragma unroll
					for (int s = 1; s < ROWS; s++)
						of[p] = r == s ? x[s][p] : of[p];
				}
				write(one(m, r), of);
			}
		}
	}
	return moved;
}

// stageArrived stages a row whose first slot bytes lie at address at of the staging memory; the rest is read from the host tier. It returns the
// row's words. m.length is its stored bytes then, 0 if it is corrupt.
template <class C>
INLINE Words<SHARED> stageArrived(const ShareFetchArgs &args, const u8 *meta, Miss &m, u64 at, u8 *stage, const Tile<32> &tile)
{
	u32 slot = args.share.slot, first = minimum(slot, (m.length + 15) & ~15u);
	for (u32 i = tile.lane * 16; i < first; i += 32 * 16)
		*(u32x4 *)(stage + i) = loadArrived(at + i);
	tile.sync();
	Words<SHARED> stored{(const u32 *)stage, 0, (m.length + 3) / 4};
	if (!m.known) {
		u32 length = C::storedLength(args.fetch.codec, meta, stored, tile);
		m.length = length - 1 < m.length ? length : 0;
		stored.limit = (m.length + 3) / 4;
	}
	if (first < m.length) {
		for (u32 w = first / 4 + tile.lane; w * 4 < m.length; w += 32)
			((u32 *)stage)[w] = loadConst((const u32 *)m.at + w);
		tile.sync();
	}
	return stored;
}

// fetchLongUnit is fetchUnit for longer rows: a warp reads a row, as in fetch.cu, and writes it for all misses of that row among its neighbours,
// if merges. Those may be misses of the next unit, whose warps then skip them.
template <class C, bool STAGED>
INLINE u64 fetchLongUnit(const ShareFetchArgs &args, const u8 *meta, u8 *stage, u8 *scratch, const Tile<32> &tile, u32 from, u32 to, u32 misses,
			 bool merges)
{
	const FetchArgs &a = args.fetch;
	bool byLine = a.codec.rowBytes >= LINE_ROW;
	u64 moved = 0;
	for (u32 i = from + threadID() / 32; i < to; i += blockThreads() / 32) {
		u32x4 found = loadConst((const u32x4 *)(a.misses + i * a.step));
		Repeats repeats = merges ? repeatsOf(a, i, misses, tile.lane, found) : noRepeats();
		if (!repeats.first)
			continue;
		Miss m = missOf(a, found);
		Words<SHARED> stored = STAGED ? stageArrived<C>(args, meta, m, args.share.stage + (u64)i * args.share.slot, stage, tile)
					      : stageRow<C>(a.codec, meta, m, a.ahead, stage, tile, byLine);
		writeRepeats<C>(a, meta, m, repeats, stored, scratch, tile, moved);
	}
	return moved;
}
