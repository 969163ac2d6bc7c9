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

// Decodes hits two rows at a time: the kernels of IBP with one mask and of tables without a codec, in place of decode.cu. ROW_CODER says
// the chunk length, 0 without a codec, and the steps of expansion. ROW_KIND picks one of the forms, each a module of its own, so that the
// driver compiles only what is used:
// 0 writes rows by units of 16 and 8 bytes;
// KIND_FIXED does the same for tables whose masks move no bit when a chunk is packed, and leaves expansion out;
// KIND_WORDS writes rows by units of 4 bytes and of 1: tiles put a row together in shared memory first (store.h).
// With ROW_PEERS some rows of the list lie in slabs of other devices. With ROW_FIND there is no list of hits: the kernel looks the rows up. Its last
// blocks read the misses. With ROW_BUDDY the rows are those of a resident table (buddy.h).
#define KIND_FIXED 1
#define KIND_WORDS 2

// storeHalves writes a tile's quads to a row that begins at a multiple of 8 bytes, by 16-byte stores at multiples of 16. Where the row does
// not begin at a multiple of 16, most lanes write the second half of the quad before theirs and the first half of their own. left is the
// bytes from the lane's quad to the row's end, 0 or less for a lane without a quad. All lanes of the warp call it.
template <int LANES> INLINE void storeHalves(u8 *p, u32x4 x, i32 left)
{
	bool first = laneID() % LANES == 0, last = laneID() % LANES == LANES - 1 || left <= 16;
	u32x4 unit = {tileBefore<LANES>(x.z), tileBefore<LANES>(x.w), x.x, x.y};
	if (left <= 0)
		return;
	if ((u64)p & 8) {
		if (first)
			*(u32x2 *)p = x.xy;
		else
			*(u32x4 *)(p - 8) = unit;
		if (last && left > 8) // no lane writes it
			*(u32x2 *)(p + 8) = x.zw;
	} else if (left > 8) {
		*(u32x4 *)p = x;
	} else {
		*(u32x2 *)p = x.xy;
	}
}

