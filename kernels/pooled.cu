#include "gpu.h"

// Coders write decoded rows to shared memory here, by ordinary stores.
template <class T> INLINE void storeRow(T *p, T x) { *p = x; }
#define storeOut storeRow
#include "coder.h"
#include ROW_HEADER
#undef storeOut
#include "ibp.h"
#include "miss.h"
#include "pooled.h"
#include "pooled_batch.h"
#include "sample.h"
#ifdef ROW_FLOAT8
#include "float8.h"
#endif

// Looks up the rows of a batch and adds them up, bag by bag, as ROW_CODER of ROW_HEADER decodes them; the rows are not written. With ROW_TABLES a launch
// serves batches of several tables, or one of a captured graph: pooled_tables.h.
//
// A tile of lanes takes the runs that begin at tileRows positions, one after the other. These runs' rows are neighbours, so the tile looks up as many rows
// as it has lanes, a lane each: a part. Then it adds them in order. Raw hits are read several at once, straight to registers. Other rows, hits, hits
// of other devices, and misses, from the host tier, alike, come by asynchronous copies to shared memory,
// POOL_AHEAD rows ahead. Each lane has the sums of a quad in registers, or, of rows of more than 32 quads, those of
// every 32nd quad in shared memory. Raw rows and rows of IBP with one mask are added from registers; other coders write the row to shared
// memory first. A run that is a whole bag is written as the bag's output; the sums of other runs go to partials, for poolJoin.
//
// With ROW_FLOAT8 rows are float8 values with scales. The row is written to shared memory, and each lane adds pieces of 8 elements instead of quads.
//
// Shared memory: the codec's metadata, if they fit, then for each tile: a list of 16 bytes a lane; POOL_AHEAD stages of stageBytes; the row, unless
// ROW_PAIRS; the coder's scratch; and the sums of rows of more than 32 quads.
//
// All arguments but row numbers and offsets are trusted. Every output is written if offsets are in order. Where they are not, which is counted as a row
// out of range, outputs are undefined, and nothing else is written.

// An entry says where a row lies and how long it is.
constexpr u32 LENGTH = (1 << 20) - 1, COMPRESSED = 1 << 20, KNOWN = 1 << 21, SKIPPED = 1 << 22, MISSED = 1 << 23;

#ifdef ROW_FLOAT8
using Elements = Float8Args;
constexpr bool FLOAT8 = true;
#else
struct Elements {};
constexpr bool FLOAT8 = false;
#endif

#ifdef ROW_PAIRS
constexpr bool VIA_ROW = FLOAT8;
#define POOLED_BLOCKS 3 // a multiprocessor
#else
constexpr bool VIA_ROW = true;
#define POOLED_BLOCKS 2 // with 3 they spill
#endif

// RAW_AT_ONCE is how many raw hits are read at once. Measured on an H200 with 512-byte rows of codec none in bags of 10: 1,720 GB/s, and 1,400 where raw
// hits are copied to shared memory, too. Compressed hits are the other way round: 786 GB/s of ibp4 decoded where they lie, after prefetches to the
// L2, against 931 by copies.
[[maybe_unused]] constexpr u32 RAW_AT_ONCE = 4;

