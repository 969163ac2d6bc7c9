#include "hash.h"

// Finds the rows of a batch in the hashmap and splits them into hits and misses.
//
// A thread takes ROWS row numbers, a block LOOKUP_THREADS × ROWS of them, and claims the room for its hits and misses at
// once. Row numbers out of range are counted and their output is zeroed. The grid covers the batch. found and the map are
// 16-byte aligned; the map may change meanwhile, under the rules of package hashmap.
constexpr u32 THREADS = 256, ROWS = 4;

INLINE bool bitAt(u64 bits, i64 row) { return bits != 0 && loadConst((const u64 *)bits + (row >> 6)) >> (row & 63) & 1; }

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
	u32 hitCount = 0, missCount = 0;
#pragma unroll
	for (u32 r = 0; r < ROWS; r++) {
		word[r] = ~0ull;
		if ((u64)row[r] < (u64)a.limit)
			word[r] = findIn(map, a.homes, a.buckets, (u64)a.table << 56 | (u64)row[r]);
	}
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
		if (misses[r] >> lane & 1) {
			u32 why = (u32)word[r] & 0xff;
			if (why == 0) // the hashmap knows nothing of rows it never held
				why = bitAt(a.oversize, row[r]) ? 4 : bitAt(a.rejected, row[r]) ? 1 : 0;
			u32x4 f = {(u32)row[r], (u32)((u64)row[r] >> 32), i, why};
			*(u32x4 *)(found + a.count - 1 - atMiss - popcount(misses[r] & below)) = f;
			atomicAdd(&reasons[minimum(why, NUM_REASONS - 1)], 1);
		}
		atHit += popcount(hits[r]);
		atMiss += popcount(misses[r]);
	}
	blockSync();
	if (tid < NUM_REASONS && reasons[tid] != 0)
		atomicAdd(&count->reasons[tid], reasons[tid]);
}
