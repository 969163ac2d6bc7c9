#include "coder.h"
#include "ibp.h"
#include "publish.h"
#include "store.h"
#include "ticket.h"
#ifdef ROW_FIND
#include "looked.h"
#endif
#ifdef ROW_BUDDY
#include "buddy.h"
#endif

// Decodes hits by tiles of TWO_LANES lanes with two quads of a row each: the kernels of IBP with one mask for rows of 17 to 20 quads. A warp
// decodes three of them at a time, where decode_pairs.cu needs the same instructions for two. ROW_CODER, ROW_KIND and ROW_FIND are as there.
#define KIND_FIXED 1

// The tiles of the grid take the hits in turns. Lane k of a tile has quads k and k + LANES of all rows, so their metadata stay in registers.
// Lanes that belong to no tile, the last ones of a warp, only take part in what whole warps do.
//
// Asynchronous copies stage rows in shared memory, TWO_STAGES a tile. While the tile decodes one row, the next one has arrived and its
// participation bits are scanned, and two more are being copied. With three or five stages it was up to 10 % slower.
//
// Shared memory: DECODE_TICKETS bytes a thread, TWO_STAGES × stageBytes a tile, then FIND_SHARED bytes a thread with ROW_FIND.
template <int CHUNK, int STEPS, int LANES, int KIND, class SOURCE>
INLINE void decodeTwo(const DecodeArgs &a, SOURCE rows, u32 blocks = gridBlocks())
{
	extern __shared__ u32x4 dynamic[];
	constexpr int MOVES = KIND == KIND_FIXED ? 0 : STEPS;
	constexpr u32 N = 16 / CHUNK, TILES = 32 / LANES; // chunks a quad, tiles a warp
	constexpr u32 ROUND = 8;			      // tickets that a tile makes at once
	using Kept = typename SOURCE::Kept;
	constexpr u32 TICKETS = 2 * sizeof(Kept);
	static_assert(ROUND <= LANES && TILES * LANES * TICKETS >= TILES * 2 * ROUND * sizeof(Kept), "DECODE_TICKETS");
	const u32 lane = laneID(), warp = threadID() / 32, warps = blockThreads() / 32;
	const bool idle = lane >= TILES * LANES;
	const u32 tile = idle ? 0 : lane / LANES, k = idle ? 0 : lane % LANES, first = tile * LANES;
	const u32 rowBytes = a.codec.rowBytes, stageBytes = a.stageBytes, ringBytes = TWO_STAGES * stageBytes;
	const bool second = !idle && k + LANES < a.codec.quads;

	// A small batch is spread over all blocks.
	u32 groups = warps * blocks * TILES;
	u32 lead = (blockID() + warp * blocks) * TILES;			     // the row of the warp's first tile
	u32 ahead = !idle && k < ROUND ? lead + tile + k * groups : 1u << 31; // the row of the lane's next ticket
	rows.begin(ahead, ROUND * groups, blockThreads() * TICKETS + warps * TILES * ringBytes);
	u32 hits = rows.count;

	Planes<MOVES> planesA = {}, planesB = {};
	u32 maskedA = 0, maskedB = 0, bitsA = 0, bitsB = 0;
	Meta<GLOBAL, STEPS> meta{(const u8 *)a.codec.meta};
	if (!idle) {
		planesA = meta.template planes<MOVES>(k);
		maskedA = meta.masked(k);
		bitsA = headBits(a.codec) + meta.keptBefore(k);
	}
	if (second) {
		planesB = meta.template planes<MOVES>(k + LANES);
		maskedB = meta.masked(k + LANES);
		bitsB = headBits(a.codec) + meta.keptBefore(k + LANES);
	}
	if (lead >= hits)
		return;

	Kept *ticketsOfWarp = (Kept *)dynamic + warp * TILES * 2 * ROUND, *tickets = ticketsOfWarp + tile * 2 * ROUND; // two rounds a tile
	u8 *ringOfWarp = (u8 *)dynamic + blockThreads() * TICKETS + warp * TILES * ringBytes, *ring = ringOfWarp + tile * ringBytes;
	const u32 ringAddress = sharedAddress(ring) + k * 16;
	const i32 begin = idle ? 1 << 30 : k * 16; // an idle lane's quads lie behind every row

	// Starts the copy of a tile's row j. Every ROUND rows, lanes make the tickets of one row each.
	auto stage = [&](u32 slot, u32 j) {
		if (j % ROUND == 0) {
			Kept t = rows.make(ahead, ROUND * groups);
			if (!idle && k < ROUND) {
				tickets[(j & ROUND) + k] = t;
				ahead += ROUND * groups;
			}
			warpSync(~0u);
		}
		const Kept *kept = &tickets[j % (2 * ROUND)];
		u32x4 head = *(const u32x4 *)kept;
		copyQuad(ringAddress + slot, kept, head, begin);
		copyQuad(ringAddress + slot + LANES * 16, kept, head, begin + LANES * 16);
		copySecond(ringAddress + slot, kept, head, begin, ringAddress + slot + LANES * 16, kept, head, begin + LANES * 16);
		copyCommit();
	};

	// Reads which chunks of a row participate, and sums the excess up to each quad: one scan, of both quads in one word.
	u32 partA = 0, partB = 0, through = 0, before = 0;
	auto partOf = [&](const u8 *row, u32 quad) { return bytesOf(*(const u32 *)(row + quad * N / 32 * 4) >> (quad * N & 31) & ((1 << N) - 1)); };
	auto scan = [&](u32 slot) {
		partA = partOf(ring + slot, k), partB = partOf(ring + slot, k + LANES);
		u32 more = byteSum(maskedA & ~partA) + (byteSum(maskedB & ~partB) << 16);
		through = runScan<LANES>(more, first);
		before = through - more;
	};
	auto quadAt = [&](const u8 *row, u32 at, const Planes<MOVES> &planes, u32 part, u32 masked) {
		const u32 *w = (const u32 *)(row + at / 32 * 4);
		u32 x[5] = {w[0], w[1], w[2], w[3], w[4]};
		return expandQuad<CHUNK>(x, at, planes, part, masked);
	};

	const u32 store = a.codec.store, bitsOfRow = headBits(a.codec) + keptBits(a.codec);
#pragma unroll
	for (u32 i = 0; i < TWO_STAGES - 1; i++)
		stage(i * stageBytes, i);
	copyWaitGroups<TWO_STAGES - 2>();
	warpSync(~0u);
	scan(0);
	u32 slot = 0, freed = (TWO_STAGES - 1) * stageBytes;
	for (u32 j = 0; lead < hits; lead += groups, j++) {
		copyWaitGroups<TWO_STAGES - 3>();
		warpSync(~0u); // the next row has arrived, and the row before has been read
		// What a lookup asked for belongs to the group of copies that was committed after it, of which the last one may be under way.
		static_assert(TWO_STAGES == 4 && ROUND % 2 == 0, "every second row");
		if (j % 2 != 0)
			rows.advance();
		stage(freed, j + TWO_STAGES - 1);
		freed = slot;
		u8 *row = ring + slot;
		const u32 rowAt = slot;
		slot = slot + stageBytes == ringBytes ? 0 : slot + stageBytes;
		u32 pA = partA, pB = partB, from = before, to = laneFrom(through, first + LANES - 1), half = to & 0xffff;
		scan(slot);
		u32x2 t = *(const u32x2 *)&tickets[j % (2 * ROUND)].position;
		u32x4 x = quadAt(row, bitsA + (from & 0xffff), planesA, pA, maskedA);
		u32x4 y = quadAt(row, bitsB + half + (from >> 16), planesB, pB, maskedB);
		bool raw = t.y == rowBytes, coded = !idle && t.y != 0 && !raw;
		if (store == STORE_16) {
			if (!idle && raw)
				x = *(const u32x4 *)(row + k * 16);
			if (second && raw)
				y = *(const u32x4 *)(row + (k + LANES) * 16);
			u32x4 *p = (u32x4 *)((u8 *)a.out + (u64)t.x * rowBytes) + k;
			if (!idle && t.y != 0)
				*p = x;
			if (second && t.y != 0)
				p[LANES] = y;
		} else {
			warpSync(~0u); // the stored rows have been read
			if (coded)
				*(u32x4 *)(row + k * 16) = x;
			if (coded && second)
				*(u32x4 *)(row + (k + LANES) * 16) = y;
			warpSync(~0u);
#pragma unroll
			for (u32 i = 0; i < TILES; i++) { // the whole warp writes the rows of its tiles
				u32x2 of = *(const u32x2 *)&ticketsOfWarp[i * 2 * ROUND + j % (2 * ROUND)].position;
				if (of.y != 0)
					storeStaged<32, (2 * LANES + 31) / 32>(store, (u8 *)a.out + (u64)of.x * rowBytes, ringOfWarp + i * ringBytes + rowAt, lane, rowBytes);
			}
		}
		bool bad = coded && (bitsOfRow + half + (to >> 16) + 7) / 8 != t.y;
		if (k == 0 && bad)
			corruptRow(a.counters, t.x);
	}
	rows.end();
}

