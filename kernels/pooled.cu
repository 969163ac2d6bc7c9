#include "gpu.h"

// Coders write decoded rows to shared memory here, by ordinary stores.
template <class T> INLINE void storeRow(T *p, T x) { *p = x; }
#define storeOut storeRow
#include "coder.h"
#include ROW_HEADER
#undef storeOut
#include "fetch.h"
#include "pooled.h"
#include "pooled_batch.h"
#include "sample.h"
#ifdef ROW_FLOAT8
#include "float8.h"
#endif

// Looks up the rows of a batch and adds them up, bag by bag, as ROW_CODER of ROW_HEADER decodes them; the rows are not written. With ROW_REPLAY the
// batch is a part of a captured graph.
//
// A tile of lanes takes the runs that begin at tileRows positions, one after the other. These runs' rows are neighbours, so the tile looks up as many rows
// as it has lanes, a lane each, and then reads them in order: hits, hits of other devices, and misses, from the host tier, alike by asynchronous
// copies to shared memory, POOL_AHEAD rows ahead. Each lane has the sums of a quad in registers, or, of rows of more than 32 quads, those of
// every 32nd quad in shared memory. Raw rows and rows of IBP with one mask are added from registers; other coders write the row to shared
// memory first. A run that is a whole bag is written as the bag's output; the sums of other runs go to partials, for poolJoin.
//
// With ROW_FLOAT8 rows are float8 values with scales. The row is written to shared memory, and each lane adds pieces of 8 elements instead of quads.
//
// Shared memory: the codec's metadata, if they fit, then for each tile: a list of 16 bytes a lane; POOL_AHEAD stages of 16 + stageBytes; the row, unless
// ROW_PAIRS; the coder's scratch; and the sums of rows of more than 32 quads.
//
// All arguments but row numbers and offsets are trusted. Every output is written if offsets are in order. Where they are not, which is counted as a row
// out of range, outputs are undefined, and nothing else is written.

// An entry says where a row lies and how long it is.
constexpr u32 LENGTH = (1 << 20) - 1, COMPRESSED = 1 << 20, KNOWN = 1 << 21, SKIPPED = 1 << 22, MISSED = 1 << 23;

// Counted is what a block has counted, in shared memory.
struct Counted {
	u32 hits, peers, reasons[NUM_REASONS];
};

#ifdef ROW_FLOAT8
using Elements = Float8Args;
constexpr bool FLOAT8 = true;
#else
struct Elements {};
constexpr bool FLOAT8 = false;
#endif

#ifdef ROW_PAIRS
constexpr bool VIA_ROW = FLOAT8;
#define POOLED_BLOCKS 3
#else
constexpr bool VIA_ROW = true;
#define POOLED_BLOCKS 2 // with 3 they spill
#endif

