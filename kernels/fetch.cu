#include "fetch.h"

// Reads the misses of a batch from the host tier, over the link, and writes their rows to the output. Compiled once for
// each ROW_CHUNK, as decode.cu is; with ROW_MERGE, rows that several misses ask for are read once.
//
// A row's bytes go to shared memory by asynchronous copies whose lanes ask for aligned lines of 128 bytes, the first and last
// line trimmed to sectors of 32 bytes: 16 bytes a lane, so that a warp asks for four lines at once, or in rows of
// LINE_ROW and more 4 bytes a lane, one line after the other. Seen on an H200 over PCIe 5: 53 against 46 GB/s at 512 bytes,
// but 49 against 57 at 2408.
//
// The length of a compressed row in place is not known before its participation bits are there: so many bytes are read
// first, the rest, seldom more than a sector, once the bits have said where the row ends.

// Peers are the misses of one row among the 64 that share a group with it in the list: a warp reads the group, lane l has the
// positions of its misses l and l + 32.
struct Peers {
	u32 low, high; // bits of the group
	u32 positions[2];
	bool first; // the miss that was asked for is the first of them
};

INLINE Peers peersOf(const FetchArgs &a, u32 i, u32 misses, u32 lane, u32x4 of)
{
	Peers p;
	u32 group = i & ~63u, bits[2];
#pragma unroll
	for (u32 half = 0; half < 2; half++) {
		u32 k = group + half * 32 + lane;
		u32x4 m = of;
		bool same = k < misses;
		if (same) {
			m = loadConst((const u32x4 *)(a.misses + k * a.step));
			same = m.x == of.x && m.y == of.y;
		}
		p.positions[half] = m.z;
		bits[half] = ballot(~0u, same);
	}
	p.low = bits[0];
	p.high = bits[1];
	p.first = i - group == (p.low != 0 ? lowestBit(p.low) : 32 + lowestBit(p.high));
	return p;
}

// next takes a position from the peers.
INLINE u32 next(Peers &p)
{
	u32 position;
	if (p.low != 0) {
		position = tileFrom<32>(~0u, p.positions[0], lowestBit(p.low));
		p.low &= p.low - 1;
	} else {
		position = tileFrom<32>(~0u, p.positions[1], lowestBit(p.high));
		p.high &= p.high - 1;
	}
	return position;
}

// A tile of LANES lanes fetches a row; the tiles of the grid take the misses in turns. Shared memory: the codec's
// metadata, then stageBytes for each tile. MERGE, for whole warps: of misses of one row that are near each other in the list, as
// ordered ones are, the first one's warp fetches the row and writes it for all; requests for the same row, of several warps at
// once, each cross the link.
template <int CHUNK, int STEPS, int LANES, bool MERGE> INLINE void fetchRows(const FetchArgs &a)
{
	extern __shared__ u32x4 dynamic[];
	constexpr int C = CHUNK ? CHUNK : 4;
	static_assert(!MERGE || LANES == 32, "peers are found by warps");
	if (CHUNK != 0)
		loadMeta(a.codec, (u8 *)dynamic);
	Meta<SHARED, STEPS> meta{(const u8 *)dynamic};
	u32 lane = threadID() % LANES;
	u32 lanes = LANES == 32 ? ~0u : ((1u << (LANES & 31)) - 1) << (laneID() & ~(LANES - 1));
	u8 *stage = (u8 *)dynamic + a.codec.metaBytes + threadID() / LANES * a.stageBytes;
	u32 misses = ((const Counters *)a.counters)->misses;
	u32 tiles = gridBlocks() * (blockThreads() / LANES);
	bool byLine = a.codec.rowBytes >= LINE_ROW;
	u64 moved = 0;
	for (u32 i = (blockID() * blockThreads() + threadID()) / LANES; i < misses; i += tiles) {
		u32x4 found = loadConst((const u32x4 *)(a.misses + i * a.step));
		Peers peers = {0, 0, {0, 0}, true};
		if (MERGE) {
			peers = peersOf(a, i, misses, lane, found);
			if (!peers.first)
				continue;
		}
		Miss m = missOf(a, found);
		bool ok = !m.compressed || CHUNK != 0;
		u64 base = m.at & ~127ull;
		Words<SHARED> words{(const u32 *)(stage + (m.at - base)), 0, (m.length + 3) / 4};
		if (ok) {
			u32 first = m.known ? m.length : minimum(a.ahead, m.length);
			stageBytes<LANES>(stage, base, m.at, m.at + first, lane, byLine);
			copyWait();
			warpSync(lanes);
			if (m.compressed && !m.known) {
				u32 length = storedBytes(a.codec, tileExcess<C, LANES>(words, meta, lanes, lane, 0, a.codec.quads));
				ok = length <= m.length;
				m.length = minimum(length, m.length);
				u64 have = (m.at + first + 31) & ~31ull;
				if (m.at + m.length > have) {
					stageBytes<LANES>(stage, base, have, m.at + m.length, lane, byLine);
					copyWait();
				}
				warpSync(lanes);
			}
		}
		do {
			if (MERGE) {
				m.position = next(peers);
				m.row = (u8 *)a.out + (u64)m.position * a.codec.rowBytes;
			}
			bool whole = ok;
			if (!m.compressed) {
				tileCopy<LANES>(a.codec, words, lane, m.row);
			} else if (CHUNK != 0) {
				u32 excess = tileDecode<C, STEPS, LANES>(a.codec, words, words, meta, lanes, lane, 0, a.codec.quads, 0, m.row);
				whole = ok && storedBytes(a.codec, excess) == m.length;
			}
			if (whole)
				moved += m.length;
			else if (lane == 0)
				corruptRow(a.counters, m.position);
		} while (MERGE && (peers.low | peers.high) != 0);
		warpSync(lanes); // the stage is free
	}
	if (lane == 0 && moved != 0)
		addHostBytes(a.counters, moved);
}