template <class C, int N, int EACH, bool LONG> struct Pooled {
	const Batch &b;
	const ServeArgs &a;
	const PoolArgs &p;
	const Tile<N> tile;
	const u8 *meta;
	Counted &counted;
	const Elements &elements;
	u32x4 *list;   // the tile's shared memory begins with it
	float x[EACH]; // the sums of a short row
	u32 to;           // where the tile's positions end
	// The part: where it begins, which of its rows are raw hits, and which others have not begun to be copied; how many have been, and
	// how many of these were taken.
	u32 part, raw, others, started, taken;
	u64 moved;        // stored bytes of missed rows

	// units is the number of a row's parts that lanes add: quads, or of float8 rows pieces of 8 elements.
	INLINE u32 units() const { return FLOAT8 ? (p.columns + EACH - 1) / EACH : a.codec.quads; }
	INLINE u32 tileBytes() const
	{
		return N * 16 + POOL_AHEAD * a.stageBytes + (VIA_ROW ? a.codec.quads * 16 : 0) + a.codec.scratch + (LONG ? units() * EACH * 4 : 0);
	}
	INLINE u8 *stageOf(u32 row) const { return (u8 *)list + N * 16 + row % POOL_AHEAD * a.stageBytes; }
	INLINE u8 *row() const { return (u8 *)list + N * 16 + POOL_AHEAD * a.stageBytes; }
	INLINE u8 *scratch() const { return row() + (VIA_ROW ? a.codec.quads * 16 : 0); }
	// sumAt returns the sum of element i of a quad of a long row.
	INLINE float &sumAt(u32 quad, u32 i) const { return ((float *)(scratch() + a.codec.scratch))[i * units() + quad]; }

	// open looks up the part that begins at a position, a lane a row, and begins to copy those of its rows that are no raw hits.
	INLINE void open(u32 first)
	{
		tile.sync(); // the list is read
		part = first;
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
		raw = FLOAT8 ? 0 : tile.vote(hit && !compressedAt(word));
		others = tile.vote((what & SKIPPED) == 0) & ~raw;
		tile.sync();
		started = taken = 0;
		if (others != 0)
			for (u32 i = 0; i < POOL_AHEAD; i++)
				start();
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

	// start begins the copy of the part's next row, as far as its length is known. Each call is a group of copies, also behind the last row.
	INLINE void start()
	{
		if (others != 0) {
			u32x4 e = list[lowestBit(others)];
			others &= others - 1;
			u64 at = (u64)e.y << 32 | e.x;
			u32 length = e.z & LENGTH;
			stageBytes<N>(stageOf(started), at & ~31ull, at, at + (e.z & KNOWN ? length : minimum(a.ahead, length)), tile.lane, false);
		}
		started++;
		copyCommit();
	}

	// sumsAt returns the sums of a quad, to be written back by setSums.
	INLINE void sumsAt(u32 quad, float (&s)[EACH]) const
	{
#pragma unroll
		for (int i = 0; i < EACH; i++)
			s[i] = LONG ? sumAt(quad, i) : x[i];
	}
	INLINE void setSums(u32 quad, const float (&s)[EACH])
	{
#pragma unroll
		for (int i = 0; i < EACH; i++)
			(LONG ? sumAt(quad, i) : x[i]) = s[i];
	}

#ifdef ROW_FLOAT8
	// add writes a quad of a row to shared memory.
	INLINE void add(u32 quad, u32x4 of, u32, bool) { *(u32x4 *)(row() + quad * 16) = of; }

	// addPieces adds row i of the part, which lies there.
	INLINE void addPieces(const u8 *of, u32 i, bool fresh)
	{
		for (u32 piece = tile.lane; piece < units(); piece += N) {
			float s[EACH], y[EACH];
			float8Piece(elements, p.element, RowInShared{of}, p.columns, piece, y);
			sumsAt(piece, s);
			addUnit(p, s, y, p.weights != 0 ? list[i].w : 0, fresh);
			setSums(piece, s);
		}
	}
#else
	INLINE void add(u32 quad, u32x4 of, u32 i, bool fresh)
	{
		float s[EACH], y[EACH];
		unpack<EACH>(of, p.element, y);
		sumsAt(quad, s);
		addUnit(p, s, y, p.weights != 0 ? list[i].w : 0, fresh);
		setSums(quad, s);
	}

	// addRaw adds rows of the part from i on, count of them, which are raw hits.
	INLINE void addRaw(u32 i, u32 count, bool fresh)
	{
		for (u32 quad = tile.lane; quad < a.codec.quads; quad += N) {
			u32x4 q[RAW_AT_ONCE];
#pragma unroll
			for (int k = 0; k < RAW_AT_ONCE; k++)
				if (k < count)
					q[k] = loadConst((const u32x4 *)*(const u64 *)&list[i + k] + quad);
			float s[EACH];
			sumsAt(quad, s);
#pragma unroll
			for (int k = 0; k < RAW_AT_ONCE; k++) {
				if (k >= count)
					continue;
				float y[EACH];
				unpack<EACH>(q[k], p.element, y);
				addUnit(p, s, y, p.weights != 0 ? list[i + k].w : 0, fresh && k == 0);
			}
			setSums(quad, s);
		}
	}
#endif

	// begin sets the sums to what leaves the first row as it is.
	INLINE void begin()
	{
		float first = firstSum(p);
#pragma unroll
		for (int i = 0; i < EACH; i++)
			x[i] = first;
		if (LONG)
			for (u32 quad = tile.lane; quad < units(); quad += N) // those that the lane adds to
				for (int i = 0; i < EACH; i++)
					sumAt(quad, i) = first;
	}

	// waitFor waits for the next copied row of the part, of which e says where it lies, and returns its stored bytes. Its length in e is then known, or 0 if the
	// row is corrupt.
	INLINE Words<SHARED> waitFor(u32x4 &e)
	{
		copyWaitGroups<POOL_AHEAD - 1>();
		tile.sync(); // the stage is there
		u8 *stage = stageOf(taken++);
		u64 at = (u64)e.y << 32 | e.x;
		u32 length = e.z & LENGTH;
		Words<SHARED> stored{(const u32 *)(stage + (e.x & 31)), 0, (length + 3) / 4};
		if (e.z & KNOWN)
			return stored;
		u32 have = minimum(a.ahead, length), found = C::storedLength(a.codec, meta, stored, tile);
		e.z = found - 1 < length ? (e.z & ~LENGTH) | found : e.z & ~LENGTH;
		stored.limit = ((e.z & LENGTH) + 3) / 4;
		u64 end = (at + have + 31) & ~31ull;
		if (at + (e.z & LENGTH) > end) {
			stageBytes<N>(stage, at & ~31ull, end, at + (e.z & LENGTH), tile.lane, false);
			copyWait();
			tile.sync();
		}
		return stored;
	}

	// addRow adds row i of the part, which is no raw hit, and returns whether there is one.
	INLINE bool addRow(u32 i, bool fresh)
	{
		u32x4 e = list[i];
		if (e.z & SKIPPED)
			return false;
		Words<SHARED> stored = waitFor(e);
		u32 length = e.z & LENGTH;
		bool ok = length != 0;
#ifdef ROW_FLOAT8
		const u8 *bytes = (const u8 *)stored.p;
		if (ok && (e.z & COMPRESSED) != 0) {
			ok = decode(stored, length, i, fresh);
			tile.sync(); // the row is written
			bytes = row();
		}
		if (ok)
			addPieces(bytes, i, fresh);
		tile.sync(); // and read
#else
		if (ok && (e.z & COMPRESSED) == 0) {
			for (u32 quad = tile.lane; quad < a.codec.quads; quad += N)
				add(quad, u32x4{stored.p[quad * 4], stored.p[quad * 4 + 1], stored.p[quad * 4 + 2], stored.p[quad * 4 + 3]}, i, fresh);
		} else if (ok) {
			ok = decode(stored, length, i, fresh);
		}
#endif
		if (!ok && tile.lane == 0)
			b.corrupt(part + i);
		if (e.z & MISSED)
			moved += ok ? length : 0;
		tile.sync(); // the stage is free
		start();
		return ok;
	}

#ifdef ROW_PAIRS
	// decode adds a row of IBP with one mask, a lane a quad. A raw table has no such rows.
	INLINE bool decode(const Words<SHARED> &stored, u32 length, u32 i, bool fresh)
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
					add(quad, q, i, fresh);
				}
				excess += tile.from(sum, N - 1);
			}
			return storedBytes(a.codec, excess) == length;
		}
	}