// A group of lanes decodes two rows at a time. The groups of the grid take the hits in turns. A group is a tile of LANES lanes or, if WIDE,
// a block. It has a lane for each quad of a row. A lane decodes the same quad of all rows, so the quad's metadata stay in registers.
//
// Asynchronous copies stage rows in shared memory, three pairs of rows a group. While the group decodes one pair, the next pair has arrived
// and its participation bits are scanned, and the third is being copied. This hides the latency of the copies and of the list. A fourth
// pair was 3 to 8 % slower, and so were copies with an L2 policy.
//
// Shared memory: DECODE_TICKETS bytes a thread, DECODE_STAGES × stageBytes a group, then FIND_SHARED bytes a thread with ROW_FIND.
template <int CHUNK, int STEPS, int LANES, bool WIDE, int KIND, class SOURCE>
INLINE void decodeRows(const DecodeArgs &a, SOURCE rows, u32 blocks = gridBlocks())
{
	extern __shared__ u32x4 dynamic[];
	__shared__ u32 excess[2][LONG_ROW / 512]; // if WIDE, the excess of each warp's quads: two rows in one word, for two pairs
	constexpr int C = CHUNK ? CHUNK : 4;
	constexpr int MOVES = KIND == KIND_FIXED ? 0 : STEPS;
	constexpr bool STAGED = KIND == KIND_WORDS && !WIDE;
	constexpr u32 N = 16 / C, PAIRS = DECODE_STAGES / 2; // chunks a quad
	using Kept = typename SOURCE::Kept;
	constexpr u32 PARTS = sizeof(Kept) / sizeof(Ticket), TICKETS = 2 * sizeof(Kept);
	// Words of resident tables may change while the kernel runs. So of a block that decodes a row one warp alone makes tickets, a few rows ahead.
	constexpr bool ONE_WARP = WIDE && PARTS == 2;
	const u32 tid = threadID(), lane = tid % LANES, warp = tid / 32, column = WIDE ? tid : lane;
	const u32 rowBytes = a.codec.rowBytes, quads = a.codec.quads, stageBytes = a.stageBytes, pairBytes = 2 * stageBytes;
	const bool used = column < quads, last = WIDE ? tid == blockThreads() - 1 : lane == LANES - 1;

	// A group takes two neighbouring rows, then the two that come 2 × groups later, and so on. A small batch is spread over all blocks.
	constexpr u32 TILES = WIDE ? 1 : 32 / LANES; // groups of a warp
	u32 warpAt = WIDE ? blockID() : blockID() + warp * blocks;
	u32 groups = (WIDE ? 1 : blockThreads() / LANES) * blocks;
	u32 lead = 2 * warpAt * TILES; // the warp's first row
	u32 ahead = lead + (WIDE ? 0 : laneID() / LANES * 2) + lane / 2 * 2 * groups + (lane & 1); // the row of the lane's next ticket
	rows.begin(ahead, LANES * groups, blockThreads() * TICKETS + (WIDE ? 1 : blockThreads() / LANES) * PAIRS * pairBytes);
	u32 hits = rows.count;

	Planes<MOVES> planes = {};
	u32 masked = 0, bitsBefore = 0;
	if (CHUNK != 0 && used) {
		Meta<GLOBAL, STEPS> meta{(const u8 *)a.codec.meta};
		planes = meta.template planes<MOVES>(column);
		masked = meta.masked(column);
		bitsBefore = headBits(a.codec) + meta.keptBefore(column);
	}
	if (lead >= hits)
		return;

	Kept *tickets = (Kept *)dynamic + (ONE_WARP ? 0 : (tid - lane) * 2); // two rounds of LANES
	u8 *ring = (u8 *)dynamic + blockThreads() * TICKETS + (WIDE ? 0 : tid / LANES * PAIRS * pairBytes);
	u32 ringAddress = sharedAddress(ring) + column * 16;

	// Makes the tickets of a round, a lane one.
	auto keep = [&](u32 round, auto... first) {
		if constexpr (PARTS == 2)
			tickets[round + lane] = sizeof...(first) != 0 ? rows.first(ahead, LANES * groups) : rows.make(ahead, LANES * groups);
		else
			tickets[round + lane] = rows.make(ahead, LANES * groups);
	};
	// Starts the copies of a group's rows j and j + 1. Every LANES rows, each lane makes the ticket of one row, unless they are made.
	auto stage = [&](u32 slot, u32 j, auto... made) {
		// Where one warp makes them, the block meets before it needs them, and is done with those before.
		if (u32 of = ONE_WARP ? j + 4 : j; sizeof...(made) == 0 && (of & (LANES - 1)) == 0) {
			if (!ONE_WARP || warp == 0)
				keep(of & LANES);
			ahead += LANES * groups;
			warpSync(~0u);
		}
		const Kept *kept = &tickets[j & (2 * LANES - 1)];
		u32x4 head0 = *(const u32x4 *)kept, head1 = *(const u32x4 *)(kept + 1);
		copyQuad(ringAddress + slot, kept, head0, column * 16);
		copyQuad(ringAddress + slot + stageBytes, kept + 1, head1, column * 16);
		copySecond(ringAddress + slot, kept, head0, column * 16, ringAddress + slot + stageBytes, kept + 1, head1, column * 16);
		copyCommit();
	};
	auto groupSync = [&] {
		if (WIDE)
			blockSync();
		else
			warpSync(~0u);
	};

	// Reads which chunks of a pair of rows participate, and sums the excess up to each quad: one scan for both rows.
	u32 part0 = 0, part1 = 0, through = 0, before = 0;
	auto scan = [&](u32 slot, u32 parity) {
		const u8 *bits = ring + slot + column * N / 32 * 4;
		part0 = bytesOf(*(const u32 *)bits >> (column * N & 31) & ((1 << N) - 1));
		part1 = bytesOf(*(const u32 *)(bits + stageBytes) >> (column * N & 31) & ((1 << N) - 1));
		u32 more = byteSum(masked & ~part0) + (byteSum(masked & ~part1) << 16);
		through = tileScan<LANES>(~0u, more);
		before = through - more;
		if (WIDE && lane == 31)
			excess[parity][warp] = through;
	};
	auto quadAt = [&](const u8 *row, u32 at, u32 part) {
		const u32 *w = (const u32 *)(row + at / 32 * 4);
		u32 x[5] = {w[0], w[1], w[2], w[3], w[4]};
		return expandQuad<C>(x, at, planes, part, masked);
	};

	const u32 store = a.codec.store, bitsOfRow = headBits(a.codec) + keptBits(a.codec);
	u8 *out = (u8 *)a.out + column * 16;
	auto put = [&](u8 *p, u32x4 x, bool active) {
		if (KIND != KIND_WORDS)
			storeHalves<LANES>(p, x, active ? rowBytes - column * 16 : 0);
		else if (active)
			storeQuad(p - column * 16, column, x, rowBytes, store == STORE_4 ? STORE_4 : STORE_1);
	};

	if constexpr (PARTS == 2) { // the row numbers of the first tickets are there
		if (!ONE_WARP || warp == 0)
			keep(0, true);
		ahead += LANES * groups;
		if (ONE_WARP)
			blockSync();
		else
			warpSync(~0u);
#pragma unroll
		for (u32 i = 0; i < PAIRS - 1; i++)
			stage(i * pairBytes, 2 * i, true);
	} else {
#pragma unroll
		for (u32 i = 0; i < PAIRS - 1; i++)
			stage(i * pairBytes, 2 * i);
	}
	copyWaitGroups<PAIRS - 2>();
	groupSync();
	if (CHUNK != 0)
		scan(0, 0);
	u32 slot = 0, freed = (PAIRS - 1) * pairBytes;
	for (u32 j = 0; lead < hits; lead += 2 * groups, j += 2) {
		copyWaitGroups<PAIRS - 3>();
		groupSync(); // the next pair has arrived, and the pair before has been read
		rows.advance();
		stage(freed, j + 2 * (PAIRS - 1));
		freed = slot;
		u8 *row = ring + slot;
		slot = slot + pairBytes == PAIRS * pairBytes ? 0 : slot + pairBytes;
		u32 p0 = part0, p1 = part1, to = through, from = before, warps = 0;
		if (WIDE && CHUNK != 0)
			warps = warpSum(lane < warp ? excess[j >> 1 & 1][lane] : 0); // below 2^16 each: at most 15 warps × 32 quads × 128
		if (CHUNK != 0)
			scan(slot, ~(j >> 1) & 1);
		const Kept *t = &tickets[j & (2 * LANES - 1)];
		u32x2 t0 = *(const u32x2 *)&t[0].position, t1 = *(const u32x2 *)&t[1].position;
		u32x4 x0 = {0, 0, 0, 0}, x1 = x0;
		if (CHUNK != 0) {
			x0 = quadAt(row, bitsBefore + (warps & 0xffff) + (from & 0xffff), p0);
			x1 = quadAt(row + stageBytes, bitsBefore + (warps >> 16) + (from >> 16), p1);
		}
		bool raw0 = t0.y == rowBytes, raw1 = t1.y == rowBytes;
		if (!STAGED && (CHUNK == 0 || ballot(~0u, raw0 || raw1))) {
			if (used && raw0)
				x0 = *(const u32x4 *)(row + column * 16);
			if (used && raw1)
				x1 = *(const u32x4 *)(row + stageBytes + column * 16);
		}
		bool coded0 = CHUNK != 0 && t0.y != 0 && !raw0, coded1 = CHUNK != 0 && t1.y != 0 && !raw1;
		if (STAGED) {
			warpSync(~0u); // the stored rows have been read
			if (used && coded0)
				*(u32x4 *)(row + column * 16) = x0;
			if (used && coded1)
				*(u32x4 *)(row + stageBytes + column * 16) = x1;
			warpSync(~0u);
			if (coded0 || raw0)
				storeStaged<LANES, 1>(store, (u8 *)a.out + (u64)t0.x * rowBytes, row, lane, rowBytes);
			if (coded1 || raw1)
				storeStaged<LANES, 1>(store, (u8 *)a.out + (u64)t1.x * rowBytes, row + stageBytes, lane, rowBytes);
		}
		bool write0 = !STAGED && used && (CHUNK ? t0.y != 0 : raw0), write1 = !STAGED && used && (CHUNK ? t1.y != 0 : raw1);
		u8 *out0 = out + (u64)t0.x * rowBytes, *out1 = out + (u64)t1.x * rowBytes;
		if (KIND != KIND_WORDS && store == STORE_16) {
			if (write0)
				*(u32x4 *)out0 = x0;
			if (write1)
				*(u32x4 *)out1 = x1;
		} else {
			put(out0, x0, write0);
			put(out1, x1, write1);
		}
		bool bad0 = t0.y != 0 && !raw0 && (CHUNK == 0 || (bitsOfRow + (warps & 0xffff) + (to & 0xffff) + 7) / 8 != t0.y);
		bool bad1 = t1.y != 0 && !raw1 && (CHUNK == 0 || (bitsOfRow + (warps >> 16) + (to >> 16) + 7) / 8 != t1.y);
		if (last && (bad0 || bad1)) {
			if (bad0)
				corruptRow(a.counters, t0.x);
			if (bad1)
				corruptRow(a.counters, t1.x);
		}
	}
	rows.end();
}

