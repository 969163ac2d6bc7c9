#include "fetch.h"
#include "publish.h"

// Fetches the misses of a batch of small rows, sharing them with the host's processors where a share is open: see package
// transfer and ShareArgs. Compiled once for each ROW_CHUNK, as decode.cu is.
//
// The misses are cut into units. The GPU reads its own part, from the back of the list, straight from the host tier; the
// host's part, at the front, arrives in pieces in the device's memory. Blocks that have finished their own part take over what
// the host has not begun. Who writes a row is the GPU's decision alone: whatever the host does or leaves undone, every miss is
// fetched once, and the host writes nothing but its staging memory.
//
// A block takes a unit of neighbours, and a tile asks for ROWS rows of it at once, 16 bytes a lane. Where address translation is
// the limit that is faster than a warp a row on all multiprocessors, as fetch.cu has it: 15.5 against 10.9 GB/s on 256-byte rows
// of a 16 GB table on an H200, 30.3 against 22.3 on 512-byte rows. At 2 GB, where the link is, it is no faster.

constexpr int ROWS = 4, PARTS = 2;

// fetchUnit fetches the misses from up to to. STAGED says that the first slot bytes of each have arrived. REQUIRES: stage has
// room for the row's bytes, a sector before them and what a window reads past them.
template <int CHUNK, int STEPS, int LANES, bool STAGED, class M>
INLINE u64 fetchUnit(const ShareFetchArgs &args, const M &meta, u8 *stage, u32 lanes, u32 lane, u32 from, u32 to)
{
	constexpr int C = CHUNK ? CHUNK : 4;
	const FetchArgs &a = args.fetch;
	u32 tile = threadID() / LANES, tiles = blockThreads() / LANES;
	u64 moved = 0;
	for (u32 i = from + tile; i < to; i += tiles * ROWS) {
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
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			u32 k = i + r * tiles;
			if (k >= to)
				break;
			u32 skip = STAGED ? 0 : (u32)m[r].at & 31;
			u32 first = m[r].known ? m[r].length : minimum(a.ahead, m[r].length);
			u32 have = STAGED ? args.share.slot : ((skip + first + 31) & ~31u) - skip;
#pragma unroll
			for (int p = 0; p < PARTS; p++)
				if ((p * LANES + lane) * 16 < skip + have)
					((u32x4 *)stage)[p * LANES + lane] = x[r][p];
			warpSync(lanes);
			u32 *row = (u32 *)(stage + skip);
			Words<SHARED> words{row, 0, (m[r].length + 3) / 4};
			bool ok = !m[r].compressed || CHUNK != 0;
			if (ok && m[r].compressed && !m[r].known) {
				u32 length = storedBytes(a.codec, tileExcess<C, LANES>(words, meta, lanes, lane, 0, a.codec.quads));
				ok = length <= m[r].length;
				m[r].length = minimum(length, m[r].length);
			}
			if (have < m[r].length) {
				for (u32 w = have / 4 + lane; w * 4 < m[r].length; w += LANES)
					row[w] = loadConst((const u32 *)m[r].at + w);
				warpSync(lanes);
			}
			if (!m[r].compressed) {
				tileCopy<LANES>(a.codec, words, lane, m[r].row);
			} else if (CHUNK != 0) {
				u32 excess = tileDecode<C, STEPS, LANES>(a.codec, words, words, meta, lanes, lane, 0, a.codec.quads, 0, m[r].row);
				ok = ok && storedBytes(a.codec, excess) == m[r].length;
			}
			if (ok)
				moved += m[r].length;
			else if (lane == 0)
				corruptRow(a.counters, m[r].position);
			warpSync(lanes); // the stage is free
		}
	}
	return moved;
}

// listPiece writes where the rows of a piece lie to the host's list. All threads of the block take part.
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

// listPieces lists the pieces that no block has begun to list. A block does so before it waits for what the host gathers: what is not
// listed then is in the hands of blocks that run, however few of the grid the device holds at once. All threads of the block
// take part; p is a word of its shared memory.
INLINE void listPieces(const ShareFetchArgs &a, u32 number, u32 pieces, u32 *p)
{
	u32 *listed = &((ShareDevice *)a.share.device)->listed;
	blockSync(); // nobody reads p any more
	if (threadID() == 0)
		*p = atomicAdd(listed, 1);
	for (;;) {
		blockSync();
		u32 piece = *p, next = 0;
		if (piece >= pieces)
			return;
		if (threadID() == 0)
			next = atomicAdd(listed, 1); // it arrives while the piece is listed
		listPiece(a, number, piece);
		if (threadID() == 0)
			*p = next;
	}
}

