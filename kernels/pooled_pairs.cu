#include "coder.h"
#include "expand.h"
#include "pooled_ends.h"

// Looks up the rows of a batch and adds them up, bag by bag, two rows at a time: the kernels of IBP with one mask and of tables without a codec, for rows of
// at most 32 quads. pooled.cu has the others. ROW_CODER says the chunk length, 0 without a codec, and the steps of expansion. With ROW_KIND 1 masks
// move no bit when a chunk is packed. With ROW_TABLES a launch serves batches of
// several tables, or one of a captured graph: pooled_tables.h.
//
// A tile of lanes takes the runs that begin at tileRows positions, so its rows are neighbours. A lane decodes the same quad of all rows: the quad's
// metadata and its sums stay in registers. While a pair of rows is added, the next pairs are on their way to shared memory, and rows behind them are looked
// up (pooled_ahead.h). All tiles of a warp go the same way. A pair of rows that are hits, compressed in tables with a codec, and that no run ends with, is
// decoded and added without branches; every other pair takes a longer way.
//
// A run that is a whole bag is written as the bag's output. Where the tile has all runs of a bag, their sums are added up in shared memory. Those of other
// runs go to partials, for poolJoin.
//
// All arguments but row numbers and offsets are trusted. Every output is written if offsets are in order. Where they are not, which is counted as a row
// out of range, outputs are undefined, and nothing else is written.

constexpr int CHUNK = ROW_CODER::CHUNK, STEPS = ROW_CODER::STEPS, C = CHUNK ? CHUNK : 4;
constexpr u32 CHUNKS = 16 / C; // of a quad
#ifdef ROW_SHIFTS
using Expander = ByShifts<C, STEPS, ROW_SHIFTS>;
#else
using Expander = BySteps<C, STEPS>;
#endif

// A pair with one of ODD needs more than to be decoded and added, and so does one that a run ends with.
constexpr u32 ODD = NO_ROW | MISSED | UNKNOWN | BY_WORDS | (CHUNK ? RAW : 0);

