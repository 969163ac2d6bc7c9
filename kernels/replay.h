// A batch in a captured graph: see replay.cu.
#pragma once
#include "gpu.h"

// endReplay ends the replay that runs. c are its counters. One thread calls it, after it has seen all counting, and after all blocks have
// read their last.
INLINE void endReplay(ReplayState *state, const Counters &c, u64 words)
{
	u64x2 *zero = (u64x2 *)&state->counters;
#pragma unroll
	for (u32 i = 0; i < sizeof(Counters) / 16; i++)
		zero[i] = u64x2{0, 0};
	u64 n = state->begun;
	ReplayTotals t = state->totals[(n - 1) % REPLAY_KEPT];
	t.replays++;
	t.hits += c.hits;
	t.peers += c.peers;
	t.hostBytes += c.hostBytes;
#pragma unroll
	for (u32 k = 0; k < NUM_REASONS; k++)
		t.reasons[k] += c.reasons[k];
	if (c.corrupt != 0) {
		t.corrupt += c.corrupt;
		t.corruptPosition = c.corruptPosition;
	}
	if (c.outOfRange != 0) {
		t.outOfRange += c.outOfRange;
		t.firstOutOfRange = ~c.notFirst;
	}
	state->totals[n % REPLAY_KEPT] = t;
	fenceSystem();
	storeSystem(&((ReplayWords *)words)->ended, n);
}
