// What the kernels that read the host tier know of a miss.
#pragma once
#include "words.h"

struct Miss {
	u64 at; // address, a multiple of 4
	u8 *row;
	u32 position;
	u32 length; // stored bytes; an upper bound unless known
	bool compressed, known;
};

INLINE Miss missOf(const HostTier &tier, u64 out, u32 rowBytes, u32x4 found)
{
	u64 row = (u64)found.y << 32 | found.x;
	Miss m;
	m.position = found.z;
	m.row = (u8 *)out + (u64)found.z * rowBytes;
	m.length = rowBytes;
	if (tier.stride != 0) {
		m.at = tier.mem + row * tier.stride;
		m.compressed = tier.compressed != 0 && loadConst((const u64 *)tier.compressed + (row >> 6)) >> (row & 63) & 1;
		m.known = !m.compressed;
	} else {
		u64 word = loadConst((const u64 *)tier.index + row);
		m.at = tier.mem + offsetAt(word);
		m.compressed = compressedAt(word);
		m.known = true;
		if (m.compressed)
			m.length = minimum(storedAt(word), m.length); // the index is not trusted: a stage has room for one row
	}
	return m;
}

INLINE Miss missOf(const FetchArgs &a, u32x4 found) { return missOf(a.tier, a.out, a.codec.rowBytes, found); }

// missesOf returns the number of the batch's misses. A kernel with none returns before it prepares anything.
INLINE u32 missesOf(const FetchArgs &a) { return ((const Counters *)a.counters)->misses; }

constexpr u32 LINE_ROW = 2048; // see fetch.cu

// stageBytes starts the copies of the 32-byte sectors of [from, to) to shared memory, and does not wait for them. Address base, the first
// line's, goes to the start of stage.
template <int LANES> INLINE void stageBytes(u8 *stage, u64 base, u64 from, u64 to, u32 lane, bool byLine)
{
	from &= ~31ull;
	to = (to + 31) & ~31ull;
	if (byLine) {
		for (u64 at = (from & ~127ull) + lane * 4; at < to; at += LANES * 4)
			if (at >= from)
				copyAsync4(stage + (at - base), at);
		return;
	}
	for (u64 at = (from & ~127ull) + lane * 16; at < to; at += LANES * 16)
		if (at >= from)
			copyAsync16(stage + (at - base), at);
}

INLINE void addHostBytes(u64 counters, u64 bytes) { atomicAdd(&((Counters *)counters)->hostBytes, bytes); }
