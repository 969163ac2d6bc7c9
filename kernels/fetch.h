// Misses as the fetching kernels see them.
#pragma once
#include "decode.h"

struct Miss {
	u64 at; // address, a multiple of 4
	u8 *row;
	u32 position;
	u32 length; // stored bytes; of a compressed row in place at most so many
	bool compressed, known;
};

INLINE Miss missOf(const FetchArgs &a, u32x4 found)
{
	u64 row = (u64)found.y << 32 | found.x;
	Miss m;
	m.position = found.z;
	m.row = (u8 *)a.out + (u64)found.z * a.codec.rowBytes;
	m.length = a.codec.rowBytes;
	if (a.tier.stride != 0) {
		m.at = a.tier.mem + row * a.tier.stride;
		m.compressed = a.tier.compressed != 0 && loadConst((const u64 *)a.tier.compressed + (row >> 6)) >> (row & 63) & 1;
		m.known = !m.compressed;
	} else {
		u64 word = loadConst((const u64 *)a.tier.index + row);
		m.at = a.tier.mem + offsetAt(word);
		m.compressed = compressedAt(word);
		m.known = true;
		if (m.compressed)
			m.length = minimum(storedAt(word), m.length); // the index is not trusted either: a stage has room for a row
	}
	return m;
}

INLINE void addHostBytes(u64 counters, u64 bytes) { atomicAdd(&((Counters *)counters)->hostBytes, bytes); }