template <class C, int N, int EACH, bool LONG> struct Pooled {
	const Batch &b;
	const ServeArgs &a;
	const PoolArgs &p;
	const Tile<N> tile;
	const u8 *meta;
	Counted &counted;
	const Elements &elements;
	u32x4 *list;
	u8 *stages, *row, *scratch;
	float *sums;      // of a long row: those of element i of quad q at i x quads + q
	float x[EACH];    // of a short one
	u32 from, to;     // the tile's positions
	u64 moved;        // stored bytes of missed rows

	// units is the number of a row's parts that lanes add: quads, or of float8 rows pieces of 8 elements.
	INLINE u32 units() const { return FLOAT8 ? (p.columns + EACH - 1) / EACH : a.codec.quads; }
	INLINE u32 tileBytes() const
	{
		return N * 16 + POOL_AHEAD * (16 + a.stageBytes) + (VIA_ROW ? a.codec.quads * 16 : 0) + a.codec.scratch + (LONG ? units() * EACH * 4 : 0);
	}
	INLINE void place(u8 *shared)
	{
		list = (u32x4 *)shared;
		stages = shared + N * 16;
		row = stages + POOL_AHEAD * (16 + a.stageBytes);
		scratch = row + (VIA_ROW ? a.codec.quads * 16 : 0);
		sums = (float *)(scratch + a.codec.scratch);
	}
	INLINE u8 *stageOf(u32 position) const { return stages + (position - from) % POOL_AHEAD * (16 + a.stageBytes); }

	// firstBag returns the first bag that begins at a position or behind it, p.bags if there is none. N bags are looked at at once.
	INLINE u32 firstBag(u32 position) const
	{
		u32 n = a.lookup.count;
		if (p.size != 0)
			return minimum((position + p.size - 1) / p.size, p.bags);
		u32 low = 0, high = p.bags;
		while (low < high) {
			u32 step = (high - low) / N + 1, at = low + tile.lane * step;
			u32 before = popcount(tile.vote(at < high && startOf(p, n, at) < position));
			high = minimum(high, low + before * step);
			low = before == 0 ? low : low + (before - 1) * step + 1;
		}
		return low;
	}
	// firstRun returns the first run that begins at a position or behind it.
	INLINE void firstRun(u32 position, u32 &bag, u32 &at) const
	{
		u32 n = a.lookup.count;
		bag = firstBag(position);
		if (bag > 0) {
			u32 start = startOf(p, n, bag - 1), end = startOf(p, n, bag);
			at = start + (position - start + POOL_RUN - 1) / POOL_RUN * POOL_RUN;
			if (start < position && at < end) {
				bag--;
				return;
			}
		}
		at = startOf(p, n, bag);
	}

	// lookUp looks up rows from a position on, a lane each.
	INLINE void lookUp(u32 first)
	{
		u32 i = first + tile.lane;
		bool in = i < to;
		i64 number = in ? rowAt(a.lookup, i) : -1;
		in = in && number != p.padding;
		bool ok = in && (u64)number < (u64)b.limit();
		u64 key = (u64)a.lookup.table << 56 | (u64)number, word = ok ? findKey(b.map(), b.buckets(), key) : ~0xffull;
		bool hit = ok && located(word), miss = ok && !hit;
		if (a.lookup.samples.ring != 0)
			sample(key, ok, miss, i);
		u32 hits = popcount(tile.vote(hit));
		if (tile.lane == 0 && hits != 0)
			__atomic_fetch_add(&counted.hits, hits, __ATOMIC_RELAXED);
		if (hit && inPeers(b.peers(), word))
			__atomic_fetch_add(&counted.peers, 1, __ATOMIC_RELAXED);
		u64 at = 0;
		u32 what = SKIPPED;
		if (hit) {
			at = b.slab(word) + offsetAt(word);
			what = KNOWN | (compressedAt(word) ? COMPRESSED | storedAt(word) : a.codec.rowBytes);
			if (compressedAt(word) && storedAt(word) - 1 >= a.codec.rowBytes - 1) {
				what = SKIPPED;
				b.corrupt(i);
			}
		} else if (miss) {
			__atomic_fetch_add(&counted.reasons[missReason(word, number, b.rejected(), b.oversize())], 1, __ATOMIC_RELAXED);
			Miss m = missOf(b.tier(), 0, a.codec.rowBytes, u32x4{(u32)number, (u32)((u64)number >> 32), i, 0});
			at = m.at;
			what = MISSED | m.length | (m.compressed ? COMPRESSED : 0) | (m.known ? KNOWN : 0);
		} else if (in) {
			b.outOfRange(i);
		}
		u32 weight = in && p.weights != 0 ? loadConst((const u32 *)p.weights + i) : 0;
		list[tile.lane] = u32x4{(u32)at, (u32)(at >> 32), what, weight};
		tile.sync();
	}

	// sample is appendSample for a tile.
	INLINE void sample(u64 key, bool ok, bool miss, u32 position) const
	{
		const Sampling &s = b.samples();
		u32 kept = ok ? sampled(s, key, position, miss) : 0, lanes = tile.vote(kept != 0);
		if (lanes == 0)
			return;
		u64 first = 0;
		u32 leader = lowestBit(lanes);
		if (tile.lane == leader)
			first = atomicFetchAdd((u64 *)s.head, popcount(lanes));
		u64 at = ((u64)tile.from((u32)(first >> 32), leader) << 32 | tile.from((u32)first, leader)) + popcount(lanes & ((1u << tile.lane) - 1));
		if (kept == 0)
			return;
		u32 lap = (u32)(at >> popcount(s.mask)) + 1, check = (u32)(hashOf(key ^ lap) >> 35) << 3 | kept;
		*(u32x4 *)((SampleRecord *)s.ring + (at & s.mask)) = u32x4{(u32)key, (u32)(key >> 32), lap, check};
	}

	// start begins the copy of a row to its stage, as far as its length is known. Each call is a group of copies, also behind the last row.
	INLINE void start(u32 position)
	{
		if (position < to) {
			u32 i = (position - from) % N;
			if (i == 0) {
				tile.sync(); // the list is read
				lookUp(position);
			}
			u32x4 e = list[i];
			u8 *stage = stageOf(position);
			if (tile.lane == 0)
				*(u32x4 *)stage = e;
			if ((e.z & SKIPPED) == 0) {
				u64 at = (u64)e.y << 32 | e.x;
				u32 length = e.z & LENGTH;
				stageBytes<N>(stage + 16, at & ~31ull, at, at + (e.z & KNOWN ? length : minimum(a.ahead, length)), tile.lane, false);
			}
		}
		copyCommit();
	}

#ifdef ROW_FLOAT8
	// addRow adds a row in shared memory.
	INLINE void addRow(const u8 *of, float weight, bool fresh)
	{
		for (u32 piece = tile.lane; piece < units(); piece += N) {
			float y[EACH];
			float8Piece(elements, p.element, of, p.columns, piece, y);
			addUnit(piece, y, weight, fresh);
		}
	}
	INLINE void add(u32 quad, u32x4 of, float, bool) const { *(u32x4 *)(row + quad * 16) = of; }
#else
	// add adds a quad of a row to the sums. fresh says that the row is the first one of its bag.
	INLINE void add(u32 quad, u32x4 of, float weight, bool fresh)
	{
		float y[EACH];
		unpack<EACH>(of, p.element, y);
		addUnit(quad, y, weight, fresh);
	}
#endif
	INLINE void addUnit(u32 quad, float (&y)[EACH], float weight, bool fresh)
	{
		if (p.mode == POOL_MAX) {
#pragma unroll
			for (int i = 0; i < EACH; i++) {
				float &s = LONG ? sums[i * units() + quad] : x[i];
				s = fresh || y[i] > s ? y[i] : s;
			}
			return;
		}
		if (p.weights != 0) {
#pragma unroll
			for (int i = 0; i < EACH; i++)
				y[i] = productOf(weight, y[i]);
		}
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			float &s = LONG ? sums[i * units() + quad] : x[i];
			s = sumOf(s, y[i]);
		}
	}

	// begin sets the sums to what leaves the first row as it is.
	INLINE void begin()
	{
		float first = asFloat(p.mode == POOL_MAX ? 0xff800000 : 0x80000000);
#pragma unroll
		for (int i = 0; i < EACH; i++)
			x[i] = first;
		if (LONG)
			for (u32 quad = tile.lane; quad < units(); quad += N) // those that the lane adds to
				for (int i = 0; i < EACH; i++)
					sums[i * units() + quad] = first;
	}

	// take adds the row at a position, which start has begun to copy, and returns whether there was one.
	INLINE bool take(u32 position, bool fresh)
	{
		copyWaitGroups<POOL_AHEAD - 1>();
		tile.sync(); // the stage is there
		u8 *stage = stageOf(position);
		u32x4 e = *(const u32x4 *)stage;
		if (e.z & SKIPPED)
			return false;
		u64 at = (u64)e.y << 32 | e.x;
		u32 length = e.z & LENGTH, offset = e.x & 31;
		float weight = asFloat(e.w);
		Words<SHARED> stored{(const u32 *)(stage + 16 + offset), 0, (length + 3) / 4};
		bool ok = true;
		if ((e.z & KNOWN) == 0) {
			u32 have = minimum(a.ahead, length), found = C::storedLength(a.codec, meta, stored, tile);
			ok = found - 1 < length;
			length = ok ? found : 0;
			stored.limit = (length + 3) / 4;
			u64 end = (at + have + 31) & ~31ull;
			if (at + length > end) {
				stageBytes<N>(stage + 16, at & ~31ull, end, at + length, tile.lane, false);
				copyWait();
				tile.sync();
			}
		}
#ifdef ROW_FLOAT8
		const u8 *decoded = stage + 16 + offset;
		if (ok && (e.z & COMPRESSED) != 0) {
			ok = decode(stored, length, weight, fresh);
			tile.sync();
			decoded = row;
		}
		if (ok)
			addRow(decoded, weight, fresh);
#else
		if (ok && (e.z & COMPRESSED) == 0) {
			for (u32 quad = tile.lane; quad < a.codec.quads; quad += N) {
				u32x4 q;
				if (offset % 16 == 0)
					q = *(const u32x4 *)(stage + 16 + offset + quad * 16);
				else
					q = u32x4{stored.p[quad * 4], stored.p[quad * 4 + 1], stored.p[quad * 4 + 2], stored.p[quad * 4 + 3]};
				add(quad, q, weight, fresh);
			}
		} else if (ok) {
			ok = decode(stored, length, weight, fresh);
		}
#endif
		if (e.z & MISSED)
			moved += ok ? length : 0;
		if (!ok && tile.lane == 0)
			b.corrupt(position);
		return ok;
	}

