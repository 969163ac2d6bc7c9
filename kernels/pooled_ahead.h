// The rows of a pooled batch as kernels see them that look rows up beside the addition of those before: each tile adds up the rows of consecutive
// positions, in parts of as many rows as it has lanes.
#pragma once
#include "miss.h"
#include "lookups.h"
#include "pooled_batch.h"
#include "sample.h"

// What an entry says of a row. Its upper half is 8 × the bytes that come to the row's stage by 16 bytes a lane. Flags:
// RUN_END: the row is the last one of its run; BAG_END: its run is the last one of its bag; FIRST_RUN: the first one;
// INSIDE: the kernel writes the bag, as the tile adds up all of its runs; RAW: not compressed; NO_ROW: there is none to add; MISSED: it lies in the host tier;
// UNKNOWN: its length has yet to be found; BY_WORDS: it does not begin at a multiple of 16 bytes, and comes by 4 bytes a lane.
constexpr u32 RUN_END = 1, BAG_END = 2, FIRST_RUN = 4, INSIDE = 8, RAW = 16, NO_ROW = 32, MISSED = 64, UNKNOWN = 128, BY_WORDS = 256;
// The bytes that come by words are in the row's address, from this bit on.
constexpr u32 WORDS_SHIFT = 50;

// Entries are the entries of a tile's rows, in shared memory: of two parts, which take turns.
template <int N> struct Entries {
	u8 *mem;
	INLINE u64 *at(u32 i) const { return (u64 *)mem + i; }
	INLINE u32 *what(u32 i) const { return (u32 *)(mem + 16 * N) + i; }
	// place is the bag of a row, or if the bag is not INSIDE, the place of the run's sums.
	INLINE u32 *place(u32 i) const { return (u32 *)(mem + 24 * N) + i; }
	INLINE u32 *weight(u32 i) const { return (u32 *)(mem + 32 * N) + i; }
};

// PoolBlock is what all threads of a block know of a batch. Functions that are called, not inlined, read the kernel's arguments here: a reference to these
// would have them copied to local memory. With ROW_TABLES these are in shared memory anyway.
struct PoolBlock {
#ifndef ROW_TABLES
	PooledArgs args;
#endif
	Counted counted;
	u32 entries, lookups; // where the shared memory for entries and that for lookups begins
};
static __shared__ PoolBlock block;

#ifdef ROW_TABLES
using OfBatch = PooledTable;
INLINE const OfBatch &argsOf() { return tables.table; }
#else
using OfBatch = PooledArgs;
INLINE const OfBatch &argsOf() { return block.args; }
#endif
INLINE Batch batchOf() { return Batch{argsOf().serve}; }

// beginBlock begins a batch. All threads of a block call it.
INLINE void beginBlock(const OfBatch &args, u32 entries, u32 lookups)
{
#ifndef ROW_TABLES
	static_assert(sizeof(OfBatch) % 8 == 0, "");
	for (u32 i = threadID(); i < sizeof(OfBatch) / 8; i += blockThreads())
		((u64 *)&block.args)[i] = ((const u64 *)&args)[i];
#endif
	if (threadID() == 0)
		block.entries = entries, block.lookups = lookups;
	beginCounting(Batch{args.serve}, block.counted);
	blockSync();
	batchOf().begun();
}

// TileRows are the positions of a tile, and what is known of those whose entries are made next. It lies in shared memory.
struct TileRows {
	u32 first, to;  // where the positions begin and end
	u32 bag, start; // a bag that begins at the next position or before it, and where
	u32 waiting;    // the lanes of the warp whose lookups have copies under way
	u32 reserved[3];
};
static_assert(sizeof(TileRows) == POOL_TILE, "POOL_TILE");
// LaneRows is a lane's part of it: the row number that is to be looked up next, and the offset at which bag number TileRows.bag + lane ends, as they are given, of 4 or 8
// bytes. Both are copied asynchronously, as a load would be waited for.
struct LaneRows {
	u64 next, end;
};
static_assert(sizeof(LaneRows) == POOL_LANE, "POOL_LANE");

// BagAt is a bag with the positions at which it begins and ends.
struct BagAt {
	u32 bag, start, end;
};

// copyNumber begins to copy a number of 4 or 8 bytes.
INLINE void copyNumber(u64 *to, u64 from, bool narrow)
{
	u32 shared = sharedAddress(to);
	copyAsync4(shared, from);
	if (!narrow)
		copyAsync4(shared + 4, from + 4);
}
// copyEnd begins to copy the offset at which a bag ends, if there is one, and endOf returns what it says once it has arrived.
INLINE void copyEnd(const PoolArgs &p, LaneRows &own, u32 bag)
{
	if (p.size == 0 && bag + 1 < p.offsetCount)
		copyNumber(&own.end, p.offsets + (u64)(bag + 1) * (p.narrow ? 4 : 8), p.narrow);
}
INLINE u32 endOf(const PoolArgs &p, u32 n, const LaneRows &own, u32 bag)
{
	i64 x = (i64)((p.narrow ? (u64)(i64)(i32)(u32)own.end : own.end) - p.begin);
	return bag + 1 >= p.offsetCount ? n : x < 0 ? 0 : (u32)minimum64((u64)x, n);
}

