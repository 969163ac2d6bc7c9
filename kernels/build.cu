#include "hash.h"

// Builds a hashmap from all its entries at once, to the same bytes as hashmap.Build. Entries are sorted by hash: the entries of each home
// bucket are counted, placed side by side, and sorted by insertion, since they are few. A home bucket takes its first four entries. The
// others are placed in rounds, which hashmap.Build describes. A round is two kernels: in the first, entries claim what they need; in the
// second, those whose claims won take it.

INLINE u32 homeOfKey(const BuildArgs &a, u64 key) { return Probe::of(hashOf(key), a.buckets).bucket; }

KERNEL void buildCountKernel(const BuildArgs a)
{
	const u64x2 *entries = (const u64x2 *)a.entries;
	for (u32 i = blockID() * blockThreads() + threadID(); i < a.count; i += gridBlocks() * blockThreads()) {
		u64 key = entries[i].x;
		if ((key & HINT_BITS) != 0 || (key | HINT_BITS) >= DELETED_KEY)
			atomicAdd((u32 *)a.failed, 1);
		atomicAdd((u32 *)a.starts + homeOfKey(a, key), 1);
	}
}

// blockScan returns the sum of the values of the threads before, and of all of a block of 1024.
INLINE u32 blockScan(u32 x, u32 &all)
{
	__shared__ u32 warps[33];
	u32 lane = laneID(), warp = threadID() / 32, sum = x;
#pragma unroll
	for (u32 d = 1; d < 32; d *= 2) {
		u32 before = tileFrom<32>(~0u, sum, lane - d);
		if (lane >= d)
			sum = before + sum;
	}
	u32 before = tileFrom<32>(~0u, sum, lane - 1);
	blockSync();
	if (lane == 31)
		warps[warp] = sum;
	blockSync();
	if (threadID() == 0) {
		u32 total = 0;
		for (u32 w = 0; w < 32; w++) {
			u32 own = warps[w];
			warps[w] = total;
			total = total + own;
		}
		warps[32] = total;
	}
	blockSync();
	all = warps[32];
	return lane == 0 ? warps[warp] : warps[warp] + before;
}

// A block of 1024 threads sums its part of n values, four a thread.
INLINE void scanParts(u32 *values, u32 *sums, u32 n)
{
	u32 at = blockID() * SCAN_PART + threadID() * 4, x = 0, all;
	for (u32 i = at; i < minimum(at + 4, n); i++)
		x = x + values[i];
	blockScan(x, all);
	if (threadID() == 0)
		sums[blockID()] = all;
}

// One block turns the sums of the parts into what precedes each.
INLINE void scanSums(u32 *sums, u32 parts)
{
	u32 carry = 0;
	for (u32 from = 0; from < parts; from += 1024) {
		u32 i = from + threadID(), all;
		u32 x = i < parts ? sums[i] : 0, before = blockScan(x, all);
		if (i < parts)
			sums[i] = carry + before;
		carry = carry + all;
	}
}

// Each block turns the values of its part into what precedes each.
INLINE void scanApply(u32 *values, const u32 *sums, u32 n)
{
	u32 at = blockID() * SCAN_PART + threadID() * 4, x = 0, all;
	for (u32 i = at; i < minimum(at + 4, n); i++)
		x = x + values[i];
	u32 before = sums[blockID()] + blockScan(x, all);
	for (u32 i = at; i < minimum(at + 4, n); i++) {
		u32 own = values[i];
		values[i] = before;
		before = before + own;
	}
}

KERNEL void __launch_bounds__(1024) buildSumPartsKernel(const BuildArgs a) { scanParts((u32 *)a.starts, (u32 *)a.sums, a.buckets); }
KERNEL void __launch_bounds__(1024) buildSumSumsKernel(const BuildArgs a) { scanSums((u32 *)a.sums, a.parts); }
KERNEL void __launch_bounds__(1024) buildSumApplyKernel(const BuildArgs a)
{
	scanApply((u32 *)a.starts, (const u32 *)a.sums, a.buckets);
}

// Places the entries at their homes' starts, in any order; ends, a copy of starts, counts on.
KERNEL void buildPlaceKernel(const BuildArgs a)
{
	const u64x2 *entries = (const u64x2 *)a.entries;
	for (u32 i = blockID() * blockThreads() + threadID(); i < a.count; i += gridBlocks() * blockThreads()) {
		u64x2 e = entries[i];
		((u64x2 *)a.sorted)[atomicAdd((u32 *)a.ends + homeOfKey(a, e.x), 1)] = e;
	}
}

// warpAppend claims n places in a list for each lane of a warp, all at once: thousands of blocks would queue at one counter.
INLINE u32 warpAppend(u32 *length, u32 n)
{
	u32 to = tileScan<32>(~0u, n), first = 0;
	if (laneID() == 31 && to != 0)
		first = atomicAdd(length, to);
	return tileFrom<32>(~0u, first, 31) + to - n;
}

