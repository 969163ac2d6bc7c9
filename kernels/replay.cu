#include "gpu.h"

// Copies the states of captured batches to page-locked memory, a warp each. A copy's counts include all that the replays have counted that it, or a copy
// before it, says have ended, and it says of no replay that it had ended but not begun. What these replays have written is seen by who sees the copy. The
// fence is the other side's of replay.h: what was withdrawn before the launch is seen by all replays that a copy says have not begun.
KERNEL void __launch_bounds__(256) replayLook(const ReplayLookArgs a)
{
	constexpr u32 WORDS = sizeof(ReplayState) / 8, AT_ONCE = 32;
	static_assert(WORDS <= 32, "a word a lane");
	__shared__ u64 ended[AT_ONCE];
	u32 lane = laneID();
	fenceSequential();
	for (u32 first = 0; first < a.count; first += AT_ONCE) {
		const ReplayState *states = (const ReplayState *)a.states + first;
		u32 count = minimum(a.count - first, AT_ONCE);
		if (threadID() < count)
			ended[threadID()] = loadSystem(&states[threadID()].ended);
		blockSync();
		for (u32 i = threadID() / 32; i < count && lane < WORDS; i += blockThreads() / 32) {
			const u64 *from = (const u64 *)&states[i] + lane;
			((u64 *)((ReplayState *)a.copies + first + i))[lane] = from == &states[i].ended ? ended[i] : loadDevice(from);
		}
		blockSync();
	}
	fenceSystem();
}
