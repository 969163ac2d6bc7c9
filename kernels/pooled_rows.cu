#include "float8.h"
#include "find_key.h"
#include "pooled.h"
#include "publish.h"
#include "replay.h"

// Adds up rows of a batch that other kernels have written to memory, bag by bag.

// RowInMemory is a row in device memory at any address. Up to 3 bytes in front of what is asked for are read, and up to 4 behind it.
struct RowInMemory {
	u64 at;
	INLINE u32 word(u32 offset) const
	{
		const u32 *p = (const u32 *)((at + offset) & ~3ull);
		return funnelWrap(loadConst(p), loadConst(p + 1), (u32)(at + offset) % 4 * 8);
	}
	INLINE u32 byte(u32 offset) const { return word(offset) & 0xff; }
	INLINE u32x4 quad(u32 i) const
	{
		const u32 *p = (const u32 *)((at + i * 16) & ~3ull);
		u32 w[5], shift = (u32)at % 4 * 8;
#pragma unroll
		for (u32 k = 0; k < 5; k++)
			w[k] = loadConst(p + k);
		return u32x4{funnelWrap(w[0], w[1], shift), funnelWrap(w[1], w[2], shift), funnelWrap(w[2], w[3], shift), funnelWrap(w[3], w[4], shift)};
	}
};

// The kinds of rows, and how many elements a lane adds: a quad of 4 or 8 elements, or 8 of float8.
enum Kind { WORDS, HALVES, FLOAT8S };
template <Kind KIND> constexpr int eachOf = KIND == WORDS ? 4 : 8;

// limitOf returns the table's length: in a captured graph that of the latest view.
INLINE i64 limitOf(const SumRowsArgs &a)
{
	if (a.views == 0)
		return a.limit;
	const ReplayViews *views = (const ReplayViews *)a.views;
	return (i64)loadDevice((const u64 *)&views->views[loadSystem(&views->version) % REPLAY_TURNS].limit);
}