// A block fetches a row: its participation bits are read in place for the segments' bit positions, as in decodeLongRows;
// then each warp stages and decodes segments. Shared memory: stageBytes for each warp, enough for a segment whole.
template <int CHUNK, int STEPS> INLINE void fetchLongRows(const FetchArgs &a)
{
	extern __shared__ u32x4 dynamic[];
	__shared__ u32 excess[MAX_SEGMENTS + 1];
	constexpr int C = CHUNK ? CHUNK : 4;
	Meta<GLOBAL, STEPS> meta{(const u8 *)a.codec.meta};
	u32 tid = threadID(), lane = tid & 31, warp = tid / 32, warps = blockThreads() / 32;
	u8 *stage = (u8 *)dynamic + warp * a.stageBytes;
	u32 misses = ((const Counters *)a.counters)->misses;
	u32 segments = (a.codec.quads + SEGMENT_QUADS - 1) / SEGMENT_QUADS;
	for (u32 i = blockID(); i < misses; i += gridBlocks()) {
		Miss m = missOf(a, loadConst((const u32x4 *)(a.misses + i * a.step)));
		if (m.compressed && CHUNK == 0) {
			if (tid == 0)
				corruptRow(a.counters, m.position);
			continue;
		}
		if (!m.compressed) {
			for (u32 s = warp; s < segments; s += warps) {
				u32 from = s * SEGMENT_QUADS, to = minimum(from + SEGMENT_QUADS, a.codec.quads);
				u64 start = m.at + from * 16, base = start & ~127ull;
				stageBytes<32>(stage, base, start, m.at + minimum(to * 16, m.length), lane, true);
				copyWait();
				warpSync(~0u);
				const u32 *words = (const u32 *)(stage + (start - base));
				for (u32 q = from + lane; q < to; q += 32) {
					const u32 *w = words + (q - from) * 4;
					storeQuad(m.row, q, u32x4{w[0], w[1], w[2], w[3]}, a.codec.rowBytes, a.codec.store);
				}
				warpSync(~0u);
			}
			if (tid == 0)
				addHostBytes(a.counters, m.length);
			continue;
		}
		Words<GLOBAL> header{(const u32 *)m.at, 0, (m.length + 3) / 4};
		blockSync(); // excess is free
		for (u32 s = warp; s < segments; s += warps) {
			u32 from = s * SEGMENT_QUADS, to = minimum(from + SEGMENT_QUADS, a.codec.quads);
			u32 sum = tileExcess<C, 32>(header, meta, ~0u, lane, from, to);
			if (lane == 0)
				excess[s + 1] = sum;
		}
		blockSync();
		if (tid == 0) {
			excess[0] = 0;
			for (u32 s = 0; s < segments; s++)
				excess[s + 1] += excess[s];
			u32 length = storedBytes(a.codec, excess[segments]);
			if (m.known ? length == m.length : length <= m.length)
				addHostBytes(a.counters, length);
			else
				corruptRow(a.counters, m.position);
		}
		blockSync();
		u32 limit = (m.length + 3) / 4;
		for (u32 s = warp; s < segments; s += warps) {
			u32 from = s * SEGMENT_QUADS, to = minimum(from + SEGMENT_QUADS, a.codec.quads);
			u32 bits = a.codec.chunks + meta.keptBefore(from) + excess[s];
			u32 end = a.codec.chunks + excess[s + 1] + (to < a.codec.quads ? meta.keptBefore(to) : a.codec.keptBits);
			u32 word = minimum(bits / 32, limit), wordEnd = minimum((end + 31) / 32, limit);
			u64 start = m.at + (u64)word * 4, base = start & ~127ull;
			stageBytes<32>(stage, base, start, m.at + (u64)wordEnd * 4, lane, true);
			copyWait();
			warpSync(~0u);
			Words<SHARED> words{(const u32 *)(stage + (start - base)), word, limit};
			tileDecode<C, STEPS, 32>(a.codec, header, words, meta, ~0u, lane, from, to, excess[s], m.row);
			warpSync(~0u);
		}
	}
}

#ifdef ROW_MERGE
#define FETCH(steps)                                                                                                             \
	KERNEL void __launch_bounds__(256) fetchMerged32x##steps(const FetchArgs a) { fetchRows<ROW_CHUNK, steps, 32, true>(a); }
#else
#define FETCH(steps)                                                                                                             \
	KERNEL void __launch_bounds__(256) fetch32x##steps(const FetchArgs a) { fetchRows<ROW_CHUNK, steps, 32, false>(a); }         \
	KERNEL void __launch_bounds__(256) fetchLongx##steps(const FetchArgs a) { fetchLongRows<ROW_CHUNK, steps>(a); }
#endif

#if ROW_CHUNK == 4
FETCH(3)
FETCH(5)
#elif ROW_CHUNK == 8
FETCH(4)
FETCH(6)
#else
FETCH(0)
#endif
