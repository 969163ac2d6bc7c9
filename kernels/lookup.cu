#include "order.h"
#include "sample.h"

// Finds the rows of a batch in the hashmap and splits them into hits and misses.
//
// A lane hashes a row number. Four lanes read a bucket, a slot each, so that a bucket is one memory access. A warp has four such loads in
// flight, for eight rows each. Rows that must be looked for in a further bucket queue in a ring, from which the warp takes eight at a time.
// Hits and misses are gathered in shared memory. A block claims room in the list for all of them by one atomic operation and writes them in
// runs. Row numbers outside the table are counted, and their output is zeroed. If the misses are to be ordered, they are counted by page, and
// the last block turns the counts into starts: order.h. The grid covers the batch. found and the map are aligned to 16 bytes. The map may
// change meanwhile, under the rules of package hashmap.
//
// This takes 44.5 us on an H200 with 1 Mi rows, 20 M entries and load 0.8. Variants: 45.1 us with 32 registers, where sampling spills (49.6
// against 47.3), and 45.9 with 48; 45.7 with 512 threads; 47.4 against 42.6 for misses with 128 threads. A first version took 48 us; with two
// lanes or one lane a bucket 58 and 61, with 64 or 128 rows a warp 49 and 58, with claims by warps 67.
constexpr u32 THREADS = 256, WARPS = THREADS / 32, TILE = BUCKET_SLOTS, TILES = 32 / TILE, MISSED = ~1u;

// Warp is a warp's shared memory.
struct Warp {
	// Hits from the front, misses from the back.
	u32x4 found[32];
	// Each lane's row: its key's halves with the hints set, the lower half of its hash, and its home, all ones when the row is
	// out of range. In the end, for sampling, the home of a row that misses is MISSED.
	u32x4 rows[32];
	// Rows to be looked for elsewhere: bucket; lane, and hops in bits 8 and up.
	u32x2 ring[32];
};

// Split is the progress of a warp: its hits, misses and rows in the ring.
struct Split {
	u32 hits, misses, head, tail;

	// settle takes what a tile of four lanes has read of the bucket of a row: a hit, a miss or one for the ring.
	INLINE void settle(const LookupArgs &a, Warp &w, u64x2 slot, u32 of, u32 hops, bool valid, u32 lane)
	{
		const u32 hintMask = (u32)(HINT_BITS >> 32), below = (1u << lane) - 1, all = ~0u;
		u32x4 row = w.rows[of];
		valid = valid && row.w != ~0u;
		bool mine = valid && (u32)slot.x == row.x && ((u32)(slot.x >> 32) | hintMask) == row.y;
		bool known = ballot(all, mine) >> (lane & ~(TILE - 1)) & ((1u << TILE) - 1);
		Probe p = {row.z, 0, hops};
		bool last = valid && !known && p.hintSlot() == lane % TILE; // one lane decides for a tile without the key
		bool onward = last && p.follow(p.hint(slot.x), a.buckets);
		bool hit = mine && located(slot.y), miss = (mine && !hit) || (last && !onward);
		u32 position = blockID() * THREADS + (threadID() - lane) + of;
		u32 lanes = ballot(all, hit);
		if (hit)
			w.found[hits + popcount(lanes & below)] = u32x4{(u32)slot.y, (u32)(slot.y >> 32), position, 0};
		hits += popcount(lanes);
		lanes = ballot(all, miss);
		if (miss)
			w.found[31 - misses - popcount(lanes & below)] =
				u32x4{row.x, row.y & ~(0xff000000 | hintMask), position, mine ? (u32)slot.y & 0xff : 0};
		misses += popcount(lanes);
		lanes = ballot(all, onward);
		if (onward)
			w.ring[(tail + popcount(lanes & below)) % 32] = u32x2{p.bucket, of | p.hops << 8};
		tail += popcount(lanes);
	}
};