// addRows adds rows up, a tile of N lanes those of the runs that begin at tileRows positions, as far as N units of each row. A tile has AHEAD rows on their way at
// once. ALIGNED says that rows begin at multiples of 16 bytes.
template <int N, Kind KIND, bool ALIGNED> INLINE void addRows(const SumRowsArgs &a)
{
	constexpr int EACH = eachOf<KIND>, AHEAD = KIND == FLOAT8S ? 2 : ALIGNED ? 8 : 4;
	const PoolArgs &p = a.pool;
	const Tile<N> tile = Tile<N>::make();
	const Runs<N> runs{p, tile, a.count};
	const i64 limit = limitOf(a);
	u32 units = (p.columns + EACH - 1) / EACH, chunks = (units + N - 1) / N, finishes = startOf(p, a.count, p.bags);
	u32 parts = a.next > a.from ? (a.next - a.from + p.tileRows - 1) / p.tileRows : 1;
	u64 tiles = (u64)gridBlocks() * (blockThreads() / N), work = (u64)parts * chunks;
	for (u64 w = (u64)(blockID() * blockThreads() + threadID()) / N; w < work; w += tiles) {
		u32 from = a.from + (u32)(w / chunks) * p.tileRows, unit = (u32)(w % chunks) * N + tile.lane;
		if (from != 0 && from >= finishes)
			continue;
		u32 next = minimum(minimum(from + p.tileRows, a.next), finishes), bag, at;
		bool in = unit < units;
		runs.first(from, bag, at);
		runs.each(bag, at, next, next >= finishes, a.end, [&](u32 bag, u32 begin, u32 end, u32 bagStart, u32 bagEnd) __attribute__((always_inline)) {
			if (begin < a.base) // offsets are out of order
				return;
			u32 there = 0; // of the run's positions: those whose rows are added
#pragma unroll
			for (u32 k = 0; k < POOL_RUN; k += N) {
				u32 i = begin + k + tile.lane;
				if (begin + k >= end)
					break;
				i64 row = i >= end ? -1 : a.narrow ? (i64)(i32)loadConst((const u32 *)a.rows + i) : (i64)loadConst((const u64 *)a.rows + i);
				there |= tile.vote(i < end && (u64)row < (u64)limit && row != p.padding) << k;
			}
			float s[EACH];
#pragma unroll
			for (int i = 0; i < EACH; i++)
				s[i] = firstSum(p);
			const u64 mem = a.mem + (u64)(begin - a.base) * a.rowBytes;
			for (u32 left = in ? there : 0, done = 0; left != 0;) {
				u32x4 q[KIND == FLOAT8S ? 1 : AHEAD];
				u32 which[AHEAD], n = 0;
#pragma unroll
				for (int k = 0; k < AHEAD; k++) {
					which[k] = left != 0 ? lowestBit(left) : 0;
					if constexpr (KIND != FLOAT8S) {
						if (left != 0) {
							u64 row = mem + (u64)which[k] * a.rowBytes;
							q[k] = ALIGNED ? loadConst((const u32x4 *)row + unit) : RowInMemory{row}.quad(unit);
						}
					}
					n += left != 0;
					left &= left - 1;
				}
#pragma unroll
				for (int k = 0; k < AHEAD; k++) {
					if (k >= n)
						continue;
					float y[EACH];
					if constexpr (KIND == FLOAT8S)
						float8Piece(a.float8, p.element, RowInMemory{mem + (u64)which[k] * a.rowBytes}, p.columns, unit, y);
					else
						unpack<EACH>(q[k], p.element, y);
					u32 weight = p.weights != 0 ? loadConst((const u32 *)p.weights + begin + which[k]) : 0;
					addUnit(p, s, y, weight, begin == bagStart && done == 0);
					done++;
				}
			}
			u32 rows = popcount(there);
			bool whole = bagEnd - bagStart <= POOL_RUN;
			u8 *out = whole ? (u8 *)a.out + (u64)bag * p.stride : placeOf(p, begin, end == bagEnd);
			if (!whole && unit == 0)
				storeFar((u32 *)out, rows);
			if (!in)
				return;
			if (whole) {
				finish(p, s, rows);
				storeSums<EACH>(p, out, unit, s);
			} else {
				storePartial<EACH>(p, out, unit, s);
			}
		});
	}
}

// convertRows is addRows for bags of one row. A tile has four rows on their way at once.
template <int N, Kind KIND, bool ALIGNED> INLINE void convertRows(const SumRowsArgs &a)
{
	constexpr int EACH = eachOf<KIND>, AT_ONCE = 4;
	const PoolArgs &p = a.pool;
	const i64 limit = limitOf(a);
	u32 lane = threadID() % N, units = (p.columns + EACH - 1) / EACH, tiles = gridBlocks() * (blockThreads() / N);
	for (u64 first = a.from + (blockID() * blockThreads() + threadID()) / N; first < a.next; first += (u64)tiles * AT_ONCE) {
		i64 number[AT_ONCE];
#pragma unroll
		for (int k = 0; k < AT_ONCE; k++) {
			u64 i = first + (u64)k * tiles;
			number[k] = i >= a.next ? -1 : a.narrow ? (i64)(i32)loadConst((const u32 *)a.rows + i) : (i64)loadConst((const u64 *)a.rows + i);
		}
		for (u32 unit = lane; unit < units; unit += N) {
			u32x4 q[AT_ONCE];
			if constexpr (KIND != FLOAT8S) {
#pragma unroll
				for (int k = 0; k < AT_ONCE; k++) {
					u64 i = first + (u64)k * tiles, row = a.mem + (i - a.base) * a.rowBytes;
					if (i < a.next)
						q[k] = ALIGNED ? loadConst((const u32x4 *)row + unit) : RowInMemory{row}.quad(unit);
				}
			}
#pragma unroll
			for (int k = 0; k < AT_ONCE; k++) {
				u64 i = first + (u64)k * tiles;
				if (i >= a.next)
					continue;
				bool there = (u64)number[k] < (u64)limit && number[k] != p.padding;
				float s[EACH], y[EACH];
				if constexpr (KIND == FLOAT8S)
					float8Piece(a.float8, p.element, RowInMemory{a.mem + (i - a.base) * a.rowBytes}, p.columns, unit, y);
				else
					unpack<EACH>(q[k], p.element, y);
#pragma unroll
				for (int e = 0; e < EACH; e++)
					s[e] = firstSum(p);
				addUnit(p, s, y, p.weights != 0 ? loadConst((const u32 *)p.weights + i) : 0, true);
				finish(p, s, there);
				storeSums<EACH>(p, (u8 *)a.out + i * p.stride, unit, s);
			}
		}
	}
}

