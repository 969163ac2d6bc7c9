// The hits of a batch whose rows a decoding kernel looks up itself.
#pragma once
#include "find.h"
#include "sample.h"
#include "ticket.h"

// Looked makes the tickets of a batch by looking its rows up. A row that misses gets no ticket and goes to the back of the list. A lane
// reads the numbers of its next two rows ahead, and prefetches the nearer one's bucket to the L2. begin, make and end are called by all
// lanes of a warp together.
struct Looked {
	const DecodeArgs &a;
	const LookupArgs &l;
	u32 count;
	u32 hits; // of the warp
	i64 next, after;

	INLINE Looked(const FindArgs &args) : a(args.decode), l(args.lookup), count(args.lookup.count), hits(0), next(-1), after(-1) {}
	INLINE i64 number(u32 row) const { return row < count ? rowAt(l, row) : -1; }
	INLINE void begin(u32 row, u32 step) { next = number(row), after = number(row + step); }
	INLINE Ticket make(u32 row, u32 step)
	{
		i64 of = next;
		next = after;
		after = number(row + 2 * step);
		if ((u64)next < (u64)l.limit)
			prefetchL2((const u8 *)l.map + (u64)Probe::of(hashOf(keyOf(next)), l.buckets).bucket * BUCKET_BYTES);
		bool in = row < count, ok = in && (u64)of < (u64)l.limit;
		u64 word = ok ? findWord(l.map, l.buckets, keyOf(of)) : ~0xffull;
		bool hit = located(word); // no row out of range has a location
		hits += popcount(ballot(~0u, hit));
		if (l.peers != 0) {
			u32 peers = ballot(~0u, hit && inPeers(l.peers, word));
			if (peers != 0)
				peersAside(l.counters, popcount(peers));
		}
		if (ballot(~0u, ok && !hit) != 0)
			missAside(l.counters, l.found + (u64)(count - 1) * sizeof(Found), ok && !hit, of, row, word, l.rejected, l.oversize);
		if (in && !ok)
			rangeAside(l.counters, l.out, l.rowBytes, row);
		const Sampling &s = l.samples;
		if (s.ring != 0)
			sampleAside(s.ring, s.head, s.accessSeed, s.keySeed, s.mask, s.accessBelow, s.keyBelow, s.missBelow, keyOf(of), ok, ok && !hit, row);
		Ticket t{0, 0, 0};
		if (hit)
			t = ticketOf(a, u32x4{(u32)word, (u32)(word >> 32), row, 0});
		return t;
	}
	INLINE void end() const
	{
		if (laneID() == 0)
			atomicAdd(&((Counters *)l.counters)->hits, hits);
	}
	INLINE u64 keyOf(i64 row) const { return (u64)l.table << 56 | (u64)row; }
};