#ifdef ROW_BUDDY
using LongArgs = BuddyArgs;
using LongRows = BuddyOfBlock;
#else
using LongArgs = DecodeArgs;
using LongRows = Listed;
#endif

// A block decodes a row. Its warps first sum the excess of each segment, then decode the segments. Dynamic shared memory: none.
template <int CHUNK, int STEPS> INLINE void decodeLongRows(const LongArgs &args)
{
	LongRows rows(args);
	const DecodeArgs &a = rows.a;
	__shared__ u32 excess[MAX_SEGMENTS + 1];
	constexpr int C = CHUNK ? CHUNK : 4;
	Meta<GLOBAL, STEPS> meta{(const u8 *)a.codec.meta};
	u32 tid = threadID(), lane = tid & 31, warp = tid / 32, warps = blockThreads() / 32;
	u32 hits = rows.all();
	u32 segments = (a.codec.quads + SEGMENT_QUADS - 1) / SEGMENT_QUADS;
	for (u32 i = blockID(); i < hits; i += gridBlocks()) {
		LongRows::Kept t = rows.one(i);
		if (sizeof(t) != sizeof(Ticket) && t.length == 0)
			continue;
		u8 *row = (u8 *)a.out + (u64)t.position * a.codec.rowBytes;
		bool raw = t.length == a.codec.rowBytes;
		auto words = rows.words(t, ((raw ? t.length : minimum(t.length, a.codec.rowBytes)) + 3) / 4);
		if (raw || CHUNK == 0 || t.length == BAD_LENGTH) {
			if (raw)
				tileCopy<256>(a.codec, words, tid, row);
			else if (tid == 0)
				corruptRow(a.counters, t.position);
			continue;
		}
		blockSync(); // excess is free
		for (u32 s = warp; s < segments; s += warps) {
			u32 from = s * SEGMENT_QUADS, to = minimum(from + SEGMENT_QUADS, a.codec.quads);
			u32 sum = tileExcess<C, 32>(words, meta, ~0u, lane, from, to);
			if (lane == 0)
				excess[s + 1] = sum;
		}
		blockSync();
		if (tid == 0) {
			excess[0] = 0;
			for (u32 s = 0; s < segments; s++)
				excess[s + 1] += excess[s];
			if (storedBytes(a.codec, excess[segments]) != t.length)
				corruptRow(a.counters, t.position);
		}
		blockSync();
		for (u32 s = warp; s < segments; s += warps) {
			u32 from = s * SEGMENT_QUADS, to = minimum(from + SEGMENT_QUADS, a.codec.quads);
			tileDecode<C, STEPS, 32>(a.codec, words, words, meta, ~0u, lane, from, to, excess[s], row);
		}
	}
}

