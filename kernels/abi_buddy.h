// What Go and CUDA code share of resident tables with Buddy slots: see abi.h, of which this is a part.
#pragma once
#include "abi.h"

// BuddyTickets is DecodeTickets for rows in two parts.
#define BUDDY_TICKETS 64

// BuddyArgs are rows of a resident table. Decode's found is the row numbers, and its slabs are where the words of newer versions point to. Words, slots
// and overs are by device. Magic is 2^64 / devices + 1, unless there is one device. Narrow says that row numbers have 32 bits.
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
	// Prefetch says that a row's bytes in buddy memory are asked for when its ticket is made, some rows before they are copied.
	u32 prefetch;
	u32 reserved;
};
ABI_SIZE(BuddyArgs, 424);