#ifdef ROW_PAIRS
	// decode adds a row of IBP with one mask, a lane a quad. A raw table has no such rows.
	INLINE bool decode(const Words<SHARED> &stored, u32 length, float weight, bool fresh)
	{
		if constexpr (C::CHUNK == 0) {
			return false;
		} else {
			const Meta<SHARED, C::STEPS> planes{meta};
			u32 excess = 0;
			for (u32 first = 0; first < a.codec.quads; first += N) {
				u32 quad = first + tile.lane, part = 0, masked = 0;
				bool in = quad < a.codec.quads;
				if (in) {
					part = quadBits<C::CHUNK>(stored, quad);
					masked = planes.masked(quad);
				}
				u32 more = byteSum(masked & ~part), sum = tile.scan(more);
				if (in) {
					u32 bit = headBits(a.codec) + planes.keptBefore(quad) + excess + sum - more, w[5];
					stored.window(bit / 32, w);
					u32x4 q;
					if (a.codec.params[2] == 0)
						q = expandQuad<C::CHUNK, 0>(w, bit, planes.template planes<0>(quad), part, masked);
					else
						q = expandQuad<C::CHUNK, C::STEPS>(w, bit, planes.planes(quad), part, masked);
					add(quad, q, weight, fresh);
				}
				excess += tile.from(sum, N - 1);
			}
			return storedBytes(a.codec, excess) == length;
		}
	}
