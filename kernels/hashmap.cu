#include "hash.h"

// The writer's side of the hashmap, by one thread: batches of admission have some thousands of entries, nobody waits for
// them, and the outcome is that of the host's writer byte for byte. Finds may run meanwhile: a location is stored before
// its key, each by one 8-byte store. results receives 1 where the entry was put or the key was found, else 0.

INLINE void store(u64 *p, u64 x) { asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory"); }
INLINE u64 load(const u64 *p)
{
	u64 x;
	asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
	return x;
}
INLINE void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

KERNEL void insertKernel(const MapArgs a)
{
	u64 *map = (u64 *)a.map;
	for (u32 n = 0; n < a.count; n++) {
		u64 key = ((const u64 *)a.entries)[2 * n], location = ((const u64 *)a.entries)[2 * n + 1];
		u32 home = homeOf(hashOf(key), a.homes);
		u64 end = 2 * BUCKET_SLOTS * ((u64)lastOf(home, a.buckets) + 1), free = ~0ull;
		bool known = false;
		for (u64 i = 2ull * BUCKET_SLOTS * home; i < end && !known; i += 2) {
			u64 have = load(map + i);
			if (have == key) {
				store(map + i + 1, location);
				known = true;
			} else if (have == DELETED_KEY) {
				if (free == ~0ull && load(map + i + 1) == ~0ull)
					free = i;
			} else if (have == EMPTY_KEY) {
				if (free == ~0ull)
					free = i;
				break;
			}
		}
		if (!known && free != ~0ull) {
			store(map + free + 1, location);
			fence();
			store(map + free, key);
		}
		((u32 *)a.results)[n] = known || free != ~0ull;
	}
}

// Erases keys with a reason; they are distinct, so each has a thread.
KERNEL void eraseKernel(const MapArgs a)
{
	u64 *map = (u64 *)a.map;
	for (u32 n = blockID() * blockThreads() + threadID(); n < a.count; n += gridBlocks() * blockThreads()) {
		u64 key = ((const u64 *)a.entries)[n];
		u32 home = homeOf(hashOf(key), a.homes), found = 0;
		u64 end = 2 * BUCKET_SLOTS * ((u64)lastOf(home, a.buckets) + 1);
		for (u64 i = 2ull * BUCKET_SLOTS * home; i < end; i += 2) {
			u64 have = load(map + i);
			if (have == key) {
				store(map + i + 1, ~0xffull | a.reason);
				found = 1;
			}
			if (have == key || have == EMPTY_KEY)
				break;
		}
		((u32 *)a.results)[n] = found;
	}
}