// Sorts each home's entries by hash, which no two keys share, gives it the first four, and lists the others. All slots are
// empty before.
KERNEL void buildSortKernel(const BuildArgs a)
{
	u64x2 *sorted = (u64x2 *)a.sorted;
	for (u32 first = blockID() * blockThreads(); first < a.buckets; first += gridBlocks() * blockThreads()) {
		u32 h = first + threadID(), start = 0, end = 0;
		if (h < a.buckets) {
			start = ((const u32 *)a.starts)[h];
			end = ((u32 *)a.ends)[h];
		}
		for (u32 i = start + 1; i < end; i++) {
			u64x2 e = sorted[i];
			u64 hash = hashOf(e.x);
			u32 j = i;
			for (; j > start && hashOf(sorted[j - 1].x) > hash; j--)
				sorted[j] = sorted[j - 1];
			sorted[j] = e;
			if (j > start && sorted[j - 1].x == e.x)
				atomicAdd((u32 *)a.failed, 1);
		}
		u32 homed = minimum(end, start + BUCKET_SLOTS);
		for (u32 i = start; i < homed; i++)
			((u64x2 *)a.map)[(u64)h * BUCKET_SLOTS + (i - start)] = u64x2{sorted[i].x | HINT_BITS, sorted[i].y};
		u32 at = warpAppend((u32 *)a.lengths, end - homed);
		for (u32 i = homed; i < end; i++, at++)
			if (at < a.room)
				((u32 *)a.pending)[at] = i;
	}
}

// isFull says whether a bucket's last slot is in use: the others are before.
INLINE bool isFull(const u64x2 *map, u32 bucket) { return map[(u64)bucket * BUCKET_SLOTS + BUCKET_SLOTS - 1].x != EMPTY_KEY; }

// A claim on a bucket: the latest round's count, and of those the first entry's.
INLINE u64 claimOf(const BuildArgs &a, u32 entry) { return (u64)~a.round << 32 | entry; }

// The entries pending in a round.
INLINE u32 *pendingIn(const BuildArgs &a, u32 round) { return (u32 *)a.pending + (round & 1) * (u64)a.room; }
INLINE u32 lengthOf(const BuildArgs &a) { return minimum(((const u32 *)a.lengths)[a.round], a.room); }

KERNEL void buildClaimKernel(const BuildArgs a)
{
	const u64x2 *map = (const u64x2 *)a.map;
	u32 pending = lengthOf(a);
	for (u32 i = blockID() * blockThreads() + threadID(); i < pending; i += gridBlocks() * blockThreads()) {
		u32 entry = pendingIn(a, a.round)[i];
		Probe p = Probe::of(hashOf(((const u64x2 *)a.sorted)[entry].x), a.buckets);
		BuildWant want = {~0u, ~0u, NO_HINT, 0};
		while (p.hops < MAX_PROBE) {
			u32 hint = p.hint(map[(u64)p.bucket * BUCKET_SLOTS + p.hintSlot()].x);
			if (hint == NO_HINT) {
				want.from = p.bucket;
				want.hint = (p.low >> 8) % NO_HINT;
				for (hint = 0; hint < NO_HINT && want.to == ~0u; hint++)
					if (!isFull(map, p.next(hint, a.buckets))) {
						want.to = p.next(hint, a.buckets);
						want.hint = hint;
					}
				break;
			}
			if (!isFull(map, p.next(hint, a.buckets))) {
				want.to = p.next(hint, a.buckets);
				break;
			}
			p.follow(hint, a.buckets);
		}
		if (want.from != ~0u)
			atomicMin((u64 *)a.claims + want.from, claimOf(a, entry));
		if (want.to != ~0u)
			atomicMin((u64 *)a.claims + want.to, claimOf(a, entry));
		((BuildWant *)a.wants)[i] = want;
	}
}

// A full bucket gives a hint and another one a slot, each to one entry, so no two threads write the same word. An entry without a slot is
// pending in the next round.
KERNEL void buildTakeKernel(const BuildArgs a)
{
	u64x2 *map = (u64x2 *)a.map;
	const u64 *claims = (const u64 *)a.claims;
	u32 pending = lengthOf(a);
	for (u32 first = blockID() * blockThreads(); first < pending; first += gridBlocks() * blockThreads()) {
		u32 i = first + threadID(), entry = 0;
		bool left = i < pending;
		if (left) {
			entry = pendingIn(a, a.round)[i];
			BuildWant want = ((const BuildWant *)a.wants)[i];
			u64 own = claimOf(a, entry);
			if ((want.from == ~0u || claims[want.from] == own) && (want.to == ~0u || claims[want.to] == own)) {
				u64x2 e = ((const u64x2 *)a.sorted)[entry];
				if (want.from != ~0u) {
					Probe p = Probe::of(hashOf(e.x), a.buckets);
					u64 *word = (u64 *)(map + (u64)want.from * BUCKET_SLOTS + p.hintSlot());
					*word = p.withHint(*word, want.hint);
				}
				if (want.to != ~0u) {
					u64x2 *slot = map + (u64)want.to * BUCKET_SLOTS;
					while (slot->x != EMPTY_KEY)
						slot++;
					*slot = u64x2{e.x | HINT_BITS, e.y};
					left = false;
				}
			}
		}
		u32 at = warpAppend((u32 *)a.lengths + a.round + 1, left);
		if (left)
			pendingIn(a, a.round + 1)[at] = entry;
	}
}

// Counts those that have no slot: after the last round, or before the first for want of room.
KERNEL void buildEndKernel(const BuildArgs a)
{
	const u32 *lengths = (const u32 *)a.lengths;
	u32 left = lengths[a.round] + (lengths[0] > a.room ? lengths[0] - a.room : 0);
	if (left != 0)
		atomicAdd((u32 *)a.failed, left);
}
