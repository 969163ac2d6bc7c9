#include "gpu.h"

// Copies the states of captured batches to page-locked memory, a warp each. A copy's counts include all that the replays have counted that it
// says have ended, and it says of no replay that it had ended but not begun. What these replays have written is seen by who sees the copy. The
// fence is the other side's of replay.h: what was withdrawn before the launch is seen by all replays that a copy says have not begun.
KERNEL void __launch_bounds__(256) replayLook(const ReplayLookArgs a)
{
	constexpr u32 WORDS = sizeof(ReplayState) / 8;
	static_assert(WORDS <= 32, "a word a lane");
	u32 lane = laneID();
	fenceSequential();
	for (u32 i = threadID() / 32; i < a.count; i += blockThreads() / 32) {
		const ReplayState *state = (const ReplayState *)a.states + i;
		u64 ended = loadSystem(&state->ended);
		warpSync(~0u);
		if (lane >= WORDS)
			continue;
		const u64 *from = (const u64 *)state + lane;
		((u64 *)((ReplayState *)a.copies + i))[lane] = from == &state->ended ? ended : loadDevice(from);
	}
	fenceSystem();
}
