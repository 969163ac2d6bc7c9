// The tables of one launch: which positions are whose, and the arguments of the table that a block is at. The positions of all tables are counted through,
// and divided over the tiles of the launch, so a block may have a part of a table, or of several, one after the other.
#pragma once
#include "pooled.h"
#include "publish.h"
#include "replay.h"

static_assert(POOL_STARTS == POOL_TABLES + 1, "");

// Tables is what all threads of a block know of them.
struct Tables {
	PooledTable table; // that the block is at, with what its batch has among the others' filled in
	u64 version;       // of the view in it, if there is only one table
	u64 latest;        // what it must be
	u64 number;        // of the replay, from 0 on
	u64 first, end;    // of the positions of all tables those from first to end - 1 are the block's
	u32 at;            // the table's number
	u32 windows;       // whether offsets say which rows are whose
	u32 last;          // whether the block is the last one to end
	u32 tileRows;      // positions of a tile
	// Table i has the positions from starts[i] on, and begins[i] is what its offsets count from.
	u32 starts[POOL_STARTS], begins[POOL_TABLES];

	INLINE u32 rows(u32 i) const { return starts[i + 1] - starts[i]; }
};
static __shared__ Tables tables;

// findStarts fills in where tables begin, and the positions of a tile. A warp calls it. If offsets are out of order, tables have fewer rows, and none has any outside the
// limit.
INLINE void findStarts(const PooledTablesArgs &t)
{
	Tables &s = tables;
	if (t.offsets == 0) {
		for (u32 i = laneID(); i <= t.count; i += 32)
			s.starts[i] = t.starts[i];
		for (u32 i = laneID(); i < t.count; i += 32)
			s.begins[i] = 0;
	} else {
		auto position = [&](u32 i) __attribute__((always_inline)) {
			i64 x = offsetGiven(t.offsets, t.narrow, i);
			return x < 0 ? 0 : (u32)minimum64((u64)x, t.limit);
		};
		u64 before = 0;
		for (u32 first = 0; first < t.count; first += 32) {
			u32 i = first + laneID(), begin = 0, rows = 0;
			if (i < t.count) {
				begin = position(t.starts[i]);
				u32 end = position(t.starts[i] + t.bags);
				rows = end > begin ? end - begin : 0;
			}
			u64 through = before + ((u64)tileScan<32>(~0u, rows >> 16) << 16) + tileScan<32>(~0u, rows & 0xffff);
			if (i < t.count) {
				s.begins[i] = begin;
				s.starts[i + 1] = (u32)minimum64(through, t.limit);
			}
			before = (u64)laneFrom((u32)(through >> 32), 31) << 32 | laneFrom((u32)through, 31);
		}
		if (laneID() == 0)
			s.starts[0] = 0;
	}
	warpSync(~0u);
	if (laneID() == 0) {
		s.windows = t.offsets != 0;
		s.tileRows = maximum((u32)(((u64)s.starts[t.count] + t.tiles - 1) / t.tiles), POOL_LEAST_ROWS);
	}
}

// openTables prepares the block; of a captured graph it announces it: see replay.h.
INLINE void openTables(const PooledTablesArgs &t)
{
	u32 warp = threadID() / 32, last = blockThreads() / 32 - 1;
	if (t.state != 0 && warp == last && laneID() == 0) {
		u64 before = atomicFetchAdd(&((ReplayState *)t.state)->begun, 1);
		fenceSequential();
		tables.number = before / t.blocks;
		if (t.count == 1)
			tables.latest = loadSystem(&((const ReplayViews *)t.one.views)->version);
	}
	if (t.state != 0 && t.count == 1 && warp == (last == 0 ? 0 : last - 1)) {
		const ReplayViews *views = (const ReplayViews *)t.one.views;
		u64 version = loadSame(&views->version);
		readView(views, version, &tables.table.view);
		if (laneID() == 0)
			tables.version = version;
	}
	if (warp == 0)
		findStarts(t);
	blockSync();
}

