// The pool of blocks: their shared memory and lanes are kept for later ones.
#include "block.h"

#include <sys/mman.h>

namespace emulator {

static std::mutex mu;
static std::vector<Block *> unused; // guarded by mu

uint8_t *mapPages(uint64_t bytes, int access)
{
	void *p = mmap(nullptr, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		say("no memory for blocks");
		abort();
	}
	return (uint8_t *)p;
}

static Block *takeUnused()
{
	std::lock_guard<std::mutex> lock(mu);
	if (unused.empty())
		return nullptr;
	Block *b = unused.back();
	unused.pop_back();
	return b;
}

Block *takeBlock(uint32_t lanes)
{
	Block *b = takeUnused();
	if (b == nullptr) {
		b = new Block;
		b->shared = mapShared();
	}
	b->lanes = lanes;
	takeStacks(b);
	return b;
}

void giveBlock(Block *b)
{
	giveStacks(b); // the next block may be of other threads, and a thousand of them
	std::lock_guard<std::mutex> lock(mu);
	unused.push_back(b);
}

} // namespace emulator
