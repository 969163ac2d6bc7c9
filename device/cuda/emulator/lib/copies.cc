// Asynchronous copies from global to shared memory (cp.async). A copy arrives as late as it may: when its lane waits for its group, in the order of
// issue. Until then its target has bytes that nobody wrote, so a read that came too early, or a write that came too late, gives wrong results.
#include "block.h"

#include <cstring>

namespace emulator {

static constexpr uint8_t PENDING = 0xc9; // the bytes of a copy that has not arrived

} // namespace emulator

using namespace emulator;

EXPORT void emulatedCopy(void *shared, unsigned long long global, unsigned bytes)
{
	Lane *l = self();
	emulatedReach(global, bytes, 0);
	uint64_t at = (uint64_t)shared - (uint64_t)l->block->shared;
	if (at >= sharedSpan())
		fault(CUDA_ERROR_INVALID_ADDRESS_SPACE, text("copy to %p, which is not in the block's shared memory", shared));
	if (at & (bytes - 1))
		fault(CUDA_ERROR_MISALIGNED_ADDRESS, text("copy of %u bytes to %#llx of shared memory", bytes, (unsigned long long)at));
	volatile char first = *(const volatile char *)global, lastByte = *(const volatile char *)(global + bytes - 1); // faults come here
	(void)first, (void)lastByte;
	memset(shared, PENDING, bytes);
	racesCopy(l, shared, bytes, __builtin_return_address(0));
	l->copies.push_back({shared, global, bytes, l->group});
}

EXPORT void emulatedCopyCommit() { self()->group++; }

EXPORT void emulatedCopyWait(unsigned groups)
{
	Lane *l = self();
	size_t kept = 0;
	for (const PendingCopy &c : l->copies) {
		if (groups != ~0u && c.group + groups >= l->group)
			l->copies[kept++] = c;
		else {
			memcpy(c.to, (const void *)c.from, c.bytes);
			racesCopied(l, c.to, c.bytes);
		}
	}
	l->copies.resize(kept);
}
