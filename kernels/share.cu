#include "share_rows.h"
#include "publish.h"

// Fetches the misses of a batch. If a share is open, the host's processors help: see package transfer and ShareArgs. Rows are
// decoded by a coder: ROW_CODER of ROW_HEADER.
//
// The misses are cut into units. The GPU reads the units of its own part, which begins at the back of the list, from the host tier. The
// host gathers the rows of its part, which begins at the front, in pieces, and copies them to the device's staging memory. Blocks that have
// finished the GPU's part take over units that the host has not begun. The GPU alone decides who writes a row. So every miss is written
// once whatever the host does, and the host writes only to its staging memory.

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

// Tiles of LANES lanes. LONG says that rows may be longer than SHARE_ROW. Shared memory: SHARE_HEAD bytes, the metadata, if they fit, then stageBytes
// and the scratch for each tile. There is no static shared memory, so that the stage of a long row begins at a line: where it began 16 bytes
// later, asynchronous copies took 2.6 times as long, as those of a sector went to two lines.
template <class C, int LANES, bool LONG> INLINE void shareFetch(const ShareFetchArgs &a)
{
	extern __shared__ u32x4 dynamic[];
	u32 &taken = *(u32 *)dynamic;
	u8 *shared = (u8 *)dynamic + SHARE_HEAD;
	const u8 *meta = metaOf<C>(a.fetch.codec, shared);
	const Tile<LANES> tile = Tile<LANES>::make();
	u32 tid = threadID(), lane = tile.lane;
	u8 *stage = shared + a.fetch.codec.metaBytes + tid / LANES * (a.fetch.stageBytes + a.fetch.codec.scratch);
	u8 *scratch = stage + a.fetch.stageBytes;
	const Counters *counters = (const Counters *)a.fetch.counters;
	u32 misses = counters->misses, number = a.share.device != 0 ? counters->share : 0, unit = a.share.unit;
	bool merges = LONG && mergesRows(a.fetch, misses);
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
		if constexpr (LONG)
			moved += staged ? fetchLongUnit<C, true>(a, meta, stage, scratch, tile, from, to, misses, merges)
					: fetchLongUnit<C, false>(a, meta, stage, scratch, tile, from, to, misses, merges);
		else
			moved += staged ? fetchUnit<C, LANES, true>(a, meta, stage, scratch, tile, from, to)
					: fetchUnit<C, LANES, false>(a, meta, stage, scratch, tile, from, to);
		if (staged && tid == 0) {
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

#define SHARE(name, lanes, long)                                                                                                 \
	KERNEL void __launch_bounds__(256) name(const ShareFetchArgs a)                                                          \
	{                                                                                                                        \
		shareFetch<ROW_CODER, lanes, long>(a);                                                                           \
		endBatch<END_FETCH>(a.fetch.counters, a.fetch.end);                                                              \
	}

#if ROW_LANES <= 16
SHARE(shareFetch16, 16, false)
#endif
SHARE(shareFetch32, 32, false)
SHARE(shareFetchLong, 32, true)
