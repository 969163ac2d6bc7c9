#include "hash.h"

// The writer of the hashmap. One thread does the work: admission batches have some thousands of entries, nothing waits for them, and the
// result must equal that of the host's writer byte for byte. Lookups may run meanwhile: hints are stored before a location, and the
// location before its key, each by one 8-byte store. results receives 1 if the entry was put or the key was found, else 0.

// Bucket is the keys of a bucket, read at once.
struct Bucket {
	u64 *slots;
	u64 key[BUCKET_SLOTS];

	INLINE static Bucket at(u64 map, u32 bucket)
	{
		Bucket b;
		b.slots = (u64 *)map + (u64)bucket * (2 * BUCKET_SLOTS);
#pragma unroll
		for (u32 i = 0; i < BUCKET_SLOTS; i++)
			b.key[i] = loadDevice(b.slots + 2 * i);
		return b;
	}
	// slotOf returns a key's slot or 0; free the first that Insert may use, or 0.
	INLINE u64 *slotOf(u64 wanted) const
	{
		u64 *slot = 0;
#pragma unroll
		for (u32 i = 0; i < BUCKET_SLOTS; i++)
			if ((key[i] | HINT_BITS) == (wanted | HINT_BITS))
				slot = slots + 2 * i;
		return slot;
	}
	INLINE u64 *free() const
	{
#pragma unroll
		for (u32 i = 0; i < BUCKET_SLOTS; i++)
			if (key[i] == EMPTY_KEY || ((key[i] | HINT_BITS) == DELETED_KEY && loadDevice(slots + 2 * i + 1) == ~0ull))
				return slots + 2 * i;
		return 0;
	}
	// hinted returns the word with the hint of a probe's group.
	INLINE u64 *hinted(const Probe &p) const { return slots + 2 * p.hintSlot(); }
};

// choose returns the first hint that leads from the probe's bucket to one with a free slot, or any where there is none.
INLINE u32 choose(const MapArgs &a, const Probe &p)
{
	for (u32 hint = 0; hint < NO_HINT; hint++)
		if (Bucket::at(a.map, p.next(hint, a.buckets)).free() != 0)
			return hint;
	return (p.low >> 8) % NO_HINT;
}

// put is hashmap.Map.Insert.
INLINE bool put(const MapArgs &a, u64 key, u64 location)
{
	// The words of hints that will lead to the key: a probe may come to the same bucket again.
	u64 *word[MAX_PROBE], with[MAX_PROBE];
	u32 hints = 0;
	u64 *free = 0;
	for (Probe p = Probe::of(hashOf(key), a.buckets);;) {
		Bucket b = Bucket::at(a.map, p.bucket);
		if (u64 *known = b.slotOf(key)) {
			storeDevice(known + 1, location);
			return true;
		}
		if (free == 0)
			free = b.free();
		u64 have = loadDevice(b.hinted(p));
		for (u32 i = 0; i < hints; i++)
			if (word[i] == b.hinted(p))
				have = with[i];
		u32 hint = p.hint(have);
		if (hint == NO_HINT) {
			if (free != 0)
				break;
			if (p.hops == MAX_PROBE)
				return false;
			hint = choose(a, p);
			word[hints] = b.hinted(p);
			with[hints] = p.withHint(have, hint);
			hints++;
		}
		if (!p.follow(hint, a.buckets))
			break;
	}
	if (free == 0)
		return false;
	for (u32 i = 0; i < hints; i++)
		storeDevice(word[i], with[i]);
	storeDevice(free + 1, location);
	fenceDevice();
	storeDevice(free, key | (loadDevice(free) & HINT_BITS));
	return true;
}

KERNEL void insertKernel(const MapArgs a)
{
	const u64 *entries = (const u64 *)a.entries;
	for (u32 n = 0; n < a.count; n++)
		((u32 *)a.results)[n] = put(a, entries[2 * n], entries[2 * n + 1]);
}

// Erases keys with a reason; they are distinct, so each has a thread.
KERNEL void eraseKernel(const MapArgs a)
{
	for (u32 n = blockID() * blockThreads() + threadID(); n < a.count; n += gridBlocks() * blockThreads()) {
		u64 key = ((const u64 *)a.entries)[n], *slot;
		Probe p = Probe::of(hashOf(key), a.buckets);
		for (;;) {
			Bucket b = Bucket::at(a.map, p.bucket);
			slot = b.slotOf(key);
			if (slot != 0 || !p.follow(p.hint(loadDevice(b.hinted(p))), a.buckets))
				break;
		}
		if (slot != 0)
			storeDevice(slot + 1, ~0xffull | a.reason);
		((u32 *)a.results)[n] = slot != 0;
	}
}
