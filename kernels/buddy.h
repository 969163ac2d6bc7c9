// Rows of a resident table, as the kernels that decode hits see them. See docs/format/buddy.md.
//
// A row has two places, the slot and, for what is longer, the overflow place. Both follow from its number. So a kernel reads the row's word, then
// copies both parts to one stage in shared memory, and the coder sees nothing of it. The row's ticket says where its first part ends (split). That is a
// multiple of 16 or the row's end, so each 16 bytes come from one part. Few rows have a second part: its address is read by the lanes that need it.
//
// The words change while the kernel runs. A row's word is therefore read once, by one lane, which makes the ticket that all others use.
#pragma once
#include "abi_buddy.h"
#include "find_key.h"
#include "publish.h"
#include "replay.h"
#include "ticket.h"

// BuddyTicket is a Ticket of a row in two parts: bytes before split are at stored, the others at over plus their number. Of a row in one part split is
// its length and over is stored. The first half has what a copy of the first part needs, and the second what decoding needs, length included.
struct BuddyTicket {
	u64 stored;
	u32 split, length;
	u64 over;
	u32 position, lengthToo;
};
static_assert(2 * sizeof(BuddyTicket) == BUDDY_TICKETS, "BUDDY_TICKETS");

// copyQuad starts the copy of a row's 16 bytes from at on to shared memory, if the first part has them. head is the first half of its ticket.
INLINE void copyQuad(u32 shared, const BuddyTicket *, u32x4 head, u32 at)
{
	if ((i32)at < (i32)head.z)
		copyRow16(shared, ((u64)head.y << 32 | head.x) + at);
}

// secondAside starts the copy of a row's 16 bytes from at on, if the second part has them.
ASIDE void secondAside(u32 shared, const BuddyTicket *ticket, u32 at)
{
	if ((i32)at >= (i32)ticket->split && (i32)at < (i32)ticket->length)
		copyRow16(shared, ticket->over + at);
}

// copySecond starts those copies for a lane's two quads: one test for both, as few rows have a second part.
INLINE void copySecond(u32 shared0, const BuddyTicket *ticket0, u32x4 head0, u32 at0, u32 shared1, const BuddyTicket *ticket1, u32x4 head1, u32 at1)
{
	if (head0.z != head0.w || head1.z != head1.w) {
		secondAside(shared0, ticket0, at0);
		secondAside(shared1, ticket1, at1);
	}
}

// SplitWords are the words of a stored row in two parts in global memory: word split and those behind it are at over + split and behind.
struct SplitWords {
	const u32 *p, *over;
	u32 limit, split;
	INLINE u32 load(u32 w) const { return loadConst((w < split ? p : over) + w); }
	INLINE u32 at(u32 w) const { return load(minimum(w, limit)); }
	INLINE void window(u32 w, u32 (&x)[5]) const
	{
		w = minimum(w, limit);
#pragma unroll
		for (u32 i = 0; i < 5; i++)
			x[i] = load(w + i);
	}
};

// BuddyBlock is what a block has in shared memory: the table's length; its ranges, unless all rows are in that of the arguments; in a captured graph the latest view, which stays in its place while the replay
// runs; what was counted: rows read in part from buddy memory and their bytes there, and rows of other devices; and words, slots and overs of the
// arguments by device, as parameters cannot be indexed.
struct BuddyBlock {
	i64 limit;
	const BuddyRange *ranges;
	const ReplayView *view;
	u64 bytes;
	u32 overflows, peers;
	u64 words[MAX_SLABS], slots[MAX_SLABS], overs[MAX_SLABS];
};
INLINE BuddyBlock *buddyBlock()
{
	__shared__ BuddyBlock block;
	return &block;
}

constexpr u64 BUDDY_HOME = 1;

// BuddyPlaces are where a row's slot and its overflow place lie, and its target.
struct BuddyPlaces {
	u64 slot, over;
	u32 target;
};