// addCounters adds what a batch has counted whose rows begin at a position.
INLINE void addCounters(Counters *to, const Counters &c, u32 position)
{
	atomicAdd(&to->hits, c.hits);
	atomicAdd(&to->misses, c.misses);
#pragma unroll
	for (u32 k = 0; k < NUM_REASONS; k++)
		atomicAdd(&to->reasons[k], c.reasons[k]);
	atomicAdd(&to->hostBytes, c.hostBytes);
	atomicAdd(&to->peers, c.peers);
	if (c.corrupt != 0) {
		to->corruptPosition = position + c.corruptPosition;
		atomicAdd(&to->corrupt, c.corrupt);
	}
	if (c.outOfRange != 0) {
		atomicMax(&to->notFirst, c.notFirst - position);
		atomicAdd(&to->outOfRange, c.outOfRange);
	}
}

template <int N, Kind KIND> INLINE void sumRows(const SumRowsArgs &a)
{
	bool aligned = KIND != FLOAT8S && a.rowBytes % 16 == 0;
	if (a.pool.size == 1) {
		if (aligned)
			convertRows<N, KIND, KIND != FLOAT8S>(a);
		else
			convertRows<N, KIND, false>(a);
	} else if (aligned) {
		addRows<N, KIND, KIND != FLOAT8S>(a);
	} else {
		addRows<N, KIND, false>(a);
	}
	if (a.counters == 0)
		return;
	u32 tid = blockID() * blockThreads() + threadID();
	if (a.from == 0 && a.pool.size == 0)
		for (u32 i = tid; i < a.pool.offsetCount; i += gridBlocks() * blockThreads())
			if (badOffset(a.pool, a.count, i))
				rangeAside(a.counters, 0, 0, i);
	if (tid == 0)
		addCounters((Counters *)a.counters, *(const Counters *)a.round, a.added);
	endBatch<END_FETCH>(a.counters, a.ending);
}

#define SUM_ROWS(lanes)                                                                                                         \
	KERNEL void __launch_bounds__(256) sumRows##lanes(const SumRowsArgs a)                                                  \
	{                                                                                                                        \
		if (a.pool.element == POOL_FLOAT32)                                                                                  \
			sumRows<lanes, WORDS>(a);                                                                                       \
		else if (a.pool.element <= POOL_BFLOAT16)                                                                            \
			sumRows<lanes, HALVES>(a);                                                                                      \
		else                                                                                                                 \
			sumRows<lanes, FLOAT8S>(a);                                                                                     \
	}
SUM_ROWS(8)
SUM_ROWS(16)
SUM_ROWS(32)

// Counts the offsets of a captured batch that are out of order. It runs in front of the batch's kernel, so that all is counted when the replay ends.
KERNEL void __launch_bounds__(256) poolOffsets(const PoolOffsetsArgs a)
{
	ReplayState *state = (ReplayState *)a.state;
	for (u32 i = blockID() * blockThreads() + threadID(); i < a.pool.offsetCount; i += gridBlocks() * blockThreads())
		if (badOffset(a.pool, a.count, i))
			rangeReplayed((u64)&state->counts, loadDevice(&state->begun) / a.blocks, 0, 0, i);
}
