// Shared memory of blocks. Its variables are thread-local ones to the compiler (-femulated-tls), which calls for their addresses: the calls come to
// emulatedVariable through dynamic.S. Each variable, and the dynamic part, ends where a page begins that cannot be reached.
#include "block.h"

#include <cstring>
#include <sys/mman.h>

namespace emulator {

// 16 variables of up to 44 KiB each, then up to 227 KiB for the dynamic part.
static constexpr uint64_t PAGE = 4096, VARIABLES = 16, VARIABLE = 48 << 10, DYNAMIC = VARIABLES * VARIABLE + PAGE, SHARED = DYNAMIC + (256 << 10);
static constexpr uint8_t UNWRITTEN = 0xa7; // the bytes of shared memory when a block begins

uint64_t sharedSpan() { return SHARED; }

uint8_t *mapShared()
{
	uint8_t *shared = mapPages(SHARED, PROT_NONE);
	for (uint64_t i = 0; i < VARIABLES; i++)
		mprotect(shared + i * VARIABLE, VARIABLE - PAGE, PROT_READ | PROT_WRITE);
	mprotect(shared + DYNAMIC, SHARED - DYNAMIC - PAGE, PROT_READ | PROT_WRITE);
	return shared;
}

void prepareShared(Block *b, uint32_t dynamicBytes)
{
	b->dynamicBytes = (dynamicBytes + 15) / 16 * 16;
	b->dynamic = b->shared + SHARED - PAGE - b->dynamicBytes;
	memset(b->dynamic, UNWRITTEN, b->dynamicBytes);
	b->variables.clear();
}

} // namespace emulator

using namespace emulator;

// Control is what the compiler knows of a shared variable.
struct Control {
	size_t bytes, align;
	uintptr_t number;
	void *content;
};

static constexpr uintptr_t DYNAMIC_VARIABLE = ~0ull; // the number of the dynamic part: dynamic.S

EXPORT void *emulatedVariable(Control *c)
{
	Block *b = self()->block;
	if (c->number == DYNAMIC_VARIABLE)
		return b->dynamic;
	for (auto &[control, at] : b->variables)
		if (control == c)
			return at;
	uint64_t bytes = (c->bytes + 15) / 16 * 16, n = b->variables.size() + 1;
	if (n > VARIABLES || bytes > VARIABLE - PAGE)
		fault(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many shared variables, or too large ones");
	void *at = b->shared + n * VARIABLE - PAGE - bytes;
	memset(at, UNWRITTEN, bytes);
	b->variables.push_back({c, at});
	return at;
}

EXPORT unsigned emulatedSharedAddress(const void *p)
{
	Block *b = self()->block;
	uint64_t at = (uint64_t)p - (uint64_t)b->shared;
	if (at >= SHARED)
		fault(CUDA_ERROR_INVALID_ADDRESS_SPACE, text("%p is not in the block's shared memory", p));
	return (unsigned)at;
}

EXPORT void *emulatedSharedPointer(unsigned address)
{
	return self()->block->shared + address;
}