// Shared memory: what Expander has; what pooled_ahead.h describes; EACH + 1 words of sums for each thread; for each tile the stages of PAIRS pairs; and FIND_SHARED
// bytes a thread.
template <int LANES, int EACH> struct Pairs {
	// Tables without a codec have more rows on their way, as there is less to do for each, where the memory suffices.
	static constexpr u32 PAIRS = (CHUNK == 0 && EACH == 4 ? POOL_RAW_STAGES : POOL_STAGES) / 2;
	const ServeArgs &a;
	const PoolArgs &p;
	const Tile<LANES> tile;
	u32 longest;   // the most rows that a tile of the warp has
	float x[EACH]; // the sums of the run
	u32 rows;      // of the run so far

	// Where in shared memory the parts begin.
	static INLINE u32 entriesAt(const ServeArgs &a) { return CHUNK ? Expander::shared(a.codec) : 0; }
	static INLINE u32 sumsAt(const ServeArgs &a) { return entriesAt(a) + aheadBytes<LANES>(); }
	static INLINE u32 stagesAt(const ServeArgs &a) { return sumsAt(a) + blockThreads() * (EACH + 1) * 4; }
	static INLINE u32 lookupsAt(const ServeArgs &a) { return stagesAt(a) + blockThreads() / LANES * 2 * PAIRS * a.stageBytes; }

	// addPlain adds a quad of a row to sums that are plain, and add to any.
	INLINE void addPlain(u32x4 quad)
	{
		float y[EACH];
		unpack<EACH>(quad, POOL_BFLOAT16, y);
#pragma unroll
		for (int k = 0; k < EACH; k++)
			x[k] = sumOf(x[k], y[k]);
	}
	INLINE void add(u32x4 quad, u32 weight, bool fresh)
	{
		if (p.plain != 0)
			return addPlain(quad);
		float y[EACH];
		unpack<EACH>(quad, p.element, y);
		addUnit(p, x, y, weight, fresh);
	}
	INLINE void begin()
	{
		beginSums(p, x);
		rows = 0;
	}
	// end ends a run. what and place are in the entry of its last row.
	INLINE void end(u32 what, u32 place)
	{
		float *group = (float *)sharedAt(sumsAt(a)) + threadID() * (EACH + 1);
		u32 before = (what & FIRST_RUN) == 0 ? bitsOf(group[EACH]) : 0;
		if (tile.lane == 0)
			startPartial(p, what, place, rows);
		if (tile.lane < a.codec.quads)
			endUnit<EACH>(p, a.lookup.out, what, place, rows, before, tile.lane, x, group, 1);
		if ((what & BAG_END) == 0)
			group[EACH] = asFloat(before + rows);
		begin();
	}

	// addOne adds the quad of a row of which what and e are the entry, and ends the run if the row is the last one.
	INLINE void addOne(u32 e, u32 what, u32x4 quad)
	{
		const Entries<LANES> entries = entriesOf<LANES>(entriesAt(a));
		if ((what & NO_ROW) == 0) {
			add(quad, p.weights != 0 ? *entries.weight(e) : 0, rows == 0 && (what & FIRST_RUN) != 0);
			rows++;
		}
		if (what & RUN_END)
			end(what, *entries.place(e));
	}

	// partOf reads which chunks of the lane's quad participate, as bytes of ones. row is the row's address in shared memory.
	INLINE u32 partOf(u32 row) const
	{
		u32 bit = tile.lane * CHUNKS;
		return bytesOf(loadAt<u32>(row + bit / 32 * 4) >> (bit & 31) & ((1 << CHUNKS) - 1));
	}
	INLINE u32x4 quadAt(u32 row, u32 bit, const Expander &expander, u32 part) const
	{
		u32 words[5], at = row + bit / 32 * 4;
#pragma unroll
		for (u32 i = 0; i < 5; i++)
			words[i] = loadAt<u32>(at + 4 * i);
		return expander.expand(words, bit, part);
	}
	// rawAt reads the lane's quad of a row as it is; lanes without one read the last one.
	INLINE u32x4 rawAt(u32 row) const { return loadAt<u32x4>(row + minimum(tile.lane, a.codec.quads - 1) * 16); }

	// mend looks at row j, of whose scan the lower halves of through and before are. It sets the lane's quad x of a row that is not compressed, and of one whose length was not
	// known. It adds NO_ROW to what if the row is corrupt, and counts it.
	INLINE void mend(u32 row, u32 j, u32 through, u32 before, const Expander &quad, u32 &what, u32x4 &x) const
	{
		const Entries<LANES> entries = entriesOf<LANES>(entriesAt(a));
		const u32 e = j & (2 * LANES - 1), lane = tile.lane;
		u32 length = what >> 19;
		bool ok = (what & NO_ROW) == 0;
		if (what & BY_WORDS)
			length = (u32)(*entries.at(e) >> WORDS_SHIFT);
		if (CHUNK != 0) {
			u32 found = (headBits(a.codec) + keptBits(a.codec) + (tile.from(through, LANES - 1) & 0xffff) + 7) / 8;
			bool unknown = (what & UNKNOWN) != 0;
			ok = ok && (!unknown || found < a.codec.rowBytes);
			bool more = unknown && ok && found > length;
			if (ballot(~0u, more) != 0) { // for the rest of the row
				warpSync(~0u); // other lanes have read there, in vain
				if (more && (what & BY_WORDS))
					copyWords<LANES>(lane, row, *entries.at(e), (length + 3) & ~3u, found);
				else if (more && lane * 16 >= length && lane * 16 < found)
					copyAsync16(row + lane * 16, *entries.at(e) + lane * 16);
				copyWait();
				warpSync(~0u);
				u32x4 whole = quadAt(row, quad.before + (before & 0xffff), quad, partOf(row));
				x = more ? whole : x;
			}
			length = unknown ? found : length;
			if ((what & RAW) == 0)
				ok = ok && found == length;
			else if (lane < a.codec.quads)
				x = rawAt(row);
		}
		if (lane == 0 && (what & NO_ROW) == 0) {
			if (!ok)
				batchOf().corruptHere(tileRowsOf<LANES>(entriesAt(a)).first + j);
			else if (what & MISSED)
				__atomic_fetch_add(&block.counted.moved, (u64)length, __ATOMIC_RELAXED);
		}
		what |= ok ? 0 : NO_ROW;
	}

	// start begins the lookups of the tile's first rows.
	INLINE void start()
	{
		u32 from, to, bag;
		longest = rowsOfTile<LANES>(p, a.lookup.count, tile, from, to, bag);
		if (longest != 0)
			startTile<LANES>(a, p, tile, entriesAt(a), from, to, bag);
	}

	INLINE void run()
	{
		if (longest == 0)
			return;
		const u32 tid = threadID(), lane = tile.lane, stageBytes = a.stageBytes;
		const Entries<LANES> entries = entriesOf<LANES>(entriesAt(a));
		copyWait();
		warpSync(~0u);

		// A row's bits end where its stored bytes do, the last byte's other bits being padding. Both rows' ends are compared at once, on the last lane.
		const u32 bitsOfRow = CHUNK == 0 ? 0 : headBits(a.codec) + keptBits(a.codec), ends = (bitsOfRow + 7) * 0x10001;
		const u32 endMask = CHUNK != 0 && lane == LANES - 1 ? 0xfff8fff8 : 0;
		constexpr u32 AHEAD = 2 * (PAIRS - 1); // rows on their way while a pair is added
		const u32 ring = sharedAddress(sharedAt(0)) + stagesAt(a) + tid / LANES * 2 * PAIRS * stageBytes, ringEnd = ring + 2 * PAIRS * stageBytes;
		const u32 least = lane << 23 | 0xffff; // 16 bytes before the lane's quad are 8 × 16 in an entry's upper half

		// stage begins to copy rows s and s + 1 to an address in shared memory.
		auto stage = [&](u32 s, u32 to) __attribute__((always_inline)) {
			u32 e = s & (2 * LANES - 1);
			u32x4 at = *(const u32x4 *)entries.at(e);
			u32x2 w = *(const u32x2 *)entries.what(e);
			if (w.x > least)
				copyAsync16(to + lane * 16, ((u64)at.y << 32 | at.x) + lane * 16);
			if (w.y > least)
				copyAsync16(to + stageBytes + lane * 16, ((u64)at.w << 32 | at.z) + lane * 16);
			if ((w.x | w.y) & BY_WORDS) {
#pragma unroll 1
				for (u32 r = 0; r < 2; r++)
					if ((r == 0 ? w.x : w.y) & BY_WORDS)
						copyWords<LANES>(lane, to + r * stageBytes, *entries.at(e + r), 0, (u32)(*entries.at(e + r) >> WORDS_SHIFT));
			}
			copyCommit();
		};

		begin();
		u32 row = ring, freed = ringEnd - 2 * stageBytes; // where the pair that is added lies, and where the next one goes
		for (u32 part = 0; part < longest + AHEAD; part += LANES) {
			u32 s = part, stop = minimum(part + LANES, longest + AHEAD);
			if (part < longest) {
				makeEntries<LANES, CHUNK != 0, true>(part, part + LANES < longest);
			} else { // there are no rows
				*entries.what((part & LANES) + lane) = 0;
				warpSync(~0u);
			}
			if (part == 0) {
#pragma unroll 1
				for (; s < AHEAD; s += 2)
					stage(s, ring + s * stageBytes);
			}
			// Read again, so that they need not be kept while entries are made.
			Expander quad = {};
			if (CHUNK != 0 && lane < a.codec.quads)
				quad.load(a.codec, lane);
#pragma unroll 1
			for (; s < stop; s += 2, freed = row, row = row + 2 * stageBytes == ringEnd ? ring : row + 2 * stageBytes) {
				copyWaitGroups<PAIRS - 2>();
				warpSync(~0u); // the pair that is added now has arrived, and the one before has been read
				stage(s, freed);
				const u32 j = s - AHEAD, e = j & (2 * LANES - 1);
				const u32x2 w = *(const u32x2 *)entries.what(e);
				u32 odd = (w.x | w.y) & ODD, part0 = 0, part1 = 0, through = 0, before = 0;
				if (CHUNK != 0) {
					part0 = partOf(row), part1 = partOf(row + stageBytes);
					u32 more = byteSum(quad.masked & ~part0) + (byteSum(quad.masked & ~part1) << 16);
					through = tileScan<LANES>(~0u, more); // both rows' in one scan
					before = through - more;
					odd |= (through + ends - permute(w.x, w.y, 0x7632)) & endMask;
				}
				u32x4 x0, x1;
				if (CHUNK != 0) {
					x0 = quadAt(row, quad.before + (before & 0xffff), quad, part0);
					x1 = quadAt(row + stageBytes, quad.before + (before >> 16), quad, part1);
				} else {
					x0 = rawAt(row);
					x1 = rawAt(row + stageBytes);
				}
				if (ballot(~0u, (odd | ((w.x | w.y) & RUN_END)) != 0) == 0) {
					rows += 2;
					if (p.plain != 0) {
						addPlain(x0);
						addPlain(x1);
						continue;
					}
					u32x2 weights = {0, 0};
					if (p.weights != 0)
						weights = *(const u32x2 *)entries.weight(e);
					add(x0, weights.x, rows == 2 && (w.x & FIRST_RUN) != 0);
					add(x1, weights.y, false);
					continue;
				}
				u32 what = w.x, further = w.y;
				if (ballot(~0u, odd != 0) != 0) {
					mend(row, j, through, before, quad, what, x0);
					mend(row + stageBytes, j + 1, through >> 16, before >> 16, quad, further, x1);
				}
				addOne(e, what, x0);
				addOne(e + 1, further, x1);
			}
		}
		copyWaitGroups<0>();
	}
};

