#include "coder.h"
#include "fetch.h"
#include "publish.h"

// Fetches the misses of a batch of small rows. If a share is open, the host's processors help: see package transfer and ShareArgs. Rows are
// decoded by a coder: ROW_CODER of ROW_HEADER.
//
// The misses are cut into units. The GPU reads the units of its own part, which begins at the back of the list, from the host tier. The
// host gathers the rows of its part, which begins at the front, in pieces, and copies them to the device's staging memory. Blocks that have
// finished the GPU's part take over units that the host has not begun. The GPU alone decides who writes a row. So every miss is written
// once whatever the host does, and the host writes only to its staging memory.
//
// A block takes a unit of neighbouring misses, and a tile reads ROWS rows of it at once, 16 bytes a lane. Where address translation is the
// limit, this is faster than fetch.cu, where the warps of all multiprocessors read a row each: on an H200 with a 16 GB table 15.5 against
// 10.9 GB/s with 256-byte rows, 30.3 against 22.3 with 512-byte rows. With a 2 GB table, where the link is the limit, it is no faster.

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

// listPiece writes the offsets of a piece's rows to the host's list. All threads of the block call it.
INLINE void listPiece(const ShareFetchArgs &a, u32 number, u32 piece)
{
	u64 *list = (u64 *)a.share.list;
	for (u32 i = piece * a.share.piece + threadID(); i < (piece + 1) * a.share.piece; i += blockThreads())
		list[i] = missOf(a.fetch, loadConst((const u32x4 *)(a.fetch.misses + i * a.fetch.step))).at - a.fetch.tier.mem;
	fenceSystem();
	blockSync();
	if (threadID() == 0)
		storeSystem(&((ShareHost *)a.share.host)->listed[piece], number);
}

// listPieces lists the pieces that no block has begun to list. A block calls it before it waits for the host. Each piece is then either
// listed or being listed by a block that runs, even if the device holds only a few of the grid's blocks at once. All threads of the block
// call it. p is a word of its shared memory.
INLINE void listPieces(const ShareFetchArgs &a, u32 number, u32 pieces, u32 *p)
{
	u32 *listed = &((ShareDevice *)a.share.device)->listed;
	blockSync(); // all threads have read p
	if (threadID() == 0)
		*p = atomicAdd(listed, 1);
	for (;;) {
		blockSync();
		u32 piece = *p, next = 0;
		if (piece >= pieces)
			return;
		if (threadID() == 0)
			next = atomicAdd(listed, 1); // in flight while the piece is listed
		listPiece(a, number, piece);
		if (threadID() == 0)
			*p = next;
	}
}

constexpr u32 NONE = ~0u, SKIP = ~0u - 1, OWN = 1u << 31; // values in place of a unit, and a bit: OWN, read the unit from the host tier

// counted returns the count in a word that holds a share's number and a count, or 0 if the number is another share's.
INLINE u32 counted(u32 word, u32 number) { return word >> 12 == (number & 0xfffff) ? word & 0xfff : 0; }

// ownUnit takes the next unit from the back. It returns NONE if the host has begun all that is left. One thread calls it.
INLINE u32 ownUnit(const ShareArgs &a, u32 number, u32 hostUnits)
{
	ShareDevice *d = (ShareDevice *)a.device;
	ShareHost *h = (ShareHost *)a.host;
	u32 unit = atomicAdd(&d->back, ~0u) - 1;
	if ((i64)(int)unit >= hostUnits)
		return unit;
	atomicMax(&d->ownEnd, nanos());
	if ((int)unit < 0 || unit / (a.piece / a.unit) < counted(loadSystem(&h->claimed), number))
		return NONE;
	storeSystem(&h->low, unit);
	if (exchange(&d->taken[unit], number) == number)
		return SKIP;
	atomicAdd(&d->stolen, 1);
	return unit;
}

// hostUnit takes the next unit of the host's part: it waits until the unit arrives or, after a time-out, takes it over.
INLINE u32 hostUnit(const ShareArgs &a, u32 number, u32 hostUnits)
{
	ShareDevice *d = (ShareDevice *)a.device;
	u32 unit = atomicAdd(&d->next, 1);
	if (unit >= hostUnits)
		return NONE;
	u32 piece = unit / (a.piece / a.unit), before = 0;
	u64 since = nanos();
	bool own = false;
	for (;;) {
		u32 arrived = counted(loadSystem(&d->arrived), number);
		if (arrived > piece)
			break;
		if (loadSystem(&d->taken[unit]) == number)
			return SKIP;
		if (loadSystem(&d->gaveUp)) {
			own = true;
			break;
		}
		u64 now = nanos();
		if (arrived != before)
			before = arrived, since = now;
		else if (now - since > a.timeoutNanos)
			exchange(&d->gaveUp, 1);
		sleepNanos(200);
	}
	if (exchange(&d->taken[unit], number) == number)
		return SKIP;
	if (own)
		atomicAdd(&d->stolen, 1);
	return own ? unit | OWN : unit;
}

