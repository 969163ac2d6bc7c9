#include "coder.h"
#include "pooled_ends.h"

// Looks up the rows of a batch and adds them up, bag by bag, as ROW_BYTES decodes them: RankBytes (coder_rank_bytes.h), for rows of one segment, 512 bytes. pooled.cu has
// the others. With ROW_TABLES a launch serves batches of several tables, or one of a captured graph:
// pooled_tables.h.
//
// A tile of lanes takes the runs that begin at tileRows positions, a row at a time; all tiles of a warp go the same way. While a row is decoded, the next one is on its way to
// shared memory, and rows behind it are looked up (pooled_ahead.h). The sums of a run lie in shared memory: a lane adds the quads that it decodes to them. What becomes of runs
// is as in pooled_pairs.cu, but that those of bags of several runs all go to partials, and so is what is said there of arguments and offsets.

// For a row with one of these there is more to do than to decode and to add it.
constexpr u32 ODD = RUN_END | RAW | NO_ROW | MISSED | UNKNOWN | BY_WORDS;
constexpr u32 STAGES = POOL_BYTES_STAGES, AHEAD = STAGES - 1;
constexpr int EACH = 16 / ROW_ELEMENT;

// Shared memory: the metadata; what pooled_ahead.h describes; for each tile the sums, 4 bytes an element, STAGES stages, and the scratch; and FIND_SHARED bytes a thread.
template <class C, int N> struct Bytes {
	const ServeArgs &a;
	const PoolArgs &p;
	const Tile<N> tile;
	u32 longest; // the most rows that a tile of the warp has
	u32 rows;    // of the run so far

	// Where in shared memory the parts begin.
	static INLINE u32 entriesAt(const ServeArgs &a) { return a.codec.metaBytes; }
	static INLINE u32 sumBytes(const ServeArgs &a) { return a.codec.quads * EACH * 4; }
	static INLINE u32 tileBytes(const ServeArgs &a) { return sumBytes(a) + STAGES * a.stageBytes + a.codec.scratch; }
	static INLINE u32 tilesAt(const ServeArgs &a) { return entriesAt(a) + aheadBytes<N>(); }
	static INLINE u32 lookupsAt(const ServeArgs &a) { return tilesAt(a) + blockThreads() / N * tileBytes(a); }

	// Of the sums the first four of all quads lie together, and so do the others: lanes that read neighbouring ones do not meet in a bank.
	INLINE float *sumOf(u32 quad) const { return (float *)sharedAt(tilesAt(a) + threadID() / N * tileBytes(a)) + quad * 4; }
	INLINE void load(u32 quad, float (&x)[EACH]) const
	{
		const float *sum = sumOf(quad);
#pragma unroll
		for (int h = 0; h < EACH / 4; h++) {
			u32x4 four = *(const u32x4 *)(sum + h * a.codec.quads * 4);
			x[4 * h] = asFloat(four.x), x[4 * h + 1] = asFloat(four.y), x[4 * h + 2] = asFloat(four.z), x[4 * h + 3] = asFloat(four.w);
		}
	}
	INLINE void store(u32 quad, const float (&x)[EACH]) const
	{
		float *sum = sumOf(quad);
#pragma unroll
		for (int h = 0; h < EACH / 4; h++)
			*(u32x4 *)(sum + h * a.codec.quads * 4) = u32x4{bitsOf(x[4 * h]), bitsOf(x[4 * h + 1]), bitsOf(x[4 * h + 2]), bitsOf(x[4 * h + 3])};
	}

	// add adds a quad of a row. fresh says that the row is the first one of its bag.
	INLINE void add(u32 quad, u32x4 of, u32 weight, bool fresh) const
	{
		float s[EACH], y[EACH];
		load(quad, s);
		if (p.plain != 0) {
			unpack<EACH>(of, POOL_BFLOAT16, y);
#pragma unroll
			for (int k = 0; k < EACH; k++)
				s[k] = ::sumOf(s[k], y[k]);
		} else {
			unpack<EACH>(of, p.element, y);
			addUnit(p, s, y, weight, fresh);
		}
		store(quad, s);
	}
	// Added is what a coder gives decoded quads to.
	struct Added {
		static constexpr bool CHECKED = true;
		const Bytes &to;
		u32 weight;
		bool fresh;
		INLINE void operator()(u32 element, u32x4 x) const { to.add(element / EACH, x, weight, fresh); }
	};
	INLINE void begin()
	{
		float x[EACH];
		beginSums(p, x);
		for (u32 quad = tile.lane; quad < a.codec.quads; quad += N)
			store(quad, x);
		rows = 0;
	}
	INLINE void end(u32 what, u32 place)
	{
		if (tile.lane == 0)
			startPartial(p, what, place, rows);
#pragma unroll 1
		for (u32 quad = tile.lane; quad < a.codec.quads; quad += N) {
			float x[EACH];
			load(quad, x);
			endUnit<EACH>(p, a.lookup.out, what, place, rows, 0, quad, x, 0, 0);
			beginSums(p, x);
			store(quad, x);
		}
		rows = 0;
	}

	// start begins the lookups of the tile's first rows.
	INLINE void start()
	{
		u32 from, to, bag;
		longest = rowsOfTile<N>(p, a.lookup.count, tile, from, to, bag);
		if (longest != 0)
			startTile<N>(a, p, tile, entriesAt(a), from, to, bag);
	}

	INLINE void run(const u32 *table)
	{
		if (longest == 0)
			return;
		const u32 lane = tile.lane, rowBytes = a.codec.rowBytes, own = tilesAt(a) + threadID() / N * tileBytes(a) + sumBytes(a);
		const u32 base = sharedAddress(sharedAt(0)), ring = own, ringEnd = own + STAGES * a.stageBytes;
		u8 *scratch = sharedAt(ringEnd);
		const u8 *meta = sharedAt(0);
		const auto plan = C::plan(a.codec, meta, table);
		const Entries<N> entries = entriesOf<N>(entriesAt(a));
		copyWait();
		warpSync(~0u);

		// stage begins to copy row s.
		auto stage = [&](u32 s, u32 at) __attribute__((always_inline)) {
			u32 e = s & (2 * N - 1), what = *entries.what(e);
			u64 stored = *entries.at(e);
#pragma unroll 1
			for (u32 i = lane * 16; i < what >> 19; i += N * 16)
				copyAsync16(base + at + i, stored + i);
			if (what & BY_WORDS)
				copyWords<N>(lane, base + at, stored, 0, (u32)(stored >> WORDS_SHIFT));
			copyCommit();
		};

		begin();
		u32 slot = ring, freed = ringEnd - a.stageBytes; // where the row that is added lies, and where the next one goes
		for (u32 part = 0; part < longest + AHEAD; part += N) {
			u32 s = part, stop = minimum(part + N, longest + AHEAD);
			if (part < longest) {
				makeEntries<N, true, false>(part, part + N < longest);
			} else { // there are no rows
				*entries.what((part & N) + lane) = 0;
				warpSync(~0u);
			}
			if (part == 0) {
#pragma unroll 1
				for (; s < AHEAD; s++)
					stage(s, ring + s * a.stageBytes);
			}
#pragma unroll 1
			for (; s < stop; s++, freed = slot, slot = slot + a.stageBytes == ringEnd ? ring : slot + a.stageBytes) {
				stage(s, freed);
				copyWaitGroups<AHEAD>();
				warpSync(~0u); // the row has arrived
				const u32 j = s - AHEAD, e = j & (2 * N - 1), what = *entries.what(e);
				u32 length = what >> 19;
				const u32 odd = ballot(~0u, (what & ODD) != 0);
				if (odd != 0) {
					if (what & BY_WORDS)
						length = (u32)(*entries.at(e) >> WORDS_SHIFT);
					if (ballot(~0u, (what & UNKNOWN) != 0) != 0) {
						u32 found = 0, have = length;
						if (what & UNKNOWN) {
							found = C::storedLength(a.codec, meta, Words<SHARED>{(const u32 *)sharedAt(slot), 0, (have + 3) / 4}, tile);
							length = found - 1 < rowBytes - 1 ? found : 0;
						}
						if (length > have && (what & BY_WORDS))
							copyWords<N>(lane, base + slot, *entries.at(e), (have + 3) & ~3u, length);
						else if (length > have)
							for (u32 i = (have + 15 & ~15u) + lane * 16; i < length; i += N * 16)
								copyAsync16(base + slot + i, *entries.at(e) + i);
						copyWait();
						warpSync(~0u);
					}
				}
				bool raw = (what & RAW) != 0, coded = (what & (NO_ROW | RAW)) == 0 && length != 0;
				u32 weight = p.weights != 0 ? *entries.weight(e) : 0;
				bool fresh = rows == 0 && (what & FIRST_RUN) != 0;
				Words<SHARED> stored{(const u32 *)sharedAt(slot), 0, (length + 3) / 4};
				bool ok = C::template decodeTo<N, C::WHOLE>(plan, meta, table, stored, coded ? length : 0, scratch, tile, Added{*this, weight, fresh}) && coded;
				rows += ok;
				if (odd != 0) {
					if (raw) {
						for (u32 quad = lane; quad < a.codec.quads; quad += N)
							add(quad, *(const u32x4 *)sharedAt(slot + quad * 16), weight, fresh);
						rows++, ok = true;
					}
					if (lane == 0 && (what & MISSED) != 0 && ok)
						__atomic_fetch_add(&block.counted.moved, (u64)length, __ATOMIC_RELAXED);
				}
				if (lane == 0 && what != 0 && (what & NO_ROW) == 0 && !ok)
					batchOf().corruptHere(tileRowsOf<N>(entriesAt(a)).first + j);
				if (odd != 0 && (what & RUN_END) != 0)
					end(what, *entries.place(e));
				warpSync(~0u); // the stage and the scratch are free
			}
		}
		copyWaitGroups<0>();
	}
};

