// What Go and CUDA code share of batches of tables whose host tier holds a part of the rows: see AbsentBatch.
#pragma once
#include "abi.h"

// AbsentHost is page-locked memory by which a GPU and the host agree on the absent rows of one batch at a time. Words that name a batch have the
// lower half of its number in bits 63:32. Each side writes lines of its own.
struct AbsentHost {
	// Listed names the batch whose list is complete, and the rows that are absent, at the list's front. Ahead are those at its back, which lie where
	// the host tier has rows that were read ahead.
	u64 listed;
	u64 ahead;
	// Consumed names a batch and the rounds of it whose rows have been written to the output.
	u64 consumed;
	// GaveUp is the number of the last batch for which the GPU waited too long. The host sets it to an earlier number before each batch of a lane.
	u64 gaveUp;
	// Replayed is the number of the last replay of a captured batch that has ended, and read how many rows its replays have found where the host tier
	// has rows that were read ahead.
	u64 replayed;
	u64 read;
	u64 reserved1[10];
	// Ready names a batch and the rounds of it whose rows are in the staging memory; ABSENT_LAST says that there are no more. Rows are the rows of an
	// even and of an odd round. Both are the host's.
	u64 ready;
	u32 rows[2];
	u64 reserved2[14];
};
ABI_SIZE(AbsentHost, 256);

#define ABSENT_LAST 0x80000000

// AbsentState is what the kernels of one batch leave for each other in device memory. It is zero between batches, but for replays and read, which are as in
// AbsentHost.
struct AbsentState {
	u32 present;
	u32 absent;
	u32 ahead;
	// Ended counts the blocks of the listing that have ended.
	u32 ended;
	// Total is the batch's misses, and over says that no more rows arrive.
	u32 total;
	u32 over;
	u64 hostBytes;
	u64 replays;
	u64 read;
};
ABI_SIZE(AbsentState, 48);

// AbsentListArgs are the misses of a batch, which lie from misses downwards, and what is known of them then: present ones from resolved downwards,
// each with the number of its word in words. From aheadFrom on the host tier has rows that were read ahead. List has room for
// count rows. The row of number padding is not listed where it is absent.
struct AbsentListArgs {
	u64 misses;
	u64 counters;
	u64 index;
	u64 resolved;
	u64 words;
	u64 list;
	u64 host;
	u64 state;
	u64 aheadFrom;
	i64 padding;
	u32 batch;
	u32 count;
};
ABI_SIZE(AbsentListArgs, 88);

// AbsentWaitArgs are one round of a batch's absent rows: of the waiting for it, and, in the round behind the last one, of the batch's end. Of a captured
// batch, batch is the number of its first replay, and replay its ReplayState; else that is 0.
struct AbsentWaitArgs {
	u64 counters;
	u64 host;
	u64 state;
	u64 timeoutNanos;
	BatchEnd end;
	u64 replay;
	u32 batch;
	u32 round;
};
ABI_SIZE(AbsentWaitArgs, 72);

// ReplayAbsent is where a replay lists absent rows: in list, which has room for count rows, and counts them in state. Ahead has room for as many row numbers:
// those of the last rows that it found from aheadFrom on in the host tier. List is 0 for a table of which the host tier has all rows.
struct ReplayAbsent {
	u64 state;
	u64 list;
	u64 ahead;
	u64 aheadFrom;
	u32 count;
	u32 reserved;
};
ABI_SIZE(ReplayAbsent, 40);

// ReplayRowsArgs are a batch in a captured graph whose rows are written.
struct ReplayRowsArgs {
	ReplayArgs replay;
	ReplayAbsent absent;
};
ABI_SIZE(ReplayRowsArgs, 376);