template <int LANES, int EACH> INLINE void poolPairs(const OfBatch &args, const ServeArgs &serve)
{
	beginBlock(args, Pairs<LANES, EACH>::entriesAt(serve), Pairs<LANES, EACH>::lookupsAt(serve));
	Pairs<LANES, EACH> pairs{serve, args.pool, Tile<LANES>::make()};
	pairs.start();
	if (CHUNK != 0) {
		Expander::prepare(serve.codec);
		blockSync();
	}
	pairs.run();
	clearEmpty<EACH>(serve, args.pool);
	endCounting(batchOf(), args.pool, block.counted);
}

#ifndef POOL_BLOCKS
#define POOL_BLOCKS 3
#endif
#ifdef ROW_TABLES
#define POOLED(lanes, each, element)                                                                                             \
	KERNEL void __launch_bounds__(256, POOL_BLOCKS) pooled##lanes##Of##element(const PooledTablesArgs t)                     \
	{                                                                                                                        \
		eachTable<lanes>(t, [&](const PooledTable &table) __attribute__((always_inline)) { poolPairs<lanes, each>(table, table.serve); }); \
	}
#else
#define POOLED(lanes, each, element)                                                                                             \
	KERNEL void __launch_bounds__(256, POOL_BLOCKS) pooled##lanes##Of##element(const OfBatch args) { poolPairs<lanes, each>(args, args.serve); }
#endif

POOLED(8, 4, 4)
POOLED(16, 4, 4)
POOLED(32, 4, 4)
POOLED(8, 8, 2)
POOLED(16, 8, 2)
POOLED(32, 8, 2)
