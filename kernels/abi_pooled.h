// What Go and CUDA code share of batches whose rows are added up: see abi.h, of which this is a part.
#pragma once
#include "abi.h"

// A run is so many consecutive rows of a bag, and a group so many consecutive runs: see package reduce.
#define POOL_RUN 32
#define POOL_GROUP_RUNS 32
// PoolPartialHeader is the bytes in front of a run's sums in partials: how many rows the run has.
#define POOL_PARTIAL_HEADER 16
// PoolAhead is the number of rows that a tile has in shared memory, or on their way there.
#define POOL_AHEAD 4
// PoolEntries is the shared memory, in bytes, that a thread has for entries, PoolLane what it has of its tile's rows, and PoolTile what a tile has: see pooled_ahead.h.
// PoolStages is the number of rows that a tile has in shared memory while it decodes two of them, PoolRawStages that of tables without a codec, and PoolBytesStages
// that of pooled_bytes.cu.
#define POOL_ENTRIES 40
#define POOL_LANE 16
#define POOL_TILE 32
#define POOL_STAGES 6
#define POOL_RAW_STAGES 8
#define POOL_BYTES_STAGES 2

#define POOL_SUM 0
#define POOL_MEAN 1
#define POOL_MAX 2

#define POOL_FLOAT32 0
#define POOL_FLOAT16 1
#define POOL_BFLOAT16 2
#define POOL_E4M3 3
#define POOL_E5M2 4

// Scales of float8 values: none, powers of two of a byte each (e8m0), or float32.
#define FLOAT8_UNSCALED 0
#define FLOAT8_E8M0 1
#define FLOAT8_FLOAT32 2

// PoolArgs say how the rows of a batch are divided into bags, and what is written of each: see package reduce.
struct PoolArgs {
	u64 offsets;
	u64 weights;
	u64 partials;
	i64 padding;
	i64 stride;
	u32 bags;
	// Size is the rows of each bag, or 0 if offsets say. OffsetCount is bags, or one more.
	u32 size;
	u32 offsetCount;
	u32 columns;
	// A tile sums the runs that begin at so many positions.
	u32 tileRows;
	u32 partialStride;
	u32 mode;
	u32 element;
	u32 output;
	// Narrow says that offsets have 32 bits. Unit is the largest of 16, 8, 4 and 2 bytes by which outputs can be written.
	u32 narrow;
	u32 unit;
	// Begin is what offsets count from: position begin of theirs is the batch's first one.
	u32 begin;
	// Plain says that rows are summed, without weights, and are not of float16.
	u32 plain;
	u32 reserved;
};
ABI_SIZE(PoolArgs, 96);

// PooledArgs are a batch whose rows are added up. Serve's warpRows and part are not used, and its lookup's out receives the sums.
struct PooledArgs {
	ServeArgs serve;
	PoolArgs pool;
};
ABI_SIZE(PooledArgs, 408);

// Float8Args say what follows the float8 values of a row: a scale for each block of them, of so many pieces of 8 values. Factor is the bits of a float32 by
// which each element is multiplied.
struct Float8Args {
	u32 scales;
	u32 block;
	u32 factor;
	u32 reserved;
};
ABI_SIZE(Float8Args, 16);

// POOL_TABLES is the most tables whose rows one launch adds up, POOL_STARTS one more, and POOL_LEAST_ROWS the fewest positions that a tile is given.
#define POOL_TABLES 64
#define POOL_STARTS 65
#define POOL_LEAST_ROWS 8

// PooledTable is the batch of one table among those of a launch. Serve's result and batch are not used. In a captured graph state and views are as in
// ReplayArgs, and the state is counted in; otherwise view is what the batch reads by.
struct PooledTable {
	ServeArgs serve;
	PoolArgs pool;
	Float8Args float8;
	u64 state;
	u64 views;
	ReplayView view;
};
ABI_SIZE(PooledTable, 584);

// PooledTablesArgs are the batches of several tables that have one kernel, or one batch in a captured graph. Their positions are counted through, table after
// table. In a captured graph state is where its blocks announce themselves, of which a replay has so many in all its launches. Otherwise counters and
// results, page-locked memory, have a Counters for each table, and batch is the batch's number.
struct PooledTablesArgs {
	// Tables is an array of PooledTable. One is the table if count is 1.
	PooledTable one;
	u64 tables;
	u64 state;
	u64 counters;
	u64 results;
	u64 batch;
	// Offsets is 0: the positions of table i begin at starts[i]. Else its bags are those that offsets has from starts[i] on, so many bags, and its rows
	// those between its first offset and its last. All tables then have the same row numbers, limit of them.
	u64 offsets;
	u32 count;
	u32 blocks;
	u32 bags;
	u32 narrow;
	u32 limit;
	// Tiles is the number of the launch's tiles. Inside is as in PoolJoinArgs.
	u32 tiles;
	u32 inside;
	u32 starts[POOL_STARTS];
};
ABI_SIZE(PooledTablesArgs, 920);

// SumRowsArgs are rows of a batch that were written to memory, back to back, to be added up: those of positions base to end - 1, from mem on. The
// runs that begin at positions from to next - 1 are added, and end at end or before.
struct SumRowsArgs {
	PoolArgs pool;
	u64 out;
	// Rows are the row numbers of the batch, count of them, and limit is the table's length, unless views has it: others are left out. Narrow says that
	// they have 32 bits.
	u64 rows;
	i64 limit;
	u64 views;
	u64 mem;
	u32 rowBytes;
	u32 narrow;
	u32 count;
	u32 base;
	u32 end;
	u32 from;
	u32 next;
	// Added is the position of the first row of the batch whose Counters are at round: they are added to those at counters. Ending has a result if no
	// other rows follow. All are 0 in captured graphs, which have views: see ReplayArgs.
	u32 added;
	u64 round;
	u64 counters;
	BatchEnd ending;
	Float8Args float8;
};
ABI_SIZE(SumRowsArgs, 224);

// PoolOffsetsArgs are the offsets of a captured batch of so many rows, which has so many blocks.
struct PoolOffsetsArgs {
	PoolArgs pool;
	u64 state;
	u32 blocks;
	u32 count;
};
ABI_SIZE(PoolOffsetsArgs, 112);

// PoolJoinArgs are the bags of a batch with so many rows; those of several runs are joined. Inside says that those were written whose runs all begin in
// the positions of one tile, but for bags of several groups.
struct PoolJoinArgs {
	PoolArgs pool;
	u64 out;
	u32 rows;
	u32 inside;
};
ABI_SIZE(PoolJoinArgs, 112);

// GatherPoolArgs are uncompressed rows that are added up in bags of one size: what benchmarks compare with.
struct GatherPoolArgs {
	u64 mem;
	u64 rows;
	u64 out;
	u32 bags;
	u32 bag;
	u32 quads;
	// Bfloat16 says that elements are such, else they are float32.
	u32 bfloat16;
};
ABI_SIZE(GatherPoolArgs, 40);