#else
	// decode writes the row to shared memory and adds it from there.
	INLINE bool decode(const Words<SHARED> &stored, u32 length, float weight, bool fresh)
	{
		bool ok = length - 1 < a.codec.rowBytes - 1 && C::decode(a.codec, meta, stored, length, scratch, tile, row);
#ifdef ROW_FLOAT8
		return ok;
#else
		tile.sync();
		if (ok)
			for (u32 quad = tile.lane; quad < a.codec.quads; quad += N)
				add(quad, *(const u32x4 *)(row + quad * 16), weight, fresh);
		return ok;
#endif
	}
#endif

	// sumsOf returns the sums of a quad, over the number of rows.
	INLINE void sumsOf(u32 quad, u32 rows, float (&y)[EACH]) const
	{
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			y[i] = LONG ? sums[i * units() + quad] : x[i];
			if (rows == 0)
				y[i] = 0;
			else if (rows > 1)
				y[i] = quotientOf(y[i], (float)rows);
		}
	}

	// end writes a run of so many rows.
	INLINE void end(u32 bag, u32 position, bool whole, bool last, u32 rows)
	{
		if (whole) {
			u8 *out = (u8 *)a.lookup.out + (u64)bag * p.stride;
			for (u32 quad = tile.lane; quad < units(); quad += N) {
				float y[EACH];
				sumsOf(quad, rows == 0 || p.mode == POOL_MEAN ? rows : 1, y);
				storeSums<EACH>(p, out, quad, y);
			}
			return;
		}
		u8 *to = placeOf(p, position, last);
		if (tile.lane == 0)
			storeFar((u32 *)to, rows);
		for (u32 quad = tile.lane; quad < units(); quad += N) {
			float y[EACH];
			sumsOf(quad, 1, y);
#pragma unroll
			for (int i = 0; i < EACH; i += 4)
				if (quad * EACH + i < p.columns) // the last four may be padding
					storeFar((u32x4 *)(to + POOL_PARTIAL_HEADER + (quad * EACH + i) * 4), u32x4{bitsOf(y[i]), bitsOf(y[i + 1]), bitsOf(y[i + 2]), bitsOf(y[i + 3])});
		}
	}

	// runs sums the runs that begin at positions from first to first + p.tileRows - 1, and at the batch's end empty bags.
	INLINE void runs(u32 first)
	{
		u32 n = a.lookup.count, finish = startOf(p, n, p.bags);
		if (first != 0 && first >= finish)
			return;
		u32 next = minimum(first + p.tileRows, finish), bag, at, unused;
		bool last = next >= finish;
		firstRun(first, bag, from);
		to = finish;
		if (!last)
			firstRun(next, unused, to);
		if (VIA_ROW)
			for (u32 i = tile.lane; i < a.codec.quads * 4; i += N)
				((u32 *)row)[i] = 0; // the coder does not write what lies behind a row
		tile.sync();
		for (u32 i = 0; i < POOL_AHEAD; i++)
			start(from + i);
		at = from;
		for (u32 bagEnd; bag < p.bags && (at < next || last); bag++) {
			u32 bagStart = startOf(p, n, bag);
			bagEnd = startOf(p, n, bag + 1);
			if (bagEnd < at || bagStart > at)
				return; // offsets are out of order
			do {
				u32 runEnd = minimum(at + POOL_RUN, bagEnd), rows = 0, begun = at;
				if (runEnd > to)
					return; // offsets are out of order
				begin();
				for (; at < runEnd; at++) {
					if (take(at, begun == bagStart && rows == 0))
						rows++;
					tile.sync(); // the stage is free
					start(at + POOL_AHEAD);
				}
				end(bag, begun, bagEnd - bagStart <= POOL_RUN, runEnd == bagEnd, rows);
			} while (at < bagEnd && at < next);
			if (at < bagEnd)
				return;
		}
	}
};