// bagOf returns the bag of a lane's position, if in is set. Positions ascend from call to call. Where offsets are out of order it returns any bag.
template <int N> INLINE BagAt bagOf(const PoolArgs &p, u32 n, const Tile<N> &tile, TileRows &rows, LaneRows &own, u32 position, bool in)
{
	if (p.size != 0) {
		u32 bag = position / p.size;
		return BagAt{bag, bag * p.size, bag * p.size + p.size};
	}
	BagAt found{p.bags - 1, position, position + 1};
	u32 bag = rows.bag, start = rows.start, end = endOf(p, n, own, bag + tile.lane);
	for (;;) {
		u32 before = 0; // how many of the ends are not behind the position
#pragma unroll
		for (u32 step = N / 2; step != 0; step /= 2)
			before += tile.from(end, before + step - 1) <= position ? step : 0;
		u32 e = tile.from(end, before), s = tile.from(end, before - 1);
		bool here = e > position;
		if (in && here)
			found = BagAt{minimum(bag + before, p.bags - 1), before == 0 ? start : s, e};
		in = in && !here;
		if (tile.vote(in) == 0 || bag + N >= p.bags)
			break;
		start = tile.from(end, N - 1);
		bag += N;
		end = startOf(p, n, bag + tile.lane + 1);
	}
	bag = tile.from(found.bag, N - 1);
	start = tile.from(found.start, N - 1);
	copyEnd(p, own, bag + tile.lane);
	warpSync(~0u); // all lanes have read what the first one writes
	if (tile.lane == 0)
		rows.bag = bag, rows.start = start;
	return found;
}

// In shared memory, from some place on, there are for each thread POOL_ENTRIES bytes of entries and LaneRows, then for each tile TileRows.
template <int N> INLINE u32 aheadBytes() { return blockThreads() * (POOL_ENTRIES + sizeof(LaneRows)) + blockThreads() / N * sizeof(TileRows); }
INLINE u8 *sharedAt(u32 offset)
{
	extern __shared__ u32x4 dynamic[];
	return (u8 *)dynamic + offset;
}
template <int N> INLINE const Entries<N> entriesOf(u32 from) { return Entries<N>{sharedAt(from + threadID() / N * N * POOL_ENTRIES)}; }
INLINE LaneRows &laneRowsOf(u32 from) { return *(LaneRows *)sharedAt(from + blockThreads() * POOL_ENTRIES + threadID() * sizeof(LaneRows)); }
template <int N> INLINE TileRows &tileRowsOf(u32 from)
{
	return *(TileRows *)sharedAt(from + blockThreads() * (POOL_ENTRIES + sizeof(LaneRows)) + threadID() / N * sizeof(TileRows));
}

// The functions below are called by all lanes of a warp together.

// startRows begins the lookups of a tile's rows, number i and on, a row a lane, and reads the numbers of those behind.
template <int N> INLINE void startRows(const Batch &b, const Tile<N> &tile, TileRows &rows, LaneRows &own, i64 row, u32 i)
{
	const PoolArgs &p = argsOf().pool;
	const LookupArgs &l = b.a.lookup;
	u32 position = rows.first + i + tile.lane, to = rows.to;
	bool in = position < to && row != p.padding, ok = in && (u64)row < (u64)b.limit();
	if (in && !ok)
		b.outOfRange(position);
	startLookup(block.lookups + threadID() / 32 * (32 * FIND_SHARED) + LOOKUP_STATE + laneID() * 16, b.map(), b.buckets(), ok ? (u64)l.table << 56 | (u64)row : EMPTY_KEY);
	bool narrow = l.table >= INT32_ROWS;
	if (position + N < to)
		copyNumber(&own.next, l.rows + (u64)(position + N) * (narrow ? 4 : 8), narrow);
	u32 waiting = ballot(~0u, ok);
	if (tile.lane == 0)
		rows.waiting = waiting;
}

