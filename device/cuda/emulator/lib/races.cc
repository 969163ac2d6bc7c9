// The search for races in shared memory: two lanes access a byte, one of them writes it, and nothing orders the two accesses. Modules that
// are built with EMULATOR_RACES report their accesses (accesses.cc). A race ends the launch.
//
// What orders accesses:
//   - A barrier of the block orders the accesses of all lanes before it with those after it; warpSync does so for the lanes that it names.
//   - Votes, shuffles and scans order nothing: on a GPU they exchange registers, and memory may be seen later. The emulator cannot show
//     that by wrong results: here a lane that returns from one sees all that the others wrote before.
//   - An asynchronous copy writes its bytes at any time until the lane that issued it has waited for its group. Until then no barrier
//     orders it, and the issuing lane's own accesses race with it too. When the lane has waited, the copy counts as a write of that
//     lane at that time, so other lanes need a barrier after the wait.
//   - Atomic operations are not looked at.
//
// How: for each byte of a block's shared memory the last writer and the last readers are kept, each with the times of its access. There
// are two clocks: the barriers of the block that have been passed (epoch), and those of the warp that the lane has passed (clock).
// Clock.seen[i] is the clock of lane i of the warp up to which its accesses are ordered before what the clock's owner does now.
#include "block.h"

#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>

namespace emulator {

struct Access {
	uint32_t epoch, clock; // epoch 0: no access
	uint16_t thread;
	uint16_t pending; // 1: an asynchronous copy that its lane has not waited for
};

// A reader takes the place of one that it is ordered after, so that few are kept. Of more than three that are not ordered, one is forgotten.
constexpr int READERS = 3;
struct Byte {
	Access writer, reader[READERS];
};

struct Clock {
	uint32_t now, seen[32];
};

// Races is what is known of the accesses to a block's shared memory. It stays with the memory, for the blocks that get it later:
// accesses of epochs before first are of earlier blocks.
struct Races {
	uint32_t epoch = 0, first = 0, turn = 0;
	std::vector<Clock> clock; // by thread
	Byte *bytes;
};

// ordered says whether an access comes before all that the lane does now.
static bool ordered(const Races &r, const Access &before, const Lane &lane)
{
	if (before.epoch < r.first)
		return true;
	if (before.pending)
		return false;
	if (before.epoch != r.epoch || before.thread == lane.self.thread)
		return true;
	return before.thread / 32 == lane.self.thread / 32 && r.clock[lane.self.thread].seen[before.thread % 32] >= before.clock;
}

[[noreturn]] static void report(const Block &b, uint64_t at, const char *what, const char *whatBefore, const Access &before, const void *code)
{
	Dl_info info;
	std::string place = "?";
	if (dladdr(code, &info) != 0)
		place = text("%s+%#llx", info.dli_fname, (unsigned long long)((const char *)code - (const char *)info.dli_fbase));
	uint64_t dynamic = (uint64_t)(b.dynamic - b.shared);
	std::string where = at >= dynamic ? text("byte %llu of dynamic shared memory", (unsigned long long)(at - dynamic)) :
					    text("shared variable, at %#llx", (unsigned long long)at);
	std::string earlier = before.pending ? text("a copy that thread %u has not waited for", before.thread) :
					       text("a %s by thread %u, without a barrier between", whatBefore, before.thread);
	fault(CUDA_ERROR_LAUNCH_FAILED, text("race: %s of %s, after %s, at %s", what, where.c_str(), earlier.c_str(), place.c_str()));
}

static void touch(Lane *l, uint64_t at, uint32_t bytes, bool write, bool pending, const void *code)
{
	Block *b = l->block;
	Races *r = b->races;
	const Access own{r->epoch, r->clock[l->self.thread].now, (uint16_t)l->self.thread, pending};
	const char *what = pending ? "copy" : write ? "write" : "read";
	for (Byte *x = r->bytes + at; bytes > 0; bytes--, x++, at++) {
		if (!ordered(*r, x->writer, *l))
			report(*b, at, what, "write", x->writer, code);
		int place = -1;
		for (int i = 0; i < READERS; i++) {
			if (!ordered(*r, x->reader[i], *l)) {
				if (write)
					report(*b, at, what, "read", x->reader[i], code);
			} else if (write) {
				x->reader[i].epoch = 0;
			} else {
				place = i;
			}
		}
		if (write)
			x->writer = own;
		else
			x->reader[place >= 0 ? place : (int)(r->turn++ % READERS)] = own;
	}
}

void racesBegin(Block *b, bool reported)
{
	if (b->races == nullptr) {
		if (!reported)
			return;
		b->races = new Races;
		b->races->bytes = (Byte *)mapPages(sharedSpan() * sizeof(Byte), PROT_READ | PROT_WRITE);
	}
	Races *r = b->races;
	r->first = ++r->epoch;
	if (r->clock.size() < b->lanes)
		r->clock.resize(b->lanes, Clock{1, {}});
}

void racesBarrier(Block *b)
{
	if (b->races != nullptr)
		b->races->epoch++;
}

void racesSync(Block *b, uint32_t w, uint32_t lanes)
{
	if (b->races == nullptr)
		return;
	Clock *clock = b->races->clock.data() + w * 32;
	uint32_t all[32] = {};
	for (uint32_t left = lanes; left != 0; left &= left - 1) {
		const Clock &c = clock[__builtin_ctz(left)];
		for (int i = 0; i < 32; i++)
			all[i] = c.seen[i] > all[i] ? c.seen[i] : all[i];
	}
	for (uint32_t left = lanes; left != 0; left &= left - 1)
		all[__builtin_ctz(left)] = clock[__builtin_ctz(left)].now;
	for (uint32_t left = lanes; left != 0; left &= left - 1) {
		Clock &c = clock[__builtin_ctz(left)];
		memcpy(c.seen, all, sizeof all);
		c.now++;
	}
}

void racesCopy(Lane *l, const void *to, uint32_t bytes, const void *code)
{
	if (l->block->races != nullptr)
		touch(l, (uint64_t)to - (uint64_t)l->block->shared, bytes, true, true, code);
}

void racesCopied(Lane *l, const void *to, uint32_t bytes)
{
	Races *r = l->block->races;
	if (r == nullptr)
		return;
	Byte *x = r->bytes + ((uint64_t)to - (uint64_t)l->block->shared);
	for (; bytes > 0; bytes--, x++)
		x->writer = Access{r->epoch, r->clock[l->self.thread].now, (uint16_t)l->self.thread, 0};
}

} // namespace emulator

using namespace emulator;

EXPORT void emulatedAccess(const void *p, unsigned bytes, int write, const void *code)
{
	Lane *l = currentRunner->lane;
	uint64_t at = (uint64_t)p - (uint64_t)l->block->shared;
	if (at < sharedSpan())
		touch(l, at, bytes, write != 0, false, code);
}
