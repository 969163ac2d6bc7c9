// The tables of one launch: which positions are whose, and the arguments of the table that a block is at. The positions of all tables are counted through,
// and divided over the blocks, so a block may have a part of a table, or of several, one after the other.
#pragma once
#include "pooled.h"
#include "publish.h"
#include "replay.h"

static_assert(POOL_STARTS == POOL_TABLES + 1, "");

// Tables is in shared memory.
struct Tables {
	PooledTable table; // that the block is at, with what its batch has among the others' filled in
	u64 version;       // of the view in it, if there is only one table
	u64 latest;        // what it must be
	u64 number;        // of the replay, from 0 on
	u32 last;          // whether the block is the last one to end
	// Table i has the positions from starts[i] on, and begins[i] is what its offsets count from.
	u32 starts[POOL_STARTS], begins[POOL_TABLES];

	INLINE u32 rows(u32 i) const { return starts[i + 1] - starts[i]; }
};

// from64 returns x of a lane of the warp.
INLINE u64 laneFrom64(u64 x, u32 lane) { return (u64)laneFrom((u32)(x >> 32), lane) << 32 | laneFrom((u32)x, lane); }

// findStarts fills in where tables begin. A warp calls it. If offsets are out of order, tables have fewer rows, and none has any outside the limit.
INLINE void findStarts(const PooledTablesArgs &t, Tables &s)
{
	if (t.offsets == 0) {
		for (u32 i = laneID(); i <= t.count; i += 32)
			s.starts[i] = t.starts[i];
		for (u32 i = laneID(); i < t.count; i += 32)
			s.begins[i] = 0;
		return;
	}
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
		before = laneFrom64(through, 31);
	}
	if (laneID() == 0)
		s.starts[0] = 0;
}

// openTables prepares the block; of a captured graph it announces it: see replay.h.
INLINE void openTables(const PooledTablesArgs &t, Tables &s)
{
	u32 warp = threadID() / 32, last = blockThreads() / 32 - 1;
	if (t.state != 0 && warp == last && laneID() == 0) {
		u64 before = atomicFetchAdd(&((ReplayState *)t.state)->begun, 1);
		fenceSequential();
		s.number = before / t.blocks;
		if (t.count == 1)
			s.latest = loadSystem(&((const ReplayViews *)t.one.views)->version);
	}
	if (t.state != 0 && t.count == 1 && warp == (last == 0 ? 0 : last - 1)) {
		const ReplayViews *views = (const ReplayViews *)t.one.views;
		u64 version = loadSame(&views->version);
		readView(views, version, &s.table.view);
		if (laneID() == 0)
			s.version = version;
	}
	if (warp == 0)
		findStarts(t, s);
	blockSync();
}

// nextTable returns the first table from i on that has some of the positions from first to end - 1, or, if it has no rows, would begin there. All lanes of a warp
// call it.
INLINE u32 nextTable(const PooledTablesArgs &t, const Tables &s, u32 i, u64 first, u64 end)
{
	for (; i < t.count; i += 32) {
		u32 at = i + laneID();
		bool has = false;
		if (at < t.count) {
			u32 start = s.starts[at], rows = s.rows(at);
			has = start < end && (rows == 0 ? start >= first : (u64)start + rows > first);
		}
		if (u32 found = ballot(~0u, has))
			return i + lowestBit(found);
	}
	return t.count;
}

// readTable reads the arguments of a table; VIEW says whether what it reads by, too. All threads call it when they are done with the table before.
template <bool VIEW> INLINE void readTable(const PooledTablesArgs &t, Tables &s, u32 i)
{
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
		l.rows += (u64)begin * (l.table & INT32_ROWS ? 4 : 8);
		l.count = s.rows(i);
		p.begin = begin;
		p.weights += p.weights != 0 ? (u64)begin * 4 : 0;
		p.partials += ((u64)s.starts[i] / POOL_RUN + i) * 2 * p.partialStride;
	}
	blockSync();
}

// closeTables ends the block. The last one publishes what was counted for each table.
INLINE void closeTables(const PooledTablesArgs &t, Tables &s)
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
		s.last = atomicAdd(&counters->batch, 1) == gridBlocks() - 1;
		fenceDevice();
	}
	blockSync();
	if (s.last)
		for (u32 i = threadID(); i < t.count; i += blockThreads())
			publish(counters + i, countersNow(counters + i), t.results + i * sizeof(Counters), t.batch);
}
