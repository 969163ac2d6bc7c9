#include "pooled_tables.h"

// Adds up the runs of bags that have several: the sums of the runs lie in partials. A warp takes 32 columns of a bag at a time, a lane each: this one is the
// given one of so many. The batch has so many rows, and its output goes to an address. Inside says that those bags were written whose runs all begin in the
// positions of one tile, but for bags of several groups; the tiles' positions are counted from before positions before the batch's.
INLINE void join(const PoolArgs &p, u32 rows, u64 to, u32 inside, u32 before, u32 warp, u32 warps)
{
	u32 lane = laneID(), parts = (p.columns + 31) / 32;
	u64 work = (u64)p.bags * parts;
	for (u64 w = warp; w < work; w += warps) {
		u32 bag = (u32)(w / parts), column = (u32)(w % parts) * 32 + lane;
		u32 start = startOf(p, rows, bag), end = startOf(p, rows, bag + 1);
		if (end <= start || end - start <= POOL_RUN)
			continue;
		u32 last = start + (end - start - 1) / POOL_RUN * POOL_RUN; // where the last run begins
		if (inside != 0 && end - start <= POOL_RUN * POOL_GROUP_RUNS && (before + start) / p.tileRows == (before + last) / p.tileRows)
			continue;
		u32 count = 0, groups = 0;
		float total = 0, group = 0;
		bool in = column < p.columns, greatest = p.mode == POOL_MAX;
		for (u32 at = start; at < end; at += POOL_RUN * POOL_GROUP_RUNS) {
			u32 runs = 0;
#pragma unroll 4
			for (u32 k = 0; k < POOL_GROUP_RUNS; k++) {
				u32 run = at + k * POOL_RUN;
				if (run >= end)
					break;
				const u8 *place = placeOf(p, run, end - run <= POOL_RUN);
				u32 n = loadConst((const u32 *)place);
				if (n == 0)
					continue;
				float x = in ? asFloat(loadConst((const u32 *)(place + POOL_PARTIAL_HEADER) + column)) : 0;
				group = runs == 0 ? x : greatest ? (x > group ? x : group) : sumOf(group, x);
				count += n;
				runs++;
			}
			if (runs != 0) {
				total = groups == 0 ? group : greatest ? (group > total ? group : total) : sumOf(total, group);
				groups++;
			}
		}
		if (!in)
			continue;
		if (p.mode == POOL_MEAN && count > 1)
			total = quotientOf(total, (float)count);
		u8 *out = (u8 *)to + (u64)bag * p.stride;
		if (p.output == POOL_FLOAT32)
			storeFar((u32 *)out + column, total != total ? 0x7fc00000 : bitsOf(total));
		else
			storeFar((u16 *)out + column, (u16)rounded(total, p.output));
	}
}

KERNEL void __launch_bounds__(256) poolJoin(const PoolJoinArgs a)
{
	join(a.pool, a.rows, a.out, a.inside, 0, (blockID() * blockThreads() + threadID()) / 32, gridBlocks() * (blockThreads() / 32));
}

// poolJoinTables is poolJoin for the tables of a launch. Each block takes one: there are as many blocks for each.
KERNEL void __launch_bounds__(256) poolJoinTables(const PooledTablesArgs t)
{
	u32 table = blockID() % t.count, warps = blockThreads() / 32;
	if (threadID() < 32)
		findStarts(t);
	blockSync();
	readTable<false>(t, table);
	const LookupArgs &l = tables.table.serve.lookup;
	join(tables.table.pool, l.count, l.out, t.inside, tables.starts[table], blockID() / t.count * warps + threadID() / 32, gridBlocks() / t.count * warps);
}