template <class C, int N, int EACH, bool LONG> INLINE void pool(const Batch &b, const PoolArgs &p, Counted &counted, const Elements &elements)
{
	extern __shared__ u32x4 dynamic[];
	const ServeArgs &a = b.a;
	u32 tid = threadID();
	if (tid < sizeof(Counted) / 4)
		((u32 *)&counted)[tid] = 0;
	b.begin();
	if (!sharedMetaOf<C> && a.codec.metaBytes == 0)
		blockSync();
	const u8 *meta = metaOf<C>(a.codec, (u8 *)dynamic);
	b.begun();
	using P = Pooled<C, N, EACH, LONG>;
	P pooled{b, a, p, Tile<N>::make(), meta, counted, elements};
	pooled.moved = 0;
	pooled.place((u8 *)dynamic + a.codec.metaBytes + tid / N * pooled.tileBytes());
	u64 first = (u64)((blockID() * blockThreads() + tid) / N) * p.tileRows;
	if (first <= a.lookup.count)
		pooled.runs((u32)first);
	if (p.size == 0)
		for (u32 i = blockID() * blockThreads() + tid; i < p.offsetCount; i += gridBlocks() * blockThreads())
			if (badOffset(p, a.lookup.count, i))
				b.outOfRange(i);
	auto *count = b.counts();
	if (tid % N == 0 && pooled.moved != 0)
		atomicAdd(&count->hostBytes, pooled.moved);
	blockSync();
	if (tid == 0) {
		u32 misses = 0;
		for (u32 k = 0; k < NUM_REASONS; k++)
			if (counted.reasons[k] != 0) {
				atomicAdd(&count->reasons[k], counted.reasons[k]);
				misses += counted.reasons[k];
			}
		if (counted.peers != 0)
			atomicAdd(&count->peers, counted.peers);
		b.countHits(counted.hits, misses);
	}
	b.end();
}