// placesAside returns the places of a row of a table with several ranges. A range is written two epochs before a word names it, so it may be read
// through any cache.
ASIDE BuddyPlaces placesAside(const BuddyRange *ranges, u64 word, u32 device, u64 local)
{
	const BuddyRange *range = ranges + (word >> 1 & (MAX_RANGES - 1));
	u32 target = loadConst(&range->target), over = loadConst(&range->over);
	return {loadConst(&range->slots[device]) + local * target, loadConst(&range->overs[device]) + local * over, target};
}

constexpr u32 OVERSIZE = 4; // the reason as which rows with bytes in buddy memory are counted

// overlayBase returns the address of a slab of the overlay.
INLINE u64 overlayBase(const BuddyArgs &r, u64 word)
{
	return r.views != 0 ? loadDevice(&buddyBlock()->view->slabs[slabAt(word)]) : slabOf(r.decode, word);
}

// countAside adds what the lanes of a warp have read from buddy memory, or from other devices.
ASIDE void countAside(u32 bytes, bool peer)
{
	u32 overflows = popcount(ballot(~0u, bytes != 0)), all = warpSum(bytes), peers = popcount(ballot(~0u, peer));
	if (laneID() != 0)
		return;
	BuddyBlock *counts = buddyBlock();
	__atomic_fetch_add(&counts->bytes, (u64)all, __ATOMIC_RELAXED);
	__atomic_fetch_add(&counts->overflows, overflows, __ATOMIC_RELAXED);
	if (peers != 0)
		__atomic_fetch_add(&counts->peers, peers, __ATOMIC_RELAXED);
}

// outsideAside is rangeAside for a batch that counts all its rows as hits.
ASIDE void outsideAside(u64 counters, u64 out, u32 rowBytes, u32 position)
{
	rangeAside(counters, out, rowBytes, position);
	atomicAdd(&((Counters *)counters)->hits, ~0u);
}