constexpr u32 NONE = ~0u, SKIP = ~0u - 1, OWN = 1u << 31; // units, and OWN: not from what arrived

// counted returns the count of a word that has the number of its share beside it.
INLINE u32 counted(u32 word, u32 number) { return word >> 12 == (number & 0xfffff) ? word & 0xfff : 0; }

// ownUnit returns the next unit from the back, or NONE where the host has begun what is left. One thread calls it.
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

// hostUnit waits for the next unit of the host's part, or takes it over.
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
	for (;;) { // another one may end just now
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

// Tiles of LANES lanes. Shared memory: the codec's metadata, then stageBytes for each tile.
template <int CHUNK, int STEPS, int LANES> INLINE void shareFetch(const ShareFetchArgs &a)
{
	extern __shared__ u32x4 dynamic[];
	__shared__ u32 taken;
	if (CHUNK != 0)
		loadMeta(a.fetch.codec, (u8 *)dynamic);
	Meta<SHARED, STEPS> meta{(const u8 *)dynamic};
	u32 tid = threadID(), lane = tid % LANES;
	u32 lanes = LANES == 32 ? ~0u : ((1u << (LANES & 31)) - 1) << (laneID() & ~(LANES - 1));
	u8 *stage = (u8 *)dynamic + a.fetch.codec.metaBytes + tid / LANES * a.fetch.stageBytes;
	const Counters *counters = (const Counters *)a.fetch.counters;
	u32 misses = counters->misses, number = a.share.device != 0 ? counters->share : 0, unit = a.share.unit;
	u64 moved = 0;
	ShareDevice *d = (ShareDevice *)a.share.device;
	u32 hostUnits = number != 0 ? d->pieces * (a.share.piece / unit) : 0, alone = blockID();
	bool own = number == 0 || blockID() < a.share.own;
	if (!own)
		listPieces(a, number, d->pieces, &taken);
	for (;;) {
		u32 u = alone; // without a share the blocks take the units in turns
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
			moved += fetchUnit<CHUNK, STEPS, LANES, false>(a, meta, stage, lanes, lane, from, to);
			continue;
		}
		moved += fetchUnit<CHUNK, STEPS, LANES, true>(a, meta, stage, lanes, lane, from, to);
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

#define SHARE(steps)                                                                                                             \
	KERNEL void __launch_bounds__(256) shareFetch16x##steps(const ShareFetchArgs a)                                              \
	{                                                                                                                           \
		shareFetch<ROW_CHUNK, steps, 16>(a);                                                                            \
		endBatch<END_FETCH>(a.fetch.counters, a.fetch.end);                                                             \
	}                                                                                                                           \
	KERNEL void __launch_bounds__(256) shareFetch32x##steps(const ShareFetchArgs a)                                              \
	{                                                                                                                           \
		shareFetch<ROW_CHUNK, steps, 32>(a);                                                                            \
		endBatch<END_FETCH>(a.fetch.counters, a.fetch.end);                                                             \
	}

#if ROW_CHUNK == 4
SHARE(3)
SHARE(5)
#elif ROW_CHUNK == 8
SHARE(4)
SHARE(6)
#else
SHARE(0)

// Opens a share of the batch's misses, unless another one is open. Where the host has not finished with the last one, its part
// is empty. One thread.
KERNEL void shareOpenKernel(const ShareOpenArgs a)
{
	ShareDevice *d = (ShareDevice *)a.share.device;
	ShareHost *h = (ShareHost *)a.share.host;
	Counters *counters = (Counters *)a.counters;
	u32 misses = counters->misses;
	if (misses < a.share.least || exchange(&d->owner, 1) != 0)
		return;
	u32 pieces = minimum((u32)((u64)misses * a.share.fraction >> 16) / a.share.piece, a.share.maxPieces);
	if (loadSystem(&d->quiet) != d->number)
		pieces = 0;
	u32 number = d->number + 1;
	number += number == 0;
	d->number = number;
	d->pieces = pieces;
	d->back = (misses + a.share.unit - 1) / a.share.unit;
	d->arrived = number << 12; // whatever share of an equal number in those bits it was of
	d->listed = d->next = d->exited = d->gaveUp = d->staged = d->stolen = 0;
	d->began = d->ownEnd = d->hostEnd = nanos();
	h->pieces = pieces;
	h->tier = a.share.tier;
	h->low = ~0u;
	counters->share = number;
	storeSystem(&h->opened, number);
}
#endif