#else
	// decode writes the row to shared memory, and adds it from there unless it is one of float8.
	INLINE bool decode(const Words<SHARED> &stored, u32 length, u32 i, bool fresh)
	{
		bool ok = length - 1 < a.codec.rowBytes - 1 && C::decode(a.codec, meta, stored, length, scratch(), tile, row());
#ifndef ROW_FLOAT8
		tile.sync(); // the row is written
		if (ok)
			for (u32 quad = tile.lane; quad < a.codec.quads; quad += N)
				add(quad, *(const u32x4 *)(row() + quad * 16), i, fresh);
		tile.sync(); // and read, and the scratch is free
#endif
		return ok;
	}
#endif

	// end writes a run of so many rows.
	INLINE void end(u32 bag, u32 position, bool whole, bool last, u32 rows)
	{
		u8 *out = whole ? (u8 *)a.lookup.out + (u64)bag * p.stride : placeOf(p, position, last);
		if (!whole && tile.lane == 0)
			storeFar((u32 *)out, rows);
		for (u32 quad = tile.lane; quad < units(); quad += N) {
			float y[EACH];
			sumsAt(quad, y);
			if (whole) {
				finish(p, y, rows);
				storeSums<EACH>(p, out, quad, y);
			} else {
				storePartial<EACH>(p, out, quad, y);
			}
		}
	}

	// runs sums the runs that begin at positions from first to next - 1, and at the batch's end empty bags.
	INLINE void runs(u32 first, u32 next)
	{
		const Runs<N> r{p, tile, a.lookup.count};
		u32 finish = startOf(p, r.n, p.bags);
		if (first != 0 && first >= finish)
			return;
		next = minimum(next, finish);
		u32 bag, at, unused;
		bool last = next >= finish;
		r.first(first, bag, at);
		to = finish;
		if (!last)
			r.first(next, unused, to);
		if (VIA_ROW)
			for (u32 i = tile.lane; i < a.codec.quads * 4; i += N)
				((u32 *)row())[i] = 0; // the coder does not write what lies behind a row
		part = at - N; // there is none yet
		r.each(bag, at, next, last, to, [&](u32 bag, u32 begun, u32 runEnd, u32 bagStart, u32 bagEnd) __attribute__((always_inline)) {
			u32 rows = 0;
			begin();
			for (u32 at = begun; at < runEnd;) {
				if (at - part == N)
					open(at);
				u32 i = at - part;
				bool fresh = begun == bagStart && rows == 0;
#ifndef ROW_FLOAT8
				if (u32 stop = ~(raw >> i); (stop & 1) == 0) {
					u32 count = minimum(minimum(stop == 0 ? N : lowestBit(stop), RAW_AT_ONCE), runEnd - at);
					addRaw(i, count, fresh);
					rows += count, at += count;
					continue;
				}
#endif
				rows += addRow(i, fresh);
				at++;
			}
			end(bag, begun, bagEnd - bagStart <= POOL_RUN, runEnd == bagEnd, rows);
		});
	}
};

