#include "abi_absent.h"
#include "publish.h"

// Batches of tables whose host tier holds a part of the rows. The index says by a word that is no location that a row is absent; the kernels that
// fetch must not see such a word. So absentList reads the word of each miss, once, and lists the others with their words for the fetch, which
// takes those words for the index. Absent rows it lists in page-locked memory, where the host sees them while the fetch goes on. The host
// puts their stored form in page-locked staging memory, in rounds. absentWait waits for a round, which a fetch then writes to the output, with the staging
// memory as its host tier. absentEnd ends the batch.
//
// In a captured graph the kernel that replays lists absent rows itself: serve.cu. What follows is the same, but that absentWait lets the host know of
// the list, and that replays count themselves, as no host code runs before one.
//
// Nothing here waits without a limit. While absentWait waits, it is one warp that looks at the host's word now and then.

// nextOf returns, for the lanes with one, places that follow each other: the first is *counter's before the call.
INLINE u32 nextOf(u32 *counter, bool one)
{
	u32 lanes = ballot(~0u, one), first = 0;
	if (lanes == 0)
		return 0;
	if (laneID() == lowestBit(lanes))
		first = atomicAdd(counter, popcount(lanes));
	return laneFrom(first, lowestBit(lanes)) + popcount(lanes & ((1u << laneID()) - 1));
}

INLINE void listRow(u64 list, u32 at, u32x4 found) { *((u32x4 *)list + at) = u32x4{found.x, found.y, found.z, 0}; }

KERNEL void __launch_bounds__(256) absentList(const AbsentListArgs a)
{
	AbsentState *state = (AbsentState *)a.state;
	Counters *count = (Counters *)a.counters;
	u32 misses = count->misses, step = gridBlocks() * blockThreads();
	for (u32 first = blockID() * blockThreads() + (threadID() & ~31u); first < misses; first += step) { // whole warps
		u32 i = first + laneID();
		bool in = i < misses;
		u32x4 found = in ? loadConst((const u32x4 *)a.misses - i) : u32x4{0, 0, 0, 0};
		u64 row = (u64)found.y << 32 | found.x;
		u64 word = in ? loadDevice((const u64 *)a.index + row) : ~0ull;
		bool present = in && located(word), ahead = present && offsetAt(word) >= a.aheadFrom;
		u32 k = nextOf(&state->present, present);
		if (present) {
			((u64 *)a.words)[k] = word;
			*((u32x4 *)a.resolved - k) = u32x4{k, 0, found.z, found.w};
		}
		bool absent = in && !present && (i64)row != a.padding;
		k = nextOf(&state->absent, absent);
		if (absent)
			listRow(a.list, k, found);
		k = nextOf(&state->ahead, ahead);
		if (ahead)
			listRow(a.list, a.count - 1 - k, found);
	}
	blockSync();
	if (threadID() != 0)
		return;
	fenceSystem(); // the list is there before the word that says so
	if (atomicAdd(&state->ended, 1) != gridBlocks() - 1)
		return;
	fenceDevice();
	AbsentHost *host = (AbsentHost *)a.host;
	state->total = misses;
	state->hostBytes = 0;
	count->misses = loadDevice(&state->present);
	storeSystem(&host->ahead, (u64)a.batch << 32 | loadDevice(&state->ahead));
	fenceSystem();
	storeSystem(&host->listed, (u64)a.batch << 32 | loadDevice(&state->absent));
}

// absentWait waits for a round, and sets the batch's misses to its rows.
KERNEL void __launch_bounds__(32) absentWait(const AbsentWaitArgs a)
{
	if (threadID() != 0)
		return;
	AbsentState *state = (AbsentState *)a.state;
	AbsentHost *host = (AbsentHost *)a.host;
	Counters *count = (Counters *)a.counters;
	u32 batch = a.batch + (u32)state->replays;
	if (a.round == 0) {
		state->hostBytes = count->hostBytes;
		if (a.replay != 0 && state->absent != 0) {
			fenceSystem(); // the list is there before the word that says so
			storeSystem(&host->listed, (u64)batch << 32 | state->absent);
		}
	}
	count->misses = 0;
	if (state->absent == 0 || state->over != 0)
		return;
	if (a.round != 0)
		storeSystem(&host->consumed, (u64)batch << 32 | a.round);
	for (u64 since = nanos();; sleepNanos(1000)) {
		u64 word = loadSystem(&host->ready);
		u32 rounds = (u32)word & ~ABSENT_LAST;
		bool own = (u32)(word >> 32) == batch;
		if (own && rounds > a.round) {
			count->misses = loadSystem(&host->rows[a.round & 1]);
			return;
		}
		if (own && ((u32)word & ABSENT_LAST) != 0)
			break;
		if (nanos() - since > a.timeoutNanos) {
			storeSystem(&host->gaveUp, (u64)batch);
			break;
		}
	}
	state->over = 1;
}

// endReplayed notes the end of a replay, and readies counters and state for the next one.
INLINE void endReplayed(const AbsentWaitArgs &a, AbsentState *state, Counters *count)
{
	AbsentHost *host = (AbsentHost *)a.host;
	ReplayCounts *total = &((ReplayState *)a.replay)->counts;
	u32 corrupt = loadDevice(&count->corrupt);
	if (corrupt != 0) {
		total->corruptPosition = loadDevice(&count->corruptPosition);
		atomicAdd(&total->corrupt, corrupt);
	}
	u64 replays = state->replays + 1, read = state->read;
	*count = Counters{};
	*state = AbsentState{};
	state->replays = replays;
	state->read = read;
	storeSystem(&host->read, read);
	fenceSystem(); // what the replay has written and counted is there before the word that says that it has ended
	storeSystem(&host->replayed, replays);
}

// absentEnd publishes the batch's counters, and readies the state for the next batch.
KERNEL void __launch_bounds__(32) absentEnd(const AbsentWaitArgs a)
{
	if (threadID() != 0)
		return;
	AbsentState *state = (AbsentState *)a.state;
	Counters *count = (Counters *)a.counters;
	if (a.replay != 0) {
		endReplayed(a, state, count);
		return;
	}
	count->misses = state->total;
	count->hostBytes = state->hostBytes;
	*state = AbsentState{};
	fenceDevice();
	publish(count, countersNow(count), a.end.result, a.end.batch);
}