// BuddyRows makes the tickets of a batch, a lane those of every step-th row. It reads words one entry ahead, and row numbers two. LEAN takes fewer
// registers: it reads row numbers again. makes says whether the
// caller makes tickets at all: of a block that decodes a row, one warp does.
template <bool LEAN> struct BuddyRows {
	using Kept = BuddyTicket;
	const BuddyArgs &r;
	const DecodeArgs &a;
	bool makes;
	u32 count;
	i64 number, next; // of the entry that the next call of make is for, and of the one behind it
	u64 word;	  // of the former

	INLINE BuddyRows(const BuddyArgs &args, bool makes) : r(args), a(args.decode), makes(makes), count(args.decode.count), number(-1), next(-1), word(0) {}
	INLINE bool mixed() const { return buddyBlock()->ranges != 0; } // whether rows may have another target than the arguments'
	INLINE i64 numberAt(u32 row) const
	{
		if (row >= count)
			return -1;
		return r.narrow ? (i64)(i32)loadConst((const u32 *)a.found + row) : (i64)loadConst((const u64 *)a.found + row);
	}
	INLINE void prefetchNumber(u32 row) const
	{
		if (row < count)
			prefetchL2((const u8 *)a.found + (u64)row * (r.narrow ? 4 : 8));
	}
	// placeOf returns a row's device and its number there.
	INLINE u32 placeOf(i64 row, u64 &local) const
	{
		local = (u64)row;
		if (r.devices == 1)
			return 0;
		local = multiplyHigh((u64)row, r.magic);
		return (u32)row - (u32)local * r.devices;
	}
	INLINE u64 wordOf(i64 row) const
	{
		if ((u64)row >= (u64)buddyBlock()->limit)
			return 0;
		u64 local;
		u32 device = placeOf(row, local);
		return loadDevice((const u64 *)buddyBlock()->words[device] + local);
	}
	// ticket returns the ticket of a row at a position of the batch, given its word; how many of its bytes are in buddy memory; and whether it is on
	// another device.
	INLINE BuddyTicket ticket(i64 row, u64 word, u32 position, u32 &beyond, bool &peer) const
	{
		const u32 rowBytes = a.codec.rowBytes;
		BuddyTicket t{0, 0, 0, 0, position, 0};
		beyond = 0;
		peer = false;
		if ((u64)row >= (u64)buddyBlock()->limit)
			return t;
		u32 length = storedAt(word);
		t.length = !compressedAt(word) ? rowBytes : length - 1 < rowBytes - 1 ? length : BAD_LENGTH;
		t.lengthToo = t.split = t.length;
		if ((word & BUDDY_HOME) != 0) {
			u64 local;
			u32 device = placeOf(row, local);
			BuddyPlaces p;
			if (!mixed())
				p = {buddyBlock()->slots[device] + local * r.target, buddyBlock()->overs[device] + local * r.over, r.target};
			else
				p = placesAside(buddyBlock()->ranges, word, device, local);
			t.stored = t.over = p.slot;
			peer = (r.peers >> device & 1) != 0;
			if ((i32)t.length > (i32)p.target) {
				beyond = t.length - p.target;
				t.split = p.target;
				t.over = p.over - p.target;
			}
		} else {
			t.stored = t.over = overlayBase(r, word) + offsetAt(word);
			peer = inPeers(r.peers, word);
		}
		return t;
	}
	INLINE void begin(u32 row, u32 step, u32)
	{
		if (!makes)
			return;
		number = numberAt(row);
		next = numberAt(row + step);
		word = wordOf(number);
	}
	INLINE BuddyTicket make(u32 row, u32 step)
	{
		if (LEAN)
			number = numberAt(row), next = numberAt(row + step);
		return first(row, step);
	}
	// first is the first call of make: it has the row numbers of begin.
	INLINE BuddyTicket first(u32 row, u32 step)
	{
		u32 bytes;
		bool peer;
		BuddyTicket t = ticket(number, word, row, bytes, peer);
		if (ballot(~0u, bytes != 0 || peer) != 0)
			countAside(bytes, peer);
		if (row < count && t.length == 0)
			outsideAside(a.counters, a.out, a.codec.rowBytes, row);
		word = wordOf(next);
		if (LEAN)
			prefetchNumber(row + 2 * step);
		else
			number = next, next = numberAt(row + 2 * step);
		return t;
	}
	INLINE void advance() {}
	INLINE void end() {}

	// For rows that are decoded where they lie. makes says whether the lane counts.
	INLINE u32 all() const { return count; }
	INLINE BuddyTicket counted(u32 i, i64 row, u64 word) const
	{
		u32 bytes;
		bool peer;
		BuddyTicket t = ticket(row, word, i, bytes, peer);
		BuddyBlock *counts = buddyBlock();
		if (makes && t.length == 0)
			outsideAside(a.counters, a.out, a.codec.rowBytes, i);
		if (makes && bytes != 0) {
			__atomic_fetch_add(&counts->bytes, (u64)bytes, __ATOMIC_RELAXED);
			__atomic_fetch_add(&counts->overflows, 1u, __ATOMIC_RELAXED);
		}
		if (makes && peer)
			__atomic_fetch_add(&counts->peers, 1u, __ATOMIC_RELAXED);
		return t;
	}
	INLINE BuddyTicket one(u32 i) const // by a warp
	{
		i64 row = numberAt(i);
		u64 word = laneID() == 0 ? wordOf(row) : 0;
		u32 low = tileFrom<32>(~0u, (u32)word, 0), high = tileFrom<32>(~0u, (u32)(word >> 32), 0);
		return counted(i, row, (u64)high << 32 | low);
	}
	INLINE SplitWords words(const BuddyTicket &t, u32 limit) const
	{
		return {(const u32 *)t.stored, (const u32 *)t.over, limit, t.split / 4};
	}
};

using Buddy = BuddyRows<false>;

// BuddyOfBlock is Buddy for a block that decodes a row where it lies.
struct BuddyOfBlock : Buddy {
	INLINE BuddyOfBlock(const BuddyArgs &args) : Buddy(args, threadID() == 0) {}
	INLINE BuddyTicket one(u32 i) const
	{
		__shared__ u64 word;
		i64 row = numberAt(i);
		blockSync();
		if (threadID() == 0)
			word = wordOf(row);
		blockSync();
		return counted(i, row, word);
	}
};

