#include "hash.h"

// The first kernel of a batch in a captured graph. A replay begins without host code, so the GPU itself announces it: it stores the replay's
// number to a word in page-locked memory, and only then reads which map, slabs and host tier there are. Whoever withdraws something waits for
// replays whose word says that they run. So either the replay sees what has replaced the withdrawn, or the other side sees the replay. Both
// sides need a sequentially consistent fence between their store and their load. The arguments that follow go to device memory, where the
// next kernel reads them. One block.
constexpr u32 THREADS = 32;

KERNEL void __launch_bounds__(32) replayBegin(const ReplayBeginArgs a)
{
	ReplayState *state = (ReplayState *)a.state;
	u32 tid = threadID();
	__shared__ u64 number;
	if (tid == 0) {
		u64 n = state->begun + 1;
		state->begun = n;
		storeSystem(&((ReplayWords *)a.serve.result)->begun, n);
		fenceSequential();
		number = n;
	}
	// What does not change. The indices are constants: the arguments cannot be indexed by a register.
	constexpr u32 WORDS = sizeof(ServeArgs) / 8;
	static_assert(sizeof(ServeArgs) % 8 == 0, "words");
	const u64 *from = (const u64 *)&a.serve;
	u64 *to = (u64 *)&state->serve;
#pragma unroll
	for (u32 i = 0; i < WORDS; i++)
		if (tid == i % THREADS)
			to[i] = from[i];
	blockSync();
	// Every thread reads the same few words.
	const ReplayView *v = (const ReplayView *)loadDevice((const u64 *)a.view);
	ServeArgs *s = &state->serve;
	if (tid < MAX_SLABS)
		s->slabs[tid] = loadDevice(v->slabs + tid);
	else if (tid < MAX_SLABS + 5)
		((u64 *)&s->tier)[tid - MAX_SLABS] = loadDevice((const u64 *)&v->tier + (tid - MAX_SLABS));
	else if (tid == 16)
		s->lookup.map = loadDevice(&v->map);
	else if (tid == 17)
		s->lookup.rejected = loadDevice(&v->rejected);
	else if (tid == 18)
		s->lookup.oversize = loadDevice(&v->oversize);
	else if (tid == 19)
		s->lookup.limit = (i64)loadDevice((const u64 *)&v->limit);
	else if (tid == 20) {
		u64 both = loadDevice((const u64 *)&v->buckets);
		s->lookup.buckets = (u32)both;
		s->lookup.peers = (u16)(both >> 32);
	} else if (tid == 21)
		s->lookup.samples.accessSeed = hashOf(a.serve.lookup.samples.accessSeed + number);
}
