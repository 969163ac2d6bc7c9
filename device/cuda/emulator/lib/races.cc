// Races in shared memory: two lanes access a byte, one of them writes it, and no barrier is between. Modules built with EMULATOR_RACES say
// what they access (accesses.cc). A race ends the launch.
//
// Barriers of the block order the accesses of all lanes, and warpSync those of the lanes that it names. Votes, shuffles and scans order
// none: on a GPU they exchange registers, and memory may be seen later. Here a lane that returns from one sees all that the others wrote
// before, so that no order in which lanes run would show what is missing.
//
// A lane counts its barriers of the warp: its clock. seen[i] is the clock up to which it has seen what lane i of its warp did. Asynchronous
// copies are writes from their start until their lane has waited for them. Atomic operations are not looked at.
#include "block.h"

#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>

namespace emulator {

struct Access {
	uint32_t epoch, clock; // barriers of the block, and of the lane's warp; epoch 0: none
	uint16_t thread;
	uint16_t pending; // 1: an asynchronous copy that has not been waited for
};

// A reader takes the place of those that it has seen, so that few are kept. Of more than three that have not seen each other, one is forgotten.
constexpr int READERS = 3;
struct Byte {
	Access writer, reader[READERS];
};

struct Clock {
	uint32_t now, seen[32];
};

struct Races {
	uint32_t epoch = 1, turn = 0;
	std::vector<Clock> clock;
	Byte *bytes; // of the block's shared memory
};

static bool ordered(const Races &r, const Access &before, const Lane &lane)
{
	if (before.epoch != r.epoch)
		return true;
	if (before.thread == lane.self.thread)
		return !before.pending;
	return !before.pending && before.thread / 32 == lane.self.thread / 32 && r.clock[lane.self.thread].seen[before.thread % 32] >= before.clock;
}

[[noreturn]] static void report(const Block &b, uint64_t at, const char *what, const char *whatBefore, const Access &before, const void *code)
{
	Dl_info info;
	std::string place = "?";
	if (code != nullptr && dladdr(code, &info) != 0)
		place = text("%s+%#llx", info.dli_fname, (unsigned long long)((const char *)code - (const char *)info.dli_fbase));
	uint64_t dynamic = (uint64_t)(b.dynamic - b.shared);
	std::string where = at >= dynamic ? text("byte %llu of dynamic shared memory", (unsigned long long)(at - dynamic)) :
					    text("shared variable, at %#llx", (unsigned long long)at);
	fault(CUDA_ERROR_LAUNCH_FAILED, text("race: %s of %s, after a %s%s by thread %u, without a barrier between, at %s", what, where.c_str(), whatBefore,
					     before.pending ? " that has not been waited for" : "", before.thread, place.c_str()));
}

static Races *racesOf(Block *b)
{
	if (b->races == nullptr) {
		b->races = new Races;
		void *p = mmap(nullptr, sharedSpan() * sizeof(Byte), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (p == MAP_FAILED) {
			say("no memory to look for races");
			abort();
		}
		b->races->bytes = (Byte *)p;
	}
	if (b->races->clock.size() < b->lanes)
		b->races->clock.resize(b->lanes, Clock{1, {}});
	return b->races;
}

static void touch(Lane *l, uint64_t at, uint32_t bytes, bool write, bool pending, const void *code)
{
	Block *b = l->block;
	Races *r = racesOf(b);
	const Access own{r->epoch, r->clock[l->self.thread].now, (uint16_t)l->self.thread, pending};
	const char *what = pending ? "copy" : write ? "write" : "read";
	for (Byte *x = r->bytes + at; bytes > 0; bytes--, x++, at++) {
		if (!ordered(*r, x->writer, *l))
			report(*b, at, what, x->writer.pending ? "copy" : "write", x->writer, code);
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

void racesSync(Block *b, uint32_t w, uint32_t lanes)
{
	if (b->races == nullptr)
		return;
	Clock *clock = racesOf(b)->clock.data() + w * 32;
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

void racesBarrier(Block *b)
{
	if (b->races != nullptr)
		b->races->epoch++;
}

void racesCopy(Lane *l, const void *to, uint32_t bytes, bool done)
{
	if (l->block->races == nullptr) // no access of this block has been told of yet
		return;
	if (!done) {
		touch(l, (uint64_t)to - (uint64_t)l->block->shared, bytes, true, true, nullptr);
		return;
	}
	Races *r = l->block->races;
	Byte *x = r->bytes + ((uint64_t)to - (uint64_t)l->block->shared);
	for (; bytes > 0; bytes--, x++)
		x->writer = Access{r->epoch, r->clock[l->self.thread].now, (uint16_t)l->self.thread, 0};
}

} // namespace emulator

using namespace emulator;

EXPORT void emulatedAccess(const void *p, unsigned bytes, int write, const void *code)
{
	Lane *l = runner()->lane;
	uint64_t at = (uint64_t)p - (uint64_t)l->block->shared;
	if (at < sharedSpan())
		touch(l, at, bytes, write != 0, false, code);
}