// readTable reads the arguments of a table; VIEW says whether what it reads by, too. All threads call it when they are done with the table before.
template <bool VIEW> INLINE void readTable(const PooledTablesArgs &t, u32 i)
{
	Tables &s = tables;
	constexpr u32 WORDS = sizeof(PooledTable) / 8, VIEWS = __builtin_offsetof(PooledTable, view) / 8;
	bool captured = t.state != 0;
	for (u32 w = threadID(); w < (captured || !VIEW ? VIEWS : WORDS); w += blockThreads())
		((u64 *)&s.table)[w] = t.count == 1 ? ((const u64 *)&t.one)[w] : loadConst((const u64 *)t.tables + (u64)i * WORDS + w);
	blockSync();
	if (VIEW && captured && (t.count > 1 || s.version != s.latest) && threadID() < 32) {
		const ReplayViews *views = (const ReplayViews *)s.table.views;
		readView(views, t.count > 1 ? loadSame(&views->version) : s.latest, &s.table.view);
	}
	if (threadID() == blockThreads() - 1) {
		PoolArgs &p = s.table.pool;
		LookupArgs &l = s.table.serve.lookup;
		u32 begin = s.begins[i];
		s.at = i;
		l.rows += (u64)begin * (l.table & INT32_ROWS ? 4 : 8);
		l.count = s.rows(i);
		p.begin = begin;
		p.tileRows = s.tileRows;
		p.weights += p.weights != 0 ? (u64)begin * 4 : 0;
		p.partials += ((u64)s.starts[i] / POOL_RUN + i) * 2 * p.partialStride;
	}
	blockSync();
}

// closeTables ends the block. The last one publishes what was counted for each table.
INLINE void closeTables(const PooledTablesArgs &t)
{
	blockSync();
	if (t.state != 0) {
		if (threadID() == 0) {
			fenceDevice();
			atomicAdd(&((ReplayState *)t.state)->ended, 1);
		}
		return;
	}
	Counters *counters = (Counters *)t.counters;
	if (threadID() == 0) {
		fenceDevice();
		tables.last = atomicAdd(&counters->batch, 1) == gridBlocks() - 1;
		fenceDevice();
	}
	blockSync();
	if (tables.last)
		for (u32 i = threadID(); i < t.count; i += blockThreads())
			publish(counters + i, countersNow(counters + i), t.results + i * sizeof(Counters), t.batch);
}

// tileShare and blockShare are those of pooled_batch.h, of the table that the block is at.
template <int N> INLINE void tileShare(const PoolArgs &, u64 &first, u64 &next)
{
	const Tables &s = tables;
	u32 tile = threadID() / N;
	u64 start = s.starts[s.at], end;
	first = s.first + (u64)tile * s.tileRows;
	end = tile == blockThreads() / N - 1 ? s.end : first + s.tileRows;
	bool has = first < start + maximum(s.rows(s.at), 1) && end > start;
	first = !has ? ~0ull : first > start ? first - start : 0;
	next = has ? end - start : 0;
}
INLINE void blockShare(u32 n, u32 &from, u32 &to)
{
	const Tables &s = tables;
	u64 start = s.starts[s.at], rows = s.rows(s.at);
	from = 0, to = n;
	if (rows == 0)
		return;
	from = s.first > start ? (u32)((s.first - start) * n / rows) : 0;
	to = s.end - start >= rows ? n : (u32)((s.end - start) * n / rows);
}

// nextTable returns the first table from i on that has some of the block's positions, or, if it has no rows, would begin at one. All lanes of a warp call it.
INLINE u32 nextTable(u32 count, u32 i)
{
	u64 first = tables.first, end = tables.end;
	for (; i < count; i += 32) {
		u32 at = i + laneID();
		bool has = false;
		if (at < count) {
			u32 start = tables.starts[at], rows = tables.rows(at);
			has = start < end && (rows == 0 ? start >= first : (u64)start + rows > first);
		}
		if (u32 found = ballot(~0u, has))
			return i + lowestBit(found);
	}
	return count;
}

// eachTable calls f for each table of which the block has a part, with tiles of N lanes.
template <int N, class F> INLINE void eachTable(const PooledTablesArgs &t, F f)
{
	openTables(t);
	if (threadID() == 0) { // the last block has all that is left: tables without rows may begin behind the last position
		u64 each = (u64)(blockThreads() / N) * tables.tileRows;
		tables.first = blockID() * each;
		tables.end = blockID() == gridBlocks() - 1 ? ~0ull : tables.first + each;
	}
	blockSync();
	for (u32 i = nextTable(t.count, 0); i < t.count; i = nextTable(t.count, i + 1)) {
		blockSync(); // the table before is done with
		readTable<true>(t, i);
		f(tables.table);
	}
	closeTables(t);
}