// makeEntries makes the entries of a tile's rows, number i and on, a row a lane, and begins to look up those behind if more is set. The buckets whose copies were begun
// by the call before have arrived. GROUPS says that the kernel writes bags of several runs, of at most a group.
template <int N, bool COMPRESSES, bool GROUPS> ASIDE void makeEntries(u32 i, bool more)
{
	const Batch b = batchOf();
	const PoolArgs &p = argsOf().pool;
	const ServeArgs &a = b.a;
	const Tile<N> tile = Tile<N>::make();
	const Entries<N> entries = entriesOf<N>(block.entries);
	TileRows &rows = tileRowsOf<N>(block.entries);
	LaneRows &own = laneRowsOf(block.entries);
	u32 waiting = rows.waiting;
	const u32 offset = block.lookups + threadID() / 32 * (32 * FIND_SHARED) + LOOKUP_STATE + laneID() * 16;
	while (waiting != 0) {
		waiting = ballot(~0u, (waiting >> laneID() & 1) != 0 && stepLookup(offset, b.map(), b.buckets()));
		if (waiting != 0) // for the few rows that lie many hops away
			copyWait();
		warpSync(~0u);
	}
	u64x2 state = *(const u64x2 *)lookupAt(offset);
	u64 key = state.x & ~HINT_BITS, word = state.y;
	i64 row = (i64)(key & ((1ull << HINT_SHIFT) - 1));
	u32 position = rows.first + i + tile.lane, rowBytes = a.codec.rowBytes;
	bool ok = (key | HINT_BITS) != EMPTY_KEY, hit = located(word), miss = ok && !hit;
	u32 hits = popcount(ballot(~0u, hit));
	if (laneID() == 0 && hits != 0)
		__atomic_fetch_add(&block.counted.hits, hits, __ATOMIC_RELAXED);
	if (hit && inPeers(b.peers(), word))
		__atomic_fetch_add(&block.counted.peers, 1, __ATOMIC_RELAXED);
	if (a.lookup.samples.ring != 0) {
		const Sampling &s = b.samples();
		sampleAside(s.ring, s.head, s.accessSeed, s.keySeed, s.mask, s.accessBelow, s.keyBelow, s.missBelow, key, ok, miss, position);
	}
	u64 at = 0;
	u32 what = NO_ROW, length = 0;
	bool compressed = compressedAt(word);
	if (hit) {
		at = b.slabs()[slabAt(word)] + offsetAt(word);
		length = compressed ? storedAt(word) : rowBytes;
		what = compressed ? 0 : RAW;
	}
	if (miss) {
		__atomic_fetch_add(&block.counted.reasons[missReason(word, row, b.rejected(), b.oversize())], 1, __ATOMIC_RELAXED);
		Miss m = missOf(b.tier(), 0, rowBytes, u32x4{(u32)row, (u32)((u64)row >> 32), position, 0});
		at = m.at;
		compressed = m.compressed;
		length = m.known ? m.length : minimum(a.ahead, m.length);
		what = MISSED | (compressed ? 0 : RAW) | (m.known ? 0 : UNKNOWN) | ((at & 15) != 0 ? BY_WORDS : 0);
	}
	if (ok && compressed && (!COMPRESSES || ((what & UNKNOWN) == 0 && length - 1 >= rowBytes - 1))) {
		what = NO_ROW;
		b.corrupt(position);
	}
	if (what & BY_WORDS)
		at |= (u64)length << WORDS_SHIFT;
	else if ((what & NO_ROW) == 0)
		what |= length << 19;
	bool in = position < rows.to;
	BagAt bag = bagOf<N>(p, a.lookup.count, tile, rows, own, position, in);
	u32 run = bag.start + (position - bag.start) / POOL_RUN * POOL_RUN, place = bag.bag;
	bool last = bag.end - run <= POOL_RUN;
	if (in) {
		if (position + 1 == bag.end || position + 1 - run == POOL_RUN)
			what |= RUN_END;
		what |= (last ? BAG_END : 0) | (run == bag.start ? FIRST_RUN : 0);
		if (bag.end - bag.start <= (GROUPS ? POOL_RUN * POOL_GROUP_RUNS : POOL_RUN) && bag.start >= rows.first && bag.end <= rows.to)
			what |= INSIDE;
		else if (bag.end - bag.start <= POOL_RUN || bag.start > position) // such a bag lies in its tile, if offsets are in order: else its sums have no place
			what &= ~RUN_END;
		else
			place = placeNumber(run, last);
	}
	u32 e = (i & N) + tile.lane;
	*entries.at(e) = at;
	*entries.what(e) = what;
	*entries.place(e) = place;
	if (p.weights != 0 && in) // it arrives with the first rows of the part
		copyAsync4(sharedAddress(entries.weight(e)), p.weights + (u64)position * 4);
	i64 next = a.lookup.table >= INT32_ROWS ? (i64)(i32)(u32)own.next : (i64)own.next;
	warpSync(~0u); // all lanes have read their words, and written their entries
	if (more)
		startRows<N>(b, tile, rows, own, next, i + N);
}
