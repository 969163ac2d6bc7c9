// What Go and CUDA code share of resident tables with Buddy slots: see abi.h, of which this is a part.
#pragma once
#include "abi.h"

// BuddyTickets is DecodeTickets for rows in two parts.
#define BUDDY_TICKETS 64

// MaxRanges is the number of ranges that a table can have.
#define MAX_RANGES 16

// A BuddyRange is a range of a resident table: by device, where the slot and the overflow place of local number 0 would lie; the target; and the
// bytes from an overflow place to the next. Where the target holds every row, what is behind the slot counts as the overflow place.
struct BuddyRange {
	u64 slots[MAX_SLABS];
	u64 overs[MAX_SLABS];
	u32 target;
	u32 over;
	u64 reserved;
};
ABI_SIZE(BuddyRange, 144);

// BuddyRanges are the ranges by number. Only counts their changes: it is another number whenever the words of all rows may name another one range, or
// several.
struct BuddyRanges {
	u64 only;
	u64 reserved;
	BuddyRange ranges[MAX_RANGES];
};
ABI_SIZE(BuddyRanges, 2320);

// BuddyArgs are rows of a resident table. Decode's found is the row numbers, and its slabs are where the words of newer versions point to. Words are
// by device. Slots, overs, target and over are those of a BuddyRange. Magic is 2^64 / devices + 1, unless there is one device. Narrow says that row
// numbers have 32 bits.
struct BuddyArgs {
	DecodeArgs decode;
	u64 words[MAX_SLABS];
	u64 slots[MAX_SLABS];
	u64 overs[MAX_SLABS];
	u64 magic;
	i64 limit;
	// State and views, unless 0, are those of a captured batch: see ReplayArgs. Such a batch has so many blocks.
	u64 state;
	u64 views;
	u32 target;
	u32 over;
	u32 devices;
	// Peers has a bit for each device, and for each slab of the overlay, that is not the reader's.
	u32 peers;
	u32 narrow;
	u32 blocks;
	// Ranges, unless 0, is a BuddyRanges, and each word says in which range its row is. A captured batch has it always, and uses it if there is another
	// only than this one.
	u64 ranges;
	u64 only;
};
ABI_SIZE(BuddyArgs, 440);
