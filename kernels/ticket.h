// Hits as the kernels that decode them from a list see them.
#pragma once
#include "words.h"

INLINE u64 slabOf(const DecodeArgs &a, u64 word)
{
	u64 slab = a.slabs[0];
#pragma unroll
	for (u32 i = 1; i < MAX_SLABS; i++) // selects, not an indexed parameter
		slab = slabAt(word) == i ? a.slabs[i] : slab;
	return slab;
}

// A Ticket is a row to decode. length is its stored bytes: the row's length for a raw row, less for a compressed one, and 0 if there is no
// row. It is BAD_LENGTH, which is negative as an int, for a compressed row no shorter than a raw one: no encoder makes such a row.
struct Ticket {
	u64 stored;
	u32 position, length;
};
static_assert(2 * sizeof(Ticket) == DECODE_TICKETS, "DECODE_TICKETS");
constexpr u32 BAD_LENGTH = 1u << 31;

INLINE Ticket ticketOf(const DecodeArgs &a, u32x4 found)
{
	u64 word = (u64)found.y << 32 | found.x;
	u32 length = storedAt(word), rowBytes = a.codec.rowBytes;
	Ticket t;
	t.stored = slabOf(a, word) + offsetAt(word);
	t.position = found.z;
	t.length = !compressedAt(word) ? rowBytes : length - 1 < rowBytes - 1 ? length : BAD_LENGTH;
	return t;
}

// Listed makes the tickets of a batch's list of hits, a lane those of every step-th row. It reads the list one entry ahead. Looked
// (looked.h) makes them without a list.
struct Listed {
	using Kept = Ticket; // what make returns
	const DecodeArgs &a;
	u32 count; // hits
	u32x4 next; // the entry that the next call of make is for

	INLINE Listed(const DecodeArgs &args) : a(args), count(0), next{0, 0, 0, 0} {}
	// begin starts with the lane's first row. step is from its one to its next, and shared where shared memory for lookups begins.
	INLINE void begin(u32 row, u32, u32)
	{
		if (row < a.count)
			next = loadConst((const u32x4 *)a.found + row);
		count = ((const Counters *)a.counters)->hits;
	}
	INLINE Ticket make(u32 row, u32 step)
	{
		Ticket t{0, 0, 0};
		if (row < count)
			t = ticketOf(a, next);
		if (row + step < count)
			next = loadConst((const u32x4 *)a.found + row + step);
		return t;
	}
	INLINE void advance() {}
	INLINE void end() {}
	// For rows that are decoded where they lie: how many there are, each one's ticket, and its words.
	INLINE u32 all() const { return ((const Counters *)a.counters)->hits; }
	INLINE Ticket one(u32 i) const { return ticketOf(a, loadConst((const u32x4 *)a.found + i)); }
	static INLINE Words<GLOBAL> words(const Ticket &t, u32 limit) { return {(const u32 *)t.stored, 0, limit}; }
};

// copyRow16 copies 16 bytes of a row to shared memory. The copy goes through the first-level cache with ROW_PEERS, for lists some of whose rows lie in slabs of
// other devices, and ROW_BUDDY, for resident tables. That cache asks a link for whole sectors and lines, so rows of peers come 1.6 times as fast, and rows that many
// batches read 1.4 to 1.7 times. It may keep bytes beside the row that change later. So only rows are read so that were in their places before any kernel began that
// may have filled the cache: those of lists, and those of resident tables, whose words name places that were written two epochs before.
INLINE void copyRow16(u32 shared, u64 global)
{
#if defined ROW_PEERS || defined ROW_BUDDY
	copyCached16(shared, global);
#else
	copyAsync16(shared, global);
#endif
}

// copyQuad starts the copy of a row's 16 bytes from at on to shared memory, if the row is so long. head is its ticket, as four words.
INLINE void copyQuad(u32 shared, const Ticket *, u32x4 head, u32 at)
{
	if ((i32)at < (i32)head.w)
		copyRow16(shared, ((u64)head.y << 32 | head.x) + at);
}

// copySecond is for rows in two parts (buddy.h).
INLINE void copySecond(u32, const Ticket *, u32x4, u32, u32, const Ticket *, u32x4, u32) {}