// retire tells the host that one more ShareFetch has ended.
INLINE void retire(const ShareArgs &a)
{
	ShareDevice *d = (ShareDevice *)a.device;
	u32 n = atomicAdd(&d->retired, 1) + 1;
	for (;;) { // another ShareFetch may end at the same time
		storeSystem(&((ShareHost *)a.host)->retired, n);
		u32 now = loadSystem(&d->retired);
		if (now == n)
			return;
		n = now;
	}
}

INLINE void closeShare(const ShareFetchArgs &a, u32 number, u32 misses)
{
	ShareDevice *d = (ShareDevice *)a.share.device;
	ShareHost *h = (ShareHost *)a.share.host;
	fenceSystem();
	h->times.stamp = 0;
	fenceSystem();
	h->times.tier = a.share.tier;
	h->times.misses = misses;
	h->times.staged = loadSystem(&d->staged) * a.share.unit;
	h->times.taken = loadSystem(&d->stolen) * a.share.unit;
	h->times.gaveUp = loadSystem(&d->gaveUp);
	u64 began = d->began;
	h->times.ownNanos = *(volatile u64 *)&d->ownEnd - began;
	h->times.hostNanos = *(volatile u64 *)&d->hostEnd - began;
	h->times.nanos = nanos() - began;
	fenceSystem();
	h->times.stamp = number;
	storeSystem(&h->closed, number);
	((Counters *)a.fetch.counters)->share = 0;
	storeSystem(&d->owner, 0);
	retire(a.share);
}

// Tiles of LANES lanes. Shared memory: the metadata, if they fit, then stageBytes and the scratch for each tile.
template <class C, int LANES> INLINE void shareFetch(const ShareFetchArgs &a)
{
	extern __shared__ u32x4 dynamic[];
	__shared__ u32 taken;
	const u8 *meta = metaOf<C>(a.fetch.codec, (u8 *)dynamic);
	const Tile<LANES> tile = Tile<LANES>::make();
	u32 tid = threadID(), lane = tile.lane;
	u8 *stage = (u8 *)dynamic + a.fetch.codec.metaBytes + tid / LANES * (a.fetch.stageBytes + a.fetch.codec.scratch);
	u8 *scratch = stage + a.fetch.stageBytes;
	const Counters *counters = (const Counters *)a.fetch.counters;
	u32 misses = counters->misses, number = a.share.device != 0 ? counters->share : 0, unit = a.share.unit;
	u64 moved = 0;
	ShareDevice *d = (ShareDevice *)a.share.device;
	u32 hostUnits = number != 0 ? d->pieces * (a.share.piece / unit) : 0, alone = blockID();
	bool own = number == 0 || blockID() < a.share.own;
	if (!own)
		listPieces(a, number, d->pieces, &taken);
	for (;;) {
		u32 u = alone; // without a share, blocks take every gridBlocks()-th unit
		if (number == 0) {
			if (u * unit >= misses)
				break;
			alone += gridBlocks();
		} else {
			blockSync();
			if (tid == 0)
				taken = own ? ownUnit(a.share, number, hostUnits) : hostUnit(a.share, number, hostUnits);
			blockSync();
			u = taken;
		}
		if (u == NONE) {
			if (!own)
				break;
			own = false;
			listPieces(a, number, d->pieces, &taken);
			continue;
		}
		if (u == SKIP)
			continue;
		bool staged = !own && (u & OWN) == 0;
		u &= ~OWN;
		u32 from = u * unit, to = minimum(from + unit, misses);
		if (!staged) {
			moved += fetchUnit<C, LANES, false>(a, meta, stage, scratch, tile, from, to);
			continue;
		}
		moved += fetchUnit<C, LANES, true>(a, meta, stage, scratch, tile, from, to);
		if (tid == 0) {
			atomicAdd(&d->staged, 1);
			atomicMax(&d->hostEnd, nanos());
		}
	}
	if (lane == 0 && moved != 0)
		addHostBytes(a.fetch.counters, moved);
	if (number == 0) {
		if (a.share.device != 0 && tid == 0 && blockID() == 0)
			retire(a.share);
		return;
	}
	blockSync();
	if (tid == 0) {
		fenceSystem();
		if (atomicAdd(&d->exited, 1) == gridBlocks() - 1)
			closeShare(a, number, misses);
	}
}

#define SHARE(lanes)                                                                                                             \
	KERNEL void __launch_bounds__(256) shareFetch##lanes(const ShareFetchArgs a)                                             \
	{                                                                                                                        \
		shareFetch<ROW_CODER, lanes>(a);                                                                                 \
		endBatch<END_FETCH>(a.fetch.counters, a.fetch.end);                                                              \
	}

#if ROW_LANES <= 16
SHARE(16)
#endif
SHARE(32)