// Launch bounds. Tiles: three blocks per multiprocessor with up to 80 registers a thread are 3 to 6 % faster than four
// with 64, which spill. KIND_FIXED does not spill with 64, and four blocks are 5 % faster, but with lookups it does. Blocks that decode a row: 64 registers are 4 to
// 18 % faster than 80, but for KIND_WORDS 76 are 6 % faster than 64.
#define TILE(name, lanes, blocks)                                                                                                \
	KERNEL void __launch_bounds__(256, blocks) name##lanes(const DecodeArgs a)                                               \
	{                                                                                                                        \
		decodeRows<CHUNK, STEPS, lanes, false, ROW_KIND>(a, Listed(a));                                                  \
		endBatch<END_DECODE>(a.counters, a.end);                                                                         \
	}
#define DECODE(name, blocks, wide)                                                                                               \
	TILE(name, 8, blocks)                                                                                                    \
	TILE(name, 16, blocks)                                                                                                   \
	TILE(name, 32, blocks)                                                                                                   \
	KERNEL void __launch_bounds__(512, wide) name##Wide(const DecodeArgs a)                                                  \
	{                                                                                                                        \
		decodeRows<CHUNK, STEPS, 32, true, ROW_KIND>(a, Listed(a));                                                      \
		endBatch<END_DECODE>(a.counters, a.end);                                                                         \
	}