template <class C, int N, int EACH, bool LONG> INLINE void pool(const Batch &b, const PoolArgs &p, Counted &counted, const Elements &elements)
{
	extern __shared__ u32x4 dynamic[];
	const ServeArgs &a = b.a;
	u32 tid = threadID();
	beginCounting(b, counted);
	if (!sharedMetaOf<C> && a.codec.metaBytes == 0)
		blockSync();
	const u8 *meta = metaOf<C>(a.codec, (u8 *)dynamic);
	b.begun();
	using P = Pooled<C, N, EACH, LONG>;
	P pooled{b, a, p, Tile<N>::make(), meta, counted, elements};
	pooled.moved = 0;
	pooled.list = (u32x4 *)((u8 *)dynamic + a.codec.metaBytes + tid / N * pooled.tileBytes());
	u64 first, next;
	tileShare<N>(p, first, next);
	if (first <= a.lookup.count)
		pooled.runs((u32)first, (u32)minimum64(next, a.lookup.count));
	if (tid % N == 0 && pooled.moved != 0)
		__atomic_fetch_add(&counted.moved, pooled.moved, __ATOMIC_RELAXED);
	endCounting(b, p, counted);
}

#ifdef ROW_TABLES
#ifdef ROW_FLOAT8
#define ELEMENTS(table) table.float8
#else
#define ELEMENTS(table) Elements{}
#endif
#define POOLED(name, lanes, each, isLong)                                                                                        \
	KERNEL void __launch_bounds__(256, POOLED_BLOCKS) name(const PooledTablesArgs t)                                         \
	{                                                                                                                        \
		__shared__ Counted counted;                                                                                      \
		eachTable<lanes>(t, [&](const PooledTable &table) __attribute__((always_inline)) {                               \
			pool<ROW_CODER, lanes, each, isLong>(Batch{table.serve}, table.pool, counted, ELEMENTS(table));          \
		});                                                                                                              \
	}
#else
#define POOLED(name, lanes, each, isLong)                                                                                        \
	KERNEL void __launch_bounds__(256, POOLED_BLOCKS) name(const PooledArgs a)                                               \
	{                                                                                                                        \
		__shared__ Counted counted;                                                                                      \
		pool<ROW_CODER, lanes, each, isLong>(Batch{a.serve}, a.pool, counted, Elements{});                               \
	}
#endif

// The kernels for elements of 4, 2 and 1 bytes: ROW_FLOATS is the sum of those that there are.
#if ROW_FLOATS & 4
POOLED(pooledLongOf4, 32, 4, true)
#ifndef ROW_PAIRS // whose shorter rows pooled_pairs.cu has
POOLED(pooled32Of4, 32, 4, false)
#if ROW_LANES <= 16
POOLED(pooled16Of4, 16, 4, false)
#endif
#if ROW_LANES <= 8
POOLED(pooled8Of4, 8, 4, false)
#endif
#endif
#endif
#if ROW_FLOATS & 2
POOLED(pooledLongOf2, 32, 8, true)
#ifndef ROW_PAIRS
POOLED(pooled32Of2, 32, 8, false)
#if ROW_LANES <= 16
POOLED(pooled16Of2, 16, 8, false)
#endif
#if ROW_LANES <= 8
POOLED(pooled8Of2, 8, 8, false)
#endif
#endif
#endif
#if ROW_FLOATS & 1
POOLED(pooledLongOf1, 32, 8, true)
POOLED(pooled32Of1, 32, 8, false)
#if ROW_LANES <= 16
POOLED(pooled16Of1, 16, 8, false)
#endif
#endif