// beginBuddy is what a block does first. In a captured graph the block announces itself before it reads what may change: see replay.h. The table's
// length and the overlay are those of the latest view, and the ranges those of now.
INLINE void beginBuddy(const BuddyArgs &a)
{
	BuddyBlock *block = buddyBlock();
	if (threadID() < a.devices) { // a select for each device
		u64 words = a.words[0], slots = a.slots[0], overs = a.overs[0];
		if (a.devices > 1) {
#pragma unroll
			for (u32 i = 1; i < MAX_SLABS; i++) {
				words = threadID() == i ? a.words[i] : words;
				slots = threadID() == i ? a.slots[i] : slots;
				overs = threadID() == i ? a.overs[i] : overs;
			}
		}
		block->words[threadID()] = words;
		block->slots[threadID()] = slots;
		block->overs[threadID()] = overs;
	}
	if (threadID() == 0) {
		block->bytes = 0;
		block->overflows = block->peers = 0;
		block->limit = a.limit;
		block->ranges = a.ranges != 0 ? ((const BuddyRanges *)a.ranges)->ranges : 0;
		if (a.state != 0) {
			atomicFetchAdd(&((ReplayState *)a.state)->begun, 1);
			fenceSequential();
			const ReplayViews *views = (const ReplayViews *)a.views;
			const ReplayView *view = views->views + loadSystem(&views->version) % REPLAY_TURNS;
			block->limit = (i64)loadDevice((const u64 *)&view->limit);
			block->view = view;
			if (a.ranges != 0 && loadDevice(&((const BuddyRanges *)a.ranges)->only) == a.only)
				block->ranges = 0;
		}
	}
	blockSync();
}

// endBuddyReplay ends a block of a replay. The last one adds the replay's counters to those of all replays.
INLINE void endBuddyReplay(const BuddyArgs &a)
{
	Counters *count = (Counters *)a.decode.counters;
	ReplayState *state = (ReplayState *)a.state;
	fenceDevice();
	if (atomicAdd(&count->batch, 1) == a.blocks - 1) {
		fenceDevice();
		Counters c = countersNow(count);
		ReplayCounts *all = &state->counts;
		atomicAdd(&all->peers, (u64)c.peers);
		atomicAdd(&all->hostBytes, c.hostBytes);
		atomicAdd(&all->reasons[OVERSIZE], (u64)c.reasons[OVERSIZE]);
		if (c.corrupt != 0) {
			all->corruptPosition = c.corruptPosition;
			atomicAdd(&all->corrupt, (u64)c.corrupt);
		}
		if (c.outOfRange != 0) {
			u64 number = loadDevice(&state->begun) / a.blocks - 1; // all its blocks have begun
			atomicAdd(&all->outOfRange, (u64)c.outOfRange);
			atomicMax(&all->first, number << 31 | (c.notFirst & 0x7fffffff));
		}
		u64x2 *zero = (u64x2 *)count;
#pragma unroll
		for (u32 i = 0; i < sizeof(Counters) / sizeof(u64x2); i++)
			zero[i] = u64x2{0, 0};
	}
	fenceDevice();
	atomicAdd(&state->ended, 1);
}

// endBuddy is what a block does last: it counts, and the last block publishes the counters.
INLINE void endBuddy(const BuddyArgs &a)
{
	blockSync();
	if (threadID() == 0) {
		Counters *count = (Counters *)a.decode.counters;
		const BuddyBlock *counts = buddyBlock();
		if (blockID() == 0)
			atomicAdd(&count->hits, a.decode.count);
		if (counts->overflows != 0) {
			atomicAdd(&count->reasons[OVERSIZE], counts->overflows);
			atomicAdd(&count->hostBytes, counts->bytes);
		}
		if (counts->peers != 0)
			atomicAdd(&count->peers, counts->peers);
		if (a.state != 0)
			endBuddyReplay(a);
	}
	endBatch<END_DECODE>(a.decode.counters, a.decode.end);
}
