// Stacks of lanes, 64 KiB each, kept for later blocks. The page below a stack cannot be reached, so that a lane whose stack is too small faults.
#include "block.h"

#include <cstring>
#include <sys/mman.h>

namespace emulator {

static constexpr uint64_t PAGE = 4096, STACK = 64 << 10;

static std::mutex mu;
static std::vector<uint8_t *> unused; // the ends of stacks. guarded by mu
static std::set<uint64_t> guards;     // the pages below stacks. guarded by mu

// A guarded stack takes two mappings, of which Linux allows a process 65,530. Where many streams run wide blocks at once, further stacks
// have no guard.
static constexpr size_t GUARDS = 16384;

// takeLocked returns the end of a stack. Ends differ in their place in a page: else all would use one set of the processor's cache.
static uint8_t *takeLocked()
{
	if (unused.empty()) {
		constexpr int n = 256;
		uint8_t *p = mapPages(n * (STACK + PAGE), PROT_READ | PROT_WRITE);
		for (int i = 0; i < n; i++) {
			uint8_t *guard = p + (uint64_t)i * (STACK + PAGE);
			if (guards.size() < GUARDS && mprotect(guard, PAGE, PROT_NONE) == 0)
				guards.insert((uint64_t)guard);
			unused.push_back(guard + PAGE + STACK - (uint64_t)(i % 16) * 192);
		}
	}
	uint8_t *s = unused.back();
	unused.pop_back();
	return s;
}

void takeStacks(Block *b)
{
	std::lock_guard<std::mutex> lock(mu);
	while (b->stacks.size() < b->lanes)
		b->stacks.push_back(takeLocked());
}

void giveStacks(Block *b)
{
	std::lock_guard<std::mutex> lock(mu);
	unused.insert(unused.end(), b->stacks.rbegin(), b->stacks.rend());
	b->stacks.clear();
}

bool beyondStack(uint64_t address)
{
	std::lock_guard<std::mutex> lock(mu);
	return guards.count(address / PAGE * PAGE) != 0;
}

void start(Lane &l, const Launch &launch)
{
	uint64_t bytes = launch.arguments.size() * 8;
	uint64_t *sp = (uint64_t *)(l.block->stacks[l.self.thread] - (bytes + 15) / 16 * 16);
	uint64_t registers[2] = {};
	if (bytes <= 16)
		memcpy(registers, launch.arguments.data(), bytes);
	else
		memcpy(sp, launch.arguments.data(), bytes);
	*--sp = (uint64_t)&emulator_end;
	*--sp = (uint64_t)&emulator_begin;
	*--sp = 0;                                       // rbp
	*--sp = (uint64_t)launch.function->code;         // rbx
	*--sp = registers[0], *--sp = registers[1];      // r12, r13
	*--sp = 0, *--sp = 0;                            // r14, r15
	l.sp = sp;
}

} // namespace emulator