// Launch bounds: two blocks a multiprocessor have up to 128 registers a thread. With 80 or 96 the planes of two quads do not fit, and kernels
// are up to three times as slow.
#if ROW_KIND == KIND_FIXED
#define NAME(op, lanes) op##TwoFixed##lanes
#else
#define NAME(op, lanes) op##Two##lanes
#endif
constexpr int CHUNK = ROW_CODER::CHUNK, STEPS = ROW_CODER::STEPS;
static_assert(TWO_LANES == 10, "the kernels' names");

#ifdef ROW_BUDDY
KERNEL void __launch_bounds__(256, 2) NAME(buddy, 10)(const BuddyArgs a)
{
	beginBuddy(a);
	decodeTwo<CHUNK, STEPS, TWO_LANES, ROW_KIND>(a.decode, Buddy(a, true));
	endBuddy(a);
}
#elif defined ROW_FIND
KERNEL void __launch_bounds__(256, 2) NAME(find, 10)(const FindArgs a)
{
	if (blockID() >= a.decoders) {
		fetchLast<ROW_CODER>(a);
		return;
	}
	decodeTwo<CHUNK, STEPS, TWO_LANES, ROW_KIND>(a.decode, Looked(a), a.decoders);
	decoderDone(a);
}
#else
KERNEL void __launch_bounds__(256, 2) NAME(decode, 10)(const DecodeArgs a)
{
	decodeTwo<CHUNK, STEPS, TWO_LANES, ROW_KIND>(a, Listed(a));
	endBatch<END_DECODE>(a.counters, a.end);
}
#endif
