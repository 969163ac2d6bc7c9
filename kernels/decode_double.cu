#include "coder.h"
#include "ibp.h"
#include "publish.h"
#include "ticket.h"
#ifdef ROW_BUDDY
#include "buddy.h"
#else
#include "looked.h"
#endif

// Finds rows of 33 to 64 quads and decodes them in one launch: for IBP with one mask and tables without a codec, the counterpart of
// decode_pairs.cu for rows that have more quads than a warp has lanes, from 768 bytes on (coders.go). Rows begin at multiples of 8 bytes. With
// ROW_KIND 1 masks move no bit when a chunk is packed. With ROW_BUDDY the rows are those of a resident table (buddy.h). Else the kernel looks them up, and
// the last blocks read the misses.
//
// A warp decodes a row at a time, two quads a lane: quad number lane and the one 32 further on, of all rows. Their metadata stay in registers
// if masks move no bit, else they lie in shared memory: in registers they spill, or leave room for two blocks a multiprocessor only, which is
// slower. Asynchronous copies stage rows in shared memory, three a warp, as decode_pairs.cu stages pairs.
//
// Shared memory: two tickets a thread, DECODE_STAGES / 2 × stageBytes a warp, LOOKUP bytes a thread, then the metadata unless KEPT.

constexpr int CHUNK = ROW_CODER::CHUNK, STEPS = ROW_CODER::STEPS;

// storeQuadOf writes quad column of a row that begins at a multiple of 16 bytes, or of 8: its two halves then.
INLINE void storeQuadOf(u8 *row, u32 column, u32x4 x, u32 rowBytes, bool whole)
{
	u8 *p = row + column * 16;
	if (whole) {
		*(u32x4 *)p = x;
		return;
	}
	*(u32x2 *)p = x.xy;
	if (rowBytes - column * 16 > 8)
		*(u32x2 *)(p + 8) = x.zw;
}

#ifdef ROW_BUDDY
constexpr u32 LOOKUP = 0;
#else
constexpr u32 LOOKUP = FIND_SHARED;
#endif