#define FIND(name, lanes, blocks)                                                                                                \
	KERNEL void __launch_bounds__(256, blocks) name##lanes(const FindArgs a)                                                 \
	{                                                                                                                        \
		if (blockID() >= a.decoders) {                                                                                   \
			fetchLast<ROW_CODER>(a);                                                                                 \
			return;                                                                                                  \
		}                                                                                                                \
		decodeRows<CHUNK, STEPS, lanes, false, ROW_KIND>(a.decode, Looked(a), a.decoders);                               \
		decoderDone(a);                                                                                                  \
	}
#define BUDDY(name, threads, lanes, blocks, wide)                                                                                \
	KERNEL void __launch_bounds__(threads, blocks) name(const BuddyArgs a)                                                   \
	{                                                                                                                        \
		beginBuddy(a);                                                                                                   \
		decodeRows<CHUNK, STEPS, lanes, wide, ROW_KIND>(a.decode, BuddyRows<true>(a, !wide || threadID() < 32));         \
		endBuddy(a);                                                                                                     \
	}
#define BUDDIES(name, blocks, wide)                                                                                              \
	BUDDY(name##8, 256, 8, blocks, false)                                                                                    \
	BUDDY(name##16, 256, 16, blocks, false)                                                                                  \
	BUDDY(name##32, 256, 32, blocks, false)                                                                                  \
	BUDDY(name##Wide, 512, 32, wide, true)
#define FINDS(name, blocks) FIND(name, 8, blocks) FIND(name, 16, blocks) FIND(name, 32, blocks)

constexpr int CHUNK = ROW_CODER::CHUNK, STEPS = ROW_CODER::STEPS;
#define BUDDY_BLOCKS (CHUNK == 0 ? 4 : 3) // of raw rows few registers more would cost a block

#if defined ROW_BUDDY && ROW_KIND == KIND_FIXED
BUDDIES(buddyFixed, 4, 2)
#elif defined ROW_BUDDY && ROW_KIND == KIND_WORDS
BUDDIES(buddyWords, 3, 1)
#elif defined ROW_BUDDY
BUDDIES(buddy, BUDDY_BLOCKS, 2)
KERNEL void __launch_bounds__(256) buddyLong(const BuddyArgs a)
{
	beginBuddy(a);
	decodeLongRows<CHUNK, STEPS>(a);
	endBuddy(a);
}
#elif defined ROW_FIND && ROW_KIND == KIND_FIXED
FINDS(findFixed, 3)
#elif defined ROW_FIND && ROW_KIND == KIND_WORDS
FINDS(findWords, 3)
#elif defined ROW_FIND
FINDS(find, 3)
#elif defined ROW_PEERS
DECODE(decodePeers, 3, 2)
#elif ROW_KIND == KIND_FIXED
DECODE(decodeFixed, 4, 2)
#elif ROW_KIND == KIND_WORDS
DECODE(decodeWords, 3, 1)
#else
DECODE(decode, 3, 2)
KERNEL void __launch_bounds__(256) decodeLong(const DecodeArgs a)
{
	decodeLongRows<CHUNK, STEPS>(a);
	endBatch<END_DECODE>(a.counters, a.end);
}
#endif