template <class C, int N> INLINE void poolBytes(const OfBatch &args, const ServeArgs &serve)
{
	__shared__ u32 table[C::TABLE];
	beginBlock(args, Bytes<C, N>::entriesAt(serve), Bytes<C, N>::lookupsAt(serve));
	Bytes<C, N> bytes{serve, args.pool, Tile<N>::make()};
	bytes.start();
	C::fill(table);
	for (u32 i = threadID(); i < serve.codec.metaBytes / 16; i += blockThreads())
		*(u32x4 *)sharedAt(i * 16) = loadConst((const u32x4 *)serve.codec.meta + i);
	blockSync();
	bytes.run(table);
	clearEmpty<EACH>(serve, args.pool);
	endCounting(batchOf(), args.pool, block.counted);
}

#define NAMED(lanes, element) pooled##lanes##Of##element
#define NAME(lanes, element) NAMED(lanes, element)
#ifdef ROW_TABLES
#define POOLED(lanes)                                                                                                            \
	KERNEL void __launch_bounds__(256, 3) NAME(lanes, ROW_ELEMENT)(const PooledTablesArgs t)                                 \
	{                                                                                                                        \
		eachTable<lanes>(t, [&](const PooledTable &table) __attribute__((always_inline)) { poolBytes<ROW_BYTES, lanes>(table, table.serve); }); \
	}
#else
#define POOLED(lanes)                                                                                                            \
	KERNEL void __launch_bounds__(256, 3) NAME(lanes, ROW_ELEMENT)(const OfBatch args) { poolBytes<ROW_BYTES, lanes>(args, args.serve); }
#endif

POOLED(8)
POOLED(16)