#ifdef ROW_FLOAT8
using Args = PooledFloat8Args;
using OfReplay = PooledFloat8ReplayArgs;
#define ELEMENTS(args) args.float8
#else
using Args = PooledArgs;
using OfReplay = PooledReplayArgs;
#define ELEMENTS(args) Elements{}
#endif

#ifdef ROW_REPLAY
#define POOLED(name, lanes, each, isLong)                                                                                        \
	KERNEL void __launch_bounds__(256, isLong ? 2 : POOLED_BLOCKS) name(const OfReplay r)                                         \
	{                                                                                                                        \
		__shared__ ReplayNow now;                                                                                        \
		__shared__ Counted counted;                                                                                      \
		pool<ROW_CODER, lanes, each, isLong>(Batch{r.replay, r.replay.serve, now}, r.pool, counted, ELEMENTS(r));                     \
	}
#else
#define POOLED(name, lanes, each, isLong)                                                                                        \
	KERNEL void __launch_bounds__(256, isLong ? 2 : POOLED_BLOCKS) name(const Args a)                                               \
	{                                                                                                                        \
		__shared__ Counted counted;                                                                                      \
		pool<ROW_CODER, lanes, each, isLong>(Batch{a.serve}, a.pool, counted, ELEMENTS(a));                                           \
	}
#endif

// The kernels for elements of 4, 2 and 1 bytes: ROW_FLOATS is the sum of those that there are.
#if ROW_FLOATS & 4
POOLED(pooledLongOf4, 32, 4, true)
POOLED(pooled32Of4, 32, 4, false)
#if ROW_LANES <= 16
POOLED(pooled16Of4, 16, 4, false)
#endif
#if ROW_LANES <= 8
POOLED(pooled8Of4, 8, 4, false)
#endif
#endif
#if ROW_FLOATS & 2
POOLED(pooledLongOf2, 32, 8, true)
POOLED(pooled32Of2, 32, 8, false)
#if ROW_LANES <= 16
POOLED(pooled16Of2, 16, 8, false)
#endif
#if ROW_LANES <= 8
POOLED(pooled8Of2, 8, 8, false)
#endif
#endif
#if ROW_FLOATS & 1
POOLED(pooledLongOf1, 32, 8, true)
POOLED(pooled32Of1, 32, 8, false)
#if ROW_LANES <= 16
POOLED(pooled16Of1, 16, 8, false)
#endif
#endif