template <int MOVES, bool KEPT, class SOURCE> INLINE void decodeDouble(const DecodeArgs &a, SOURCE rows, u32 blocks)
{
	extern __shared__ u32x4 dynamic[];
	constexpr int C = CHUNK ? CHUNK : 4;
	constexpr u32 N = 16 / C, STAGES = DECODE_STAGES / 2; // chunks a quad
	using Kept = typename SOURCE::Kept;
	constexpr u32 TICKETS = 2 * sizeof(Kept);
	const u32 lane = laneID(), warp = threadID() / 32, warps = blockThreads() / 32, stageBytes = a.stageBytes;
	const u32 rowBytes = a.codec.rowBytes, columns[2] = {lane, lane + 32};
	const bool second = columns[1] < a.codec.quads, whole = a.codec.store == STORE_16;

	u32 step = warps * blocks, lead = blockID() + warp * blocks, ahead = lead + lane * step;
	rows.begin(ahead, 32 * step, blockThreads() * TICKETS + warps * STAGES * stageBytes);
	u32 hits = rows.count;

	Planes<MOVES> planes[2] = {};
	Meta<SHARED, STEPS> shared{(u8 *)dynamic + blockThreads() * (TICKETS + LOOKUP) + warps * STAGES * stageBytes};
	if (!KEPT)
		loadMeta(a.codec, (u8 *)shared.p);
	u32 masked[2] = {0, 0}, bitsBefore[2] = {0, 0};
	if (CHUNK != 0) {
		Meta<GLOBAL, STEPS> meta{(const u8 *)a.codec.meta};
#pragma unroll
		for (int h = 0; h < 2; h++) {
			if (h == 1 && !second)
				break;
			if (KEPT)
				planes[h] = meta.template planes<MOVES>(columns[h]);
			masked[h] = meta.masked(columns[h]);
			bitsBefore[h] = headBits(a.codec) + meta.keptBefore(columns[h]);
		}
	}
	if (lead >= hits)
		return;

	Kept *tickets = (Kept *)dynamic + warp * 64; // two rounds
	u8 *ring = (u8 *)dynamic + blockThreads() * TICKETS + warp * STAGES * stageBytes;
	u32 ringAddress = sharedAddress(ring) + lane * 16;

	// Starts the copies of the warp's row j. Every 32 rows, each lane makes the ticket of one row.
	auto stage = [&](u32 slot, u32 j) {
		if ((j & 31) == 0) {
			tickets[(j & 32) + lane] = rows.make(ahead, 32 * step);
			ahead += 32 * step;
			warpSync(~0u);
		}
		const Kept *kept = &tickets[j & 63];
		u32x4 head = *(const u32x4 *)kept;
		copyQuad(ringAddress + slot, kept, head, columns[0] * 16);
		copyQuad(ringAddress + slot + 512, kept, head, columns[1] * 16);
		copySecond(ringAddress + slot, kept, head, columns[0] * 16, ringAddress + slot + 512, kept, head, columns[1] * 16);
		copyCommit();
	};

	// Reads which chunks of a row participate, and sums the excess before either quad: one scan for both.
	u32 part[2] = {0, 0}, before[2] = {0, 0}, excess = 0;
	auto scan = [&](u32 slot) {
		u32 more = 0;
#pragma unroll
		for (int h = 0; h < 2; h++) {
			part[h] = bytesOf(*(const u32 *)(ring + slot + columns[h] * N / 32 * 4) >> (columns[h] * N & 31) & ((1 << N) - 1));
			more += byteSum(masked[h] & ~part[h]) << (16 * h);
		}
		u32 through = tileScan<32>(~0u, more), all = tileFrom<32>(~0u, through, 31);
		before[0] = (through - more) & 0xffff;
		before[1] = ((through - more) >> 16) + (all & 0xffff);
		excess = (all & 0xffff) + (all >> 16);
	};

	const u32 bitsOfRow = headBits(a.codec) + keptBits(a.codec);
#pragma unroll
	for (u32 i = 0; i < STAGES - 1; i++)
		stage(i * stageBytes, i);
	copyWaitGroups<STAGES - 2>();
	warpSync(~0u);
	if (CHUNK != 0)
		scan(0);
	u32 slot = 0, freed = (STAGES - 1) * stageBytes;
	for (u32 j = 0; lead < hits; lead += step, j++) {
		copyWaitGroups<STAGES - 3>();
		warpSync(~0u); // the next row has arrived, and the row before has been read
		rows.advance();
		stage(freed, j + STAGES - 1);
		freed = slot;
		const u8 *row = ring + slot;
		slot = slot + stageBytes == STAGES * stageBytes ? 0 : slot + stageBytes;
		u32 end = excess, of[2] = {part[0], part[1]}, at[2] = {bitsBefore[0] + before[0], bitsBefore[1] + before[1]};
		if (CHUNK != 0)
			scan(slot);
		u32x2 t = *(const u32x2 *)&tickets[j & 63].position;
		u8 *out = (u8 *)a.out + (u64)t.x * rowBytes;
		bool raw = t.y == rowBytes;
#pragma unroll
		for (int h = 0; h < 2; h++) {
			u32x4 x = {0, 0, 0, 0};
			if (CHUNK != 0 && !raw) {
				const u32 *w = (const u32 *)(row + at[h] / 32 * 4);
				u32 words[5] = {w[0], w[1], w[2], w[3], w[4]};
				if (!KEPT)
					planes[h] = shared.template planes<MOVES>(h == 0 || second ? columns[h] : columns[0]);
				x = expandQuad<C>(words, at[h], planes[h], of[h], masked[h]);
			} else if (raw && (h == 0 || second)) {
				x = *(const u32x4 *)(row + columns[h] * 16);
			}
			if ((h == 0 || second) && (CHUNK ? t.y != 0 : raw))
				storeQuadOf(out, columns[h], x, rowBytes, whole);
		}
		if (lane == 31 && t.y != 0 && !raw && (CHUNK == 0 || (bitsOfRow + end + 7) / 8 != t.y))
			corruptRow(a.counters, t.x);
	}
	rows.end();
}

#ifdef ROW_BUDDY
#define DOUBLE(form, moves, kept)                                                                                                \
	KERNEL void __launch_bounds__(256, 3) buddy##form##Double(const BuddyArgs a)                                             \
	{                                                                                                                        \
		beginBuddy(a);                                                                                                   \
		decodeDouble<moves, kept>(a.decode, Buddy(a, true), gridBlocks());                                               \
		endBuddy(a);                                                                                                     \
	}
#else
#define DOUBLE(form, moves, kept)                                                                                                \
	KERNEL void __launch_bounds__(256, 3) find##form##Double(const FindArgs a)                                               \
	{                                                                                                                        \
		if (blockID() >= a.decoders) {                                                                                   \
			fetchLast<ROW_CODER>(a);                                                                                 \
			return;                                                                                                  \
		}                                                                                                                \
		decodeDouble<moves, kept>(a.decode, Looked(a), a.decoders);                                                      \
		decoderDone(a);                                                                                                  \
	}
#endif

#if ROW_KIND == 1
DOUBLE(Fixed, 0, true)
#else
DOUBLE(, STEPS, CHUNK == 0)
#endif