KERNEL void __launch_bounds__(256, 6) lookupKernel(const SplitArgs args)
{
	const LookupArgs &a = args.lookup;
	__shared__ Warp warps[WARPS];
	__shared__ u32 warpHits[WARPS], warpMisses[WARPS], reasons[NUM_REASONS], peers;
	u32 tid = threadID(), warp = tid / 32, lane = tid & 31, position = blockID() * THREADS + tid;
	if (tid < NUM_REASONS)
		reasons[tid] = 0;
	if (tid == 0)
		peers = 0;
	Counters *count = (Counters *)a.counters;
	const u64x2 *map = (const u64x2 *)a.map + lane % TILE;
	Warp &w = warps[warp];
	{
		i64 row = position < a.count ? rowAt(a, position) : -1;
		u64 key = (u64)a.table << 56 | (u64)row;
		Probe p = Probe::of(hashOf(key), a.buckets);
		u32 high = (u32)((key | HINT_BITS) >> 32), bucket = (u64)row < (u64)a.limit ? p.bucket : ~0u;
		w.rows[lane] = u32x4{(u32)key, high, p.low, bucket};
	}
	warpSync(~0u);
	u64x2 slot[TILE];
#pragma unroll
	for (u32 i = 0; i < TILE; i++) {
		u32 bucket = w.rows[i * TILES + lane / TILE].w;
		slot[i] = u64x2{EMPTY_KEY, EMPTY_KEY};
		if (bucket != ~0u)
			slot[i] = loadSlot(map + (u64)bucket * BUCKET_SLOTS);
	}
	warpSync(~0u); // also keeps the compiler from holding what it has read of rows in registers
	Split s = {0, 0, 0, 0};
#pragma unroll
	for (u32 i = 0; i < TILE; i++)
		s.settle(a, w, slot[i], i * TILES + lane / TILE, 0, true, lane);
	while (s.head != s.tail) {
		warpSync(~0u);
		bool valid = lane / TILE < s.tail - s.head;
		u32x2 next = w.ring[(s.head + (valid ? lane / TILE : 0)) % 32];
		u64x2 there = {EMPTY_KEY, EMPTY_KEY};
		if (valid)
			there = loadSlot(map + (u64)next.x * BUCKET_SLOTS);
		s.head += minimum(s.tail - s.head, TILES);
		warpSync(~0u); // what the ring has is read before it changes
		s.settle(a, w, there, next.y & 31, next.y >> 8, valid, lane);
	}
	if (lane == 0) {
		warpHits[warp] = s.hits;
		warpMisses[warp] = s.misses;
	}
	blockSync();
	if (warp == 0) { // hits and misses are neighbours in the counters, and are claimed together
		u32 hits = lane < WARPS ? warpHits[lane] : 0, misses = lane < WARPS ? warpMisses[lane] : 0;
		u32 hitsTo = tileScan<32>(~0u, hits), missesTo = tileScan<32>(~0u, misses);
		u64 first = 0;
		if (lane == 31 && (hitsTo | missesTo) != 0)
			first = atomicFetchAdd((u64 *)&count->hits, (u64)missesTo << 32 | hitsTo);
		u32 firstHit = tileFrom<32>(~0u, (u32)first, 31), firstMiss = tileFrom<32>(~0u, (u32)(first >> 32), 31);
		if (lane < WARPS) {
			warpHits[lane] = firstHit + hitsTo - hits;
			warpMisses[lane] = firstMiss + missesTo - misses;
		}
	}
	blockSync();
	u32x4 *found = (u32x4 *)a.found;
	if (lane < s.hits)
		found[warpHits[warp] + lane] = w.found[lane];
	if (a.peers != 0) { // the slab is in a word's upper half
		u32 away = ballot(~0u, lane < s.hits && inPeers(a.peers, (u64)w.found[lane].y << 32));
		if (lane == 0 && away != 0)
			atomicAdd(&peers, popcount(away));
	}
	u32 why = NUM_REASONS;
	if (lane < s.misses) {
		u32x4 f = w.found[31 - lane];
		if (f.w == 0) { // the hashmap knows nothing of rows it never held
			i64 missed = (i64)((u64)f.y << 32 | f.x);
			f.w = bitAt(a.oversize, missed) ? 4 : bitAt(a.rejected, missed) ? 1 : 0;
		}
		found[a.count - 1 - warpMisses[warp] - lane] = f;
		if (a.samples.ring != 0)
			w.rows[f.z & 31].w = MISSED;
		if (args.pages.buckets != 0)
			countMiss(args.pages, (u64)f.y << 32 | f.x);
		why = minimum(f.w, NUM_REASONS - 1);
	}
	// A ballot a reason: nearly all misses have the same one, and would queue at one counter.
	for (u32 left = ballot(~0u, why < NUM_REASONS); left != 0;) {
		u32 one = tileFrom<32>(~0u, why, popcount((left & -left) - 1)), same = ballot(~0u, why == one);
		if (lane == 0)
			atomicAdd(&reasons[one], popcount(same));
		left &= ~same;
	}
	warpSync(~0u);
	u32x4 row = w.rows[lane];
	bool ok = row.w != ~0u;
	if (!ok && position < a.count) {
		atomicAdd(&count->outOfRange, 1);
		atomicMax(&count->notFirst, ~position);
		u8 *out = (u8 *)a.out + (u64)position * a.rowBytes;
		for (u32 b = 0; b < a.rowBytes; b++)
			out[b] = 0;
	}
	if (a.samples.ring != 0) {
		u64 key = ((u64)row.y << 32 | row.x) & ~HINT_BITS;
		appendSample(a.samples, key, ok ? sampled(a.samples, key, position, row.w == MISSED) : 0, lane);
	}
	blockSync();
	if (tid < NUM_REASONS && reasons[tid] != 0)
		atomicAdd(&count->reasons[tid], reasons[tid]);
	if (tid == 0 && peers != 0)
		atomicAdd(&count->peers, peers);
	if (args.pages.buckets != 0)
		endCounting<THREADS>(args.pages, warpHits);
}
