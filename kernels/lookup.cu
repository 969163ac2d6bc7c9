#include "sample.h"

// Finds the rows of a batch in the hashmap and splits them into hits and misses.
//
// A thread takes ROWS row numbers, a block LOOKUP_THREADS × ROWS of them, and claims the room for its hits and misses at
// once. Row numbers out of range are counted and their output is zeroed. The grid covers the batch. found and the map are
// 16-byte aligned; the map may change meanwhile, under the rules of package hashmap.
constexpr u32 THREADS = 256, ROWS = 4;

// probe looks at SLOTS more slots for each pending row.
template <u32 N, u32 SLOTS>
INLINE void probe(const u64x2 *map, u64 (&slot)[N], const u64 (&end)[N], const u64 (&key)[N], u64 (&word)[N], u32 &pending)
{
	u64x2 s[N][SLOTS];
#pragma unroll
	for (u32 r = 0; r < N; r++)
		if (pending >> r & 1)
#pragma unroll
			for (u32 i = 0; i < SLOTS; i++)
				s[r][i] = loadShared(map + minimum64(slot[r] + i, end[r] - 1));
#pragma unroll
	for (u32 r = 0; r < N; r++)
		if (pending >> r & 1) {
			bool done = false;
#pragma unroll
			for (u32 i = 0; i < SLOTS; i++)
				if (!done) {
					if (s[r][i].x == key[r])
						word[r] = s[r][i].y;
					done = s[r][i].x == key[r] || s[r][i].x == EMPTY_KEY;
				}
			slot[r] += SLOTS;
			if (done || slot[r] >= end[r])
				pending &= ~(1u << r);
		}
}

KERNEL void __launch_bounds__(256) lookupKernel(const LookupArgs a)
{
	__shared__ u32 warpHits[THREADS / 32], warpMisses[THREADS / 32], reasons[NUM_REASONS], firstHit, firstMiss;
	u32 tid = threadID(), warp = tid / 32, lane = tid & 31;
	if (tid < NUM_REASONS)
		reasons[tid] = 0;
	Counters *count = (Counters *)a.counters;
	const u64x2 *map = (const u64x2 *)a.map;
	u64 word[ROWS];
	u32 hits[ROWS], misses[ROWS]; // ballots
	i64 row[ROWS];
	u32 base = blockID() * THREADS * ROWS + tid;
#pragma unroll
	for (u32 r = 0; r < ROWS; r++) {
		u32 i = base + r * THREADS;
		row[r] = i < a.count ? (i64)loadConst((const u64 *)a.rows + i) : -1;
	}
	// The probes of a thread's rows advance side by side, a sector of two slots at first, then a bucket's worth.
	u64 slot[ROWS], end[ROWS], key[ROWS];
	u32 pending = 0;
#pragma unroll
	for (u32 r = 0; r < ROWS; r++) {
		word[r] = ~0xffull;
		key[r] = (u64)a.table << 56 | (u64)row[r];
		u32 home = homeOf(hashOf(key[r]), a.homes);
		slot[r] = (u64)home * BUCKET_SLOTS;
		end[r] = ((u64)lastOf(home, a.buckets) + 1) * BUCKET_SLOTS;
		if ((u64)row[r] < (u64)a.limit)
			pending |= 1 << r;
	}
	probe<ROWS, 2>(map, slot, end, key, word, pending);
	while (pending != 0)
		probe<ROWS, 4>(map, slot, end, key, word, pending);
	if (a.samples.ring != 0)
#pragma unroll 1
		for (u32 r = 0; r < ROWS; r++) {
			bool ok = (u64)row[r] < (u64)a.limit;
			appendSample(a.samples, key[r], ok ? sampled(a.samples, key[r], base + r * THREADS) : 0, lane);
		}
	u32 hitCount = 0, missCount = 0;
#pragma unroll
	for (u32 r = 0; r < ROWS; r++) {
		u32 i = base + r * THREADS;
		bool ok = (u64)row[r] < (u64)a.limit, hit = ok && located(word[r]);
		hits[r] = ballot(~0u, hit);
		misses[r] = ballot(~0u, ok && !hit);
		hitCount += popcount(hits[r]);
		missCount += popcount(misses[r]);
		if (!ok && i < a.count) {
			atomicAdd(&count->outOfRange, 1);
			atomicMax(&count->notFirst, ~i);
			u8 *out = (u8 *)a.out + (u64)i * a.rowBytes;
			for (u32 b = 0; b < a.rowBytes; b++)
				out[b] = 0;
		}
	}
	if (lane == 0) {
		warpHits[warp] = hitCount;
		warpMisses[warp] = missCount;
	}
	blockSync();
	if (tid == 0) {
		u32 h = 0, m = 0;
		for (u32 w = 0; w < THREADS / 32; w++) {
			u32 nh = warpHits[w], nm = warpMisses[w];
			warpHits[w] = h;
			warpMisses[w] = m;
			h += nh;
			m += nm;
		}
		firstHit = h != 0 ? atomicAdd(&count->hits, h) : 0;
		firstMiss = m != 0 ? atomicAdd(&count->misses, m) : 0;
	}
	blockSync();
	u32 below = (1u << lane) - 1, atHit = firstHit + warpHits[warp], atMiss = firstMiss + warpMisses[warp];
	Found *found = (Found *)a.found;
#pragma unroll
	for (u32 r = 0; r < ROWS; r++) {
		u32 i = base + r * THREADS;
		if (hits[r] >> lane & 1) {
			u32x4 f = {(u32)word[r], (u32)(word[r] >> 32), i, 0};
			*(u32x4 *)(found + atHit + popcount(hits[r] & below)) = f;
		}
		u32 why = NUM_REASONS;
		if (misses[r] >> lane & 1) {
			why = (u32)word[r] & 0xff;
			if (why == 0) // the hashmap knows nothing of rows it never held
				why = bitAt(a.oversize, row[r]) ? 4 : bitAt(a.rejected, row[r]) ? 1 : 0;
			u32x4 f = {(u32)row[r], (u32)((u64)row[r] >> 32), i, why};
			*(u32x4 *)(found + a.count - 1 - atMiss - popcount(misses[r] & below)) = f;
			why = minimum(why, NUM_REASONS - 1);
		}
		// A ballot a reason: nearly all misses have the same one, and would queue at one counter.
#pragma unroll
		for (u32 k = 0; k < NUM_REASONS; k++) {
			u32 n = popcount(ballot(~0u, why == k));
			if (lane == k && n != 0)
				atomicAdd(&reasons[k], n);
		}
		atHit += popcount(hits[r]);
		atMiss += popcount(misses[r]);
	}
	blockSync();
	if (tid < NUM_REASONS && reasons[tid] != 0)
		atomicAdd(&count->reasons[tid], reasons[tid]);
}
