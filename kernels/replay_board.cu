#include "gpu.h"

// The kernels that run before and behind a replay of a client of a shared cache. They make it known on the client's board, which is host memory:
// there the owner sees it without a kernel of its own, which would have to wait for the client's. Plain stores suffice, as each word of a place has
// one writer at a time: replays of one captured batch follow each other.

// replayBegins announces a replay before it reads anything that the owner may withdraw. The fence is the other side of the owner's between
// withdrawing and reading the board: either the replay sees what replaced the withdrawn, or the owner sees the replay.
KERNEL void __launch_bounds__(32) replayBegins(const ReplayBoardArgs a)
{
	if (threadID() != 0)
		return;
	ReplayState *state = (ReplayState *)a.state;
	u64 n = loadDevice(&state->announced) + 1;
	state->announced = n;
	storeSystem(&((BoardCapture *)a.place)->begun, a.from + n);
	fenceSequentialSystem();
}

// from64 returns x of a lane of the warp.
INLINE u64 from64(u64 x, u32 lane) { return (u64)laneFrom((u32)(x >> 32), lane) << 32 | laneFrom((u32)x, lane); }

// replayEnds counts a replay and notes its end, both by the store of ended: so a client that is killed at any moment leaves it counted as a whole
// or not at all. Lanes 0 to 8 have a word of the copy each; they are loaded at once.
KERNEL void __launch_bounds__(32) replayEnds(const ReplayBoardArgs a)
{
	constexpr u32 HITS = 1, PEERS = 2, REASONS = 4, WORDS = REASONS + NUM_REASONS, BEFORE = WORDS + 1;
	static_assert(__builtin_offsetof(ReplayState, counts.peers) == PEERS * 8 && __builtin_offsetof(ReplayState, counts.reasons) == REASONS * 8 && WORDS < 16,
		      "the copy has the state's order");
	ReplayState *state = (ReplayState *)a.state;
	BoardCapture *place = (BoardCapture *)a.place;
	u32 lane = laneID();
	const u64 *at = lane == 0 ? &state->announced : lane == HITS ? &state->hits : lane == WORDS ? &state->counts.outOfRange : &state->others;
	u64 word = loadDevice(lane >= PEERS && lane < WORDS ? (const u64 *)state + lane : at);
	u64 number = a.from + from64(word, 0), hits = from64(word, HITS), others = 0;
#pragma unroll
	for (u32 i = REASONS; i <= WORDS; i++)
		others += from64(word, i);
	u64 more = others - from64(word, BEFORE); // of a pooled batch also bad offsets: it can be more than the rows
	hits += more < a.rows ? a.rows - more : 0;
	if (lane < WORDS)
		storeSystem(&place->copies[number % 2 * 16 + lane], lane == HITS ? hits : word);
	warpSync(~0u);
	if (lane == 0) {
		state->hits = hits;
		state->others = others;
		fenceSystem();
		storeSystem(&place->ended, number);
	}
}
