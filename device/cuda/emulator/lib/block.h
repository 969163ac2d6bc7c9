// Blocks and their lanes, as the parts that run a launch share them: schedule.cc, collectives.cc, copies.cc, shared.cc, stacks.cc and races.cc.
#pragma once

#include "emulator.h"
#include "lane.h"

namespace emulator {

enum class Collective : uint8_t { None, WarpSync, Ballot, Shuffle, Scan, Sum, BlockSync };

struct Block;

struct PendingCopy {
	void *to;
	uint64_t from;
	uint32_t bytes, group;
};

struct alignas(64) Lane {
	EmulatedLane self; // first: emulatedLane returns it
	Block *block;
	void *sp;                                 // its stack pointer while it does not run
	uint32_t lanes, value, parameter, result; // of the collective operation that it waits in
	Collective at;                            // that operation
	uint8_t index;                            // in its warp
	uint16_t spins;                           // times that it has looked at memory since its last collective operation or sleep
	uint32_t group;                           // groups of asynchronous copies that it has committed
	std::vector<PendingCopy> copies;          // that it has not waited for, in the order of issue
};

// Warp has the states of its lanes, a bit each. A lane that has not ended is in one of the first four, or runs.
struct Warp {
	uint32_t ready;
	uint32_t spinning; // waits for memory to change
	uint32_t waiting;  // in a collective operation of the warp
	uint32_t atBlock;  // at the block's barrier
	uint32_t ended;    // or missing: a block's last warp may be short
};

struct Races; // what was accessed in shared memory: races.cc

struct Block {
	uint32_t number, lanes, warps;
	uint32_t left;    // lanes that have not ended
	uint32_t atBlock; // lanes at the block's barrier
	std::vector<Lane> lane;
	std::vector<Warp> warp;
	std::vector<uint8_t *> stacks;
	uint8_t *shared = nullptr; // sharedSpan() addresses: variables, then the dynamic part
	uint8_t *dynamic;
	uint32_t dynamicBytes;
	std::vector<std::pair<const void *, void *>> variables; // those that lanes have asked for: the compiler's control and the address
	Races *races = nullptr;                                 // none if no module of its blocks has reported accesses
};

// Runner runs the blocks of one launch.
struct Runner {
	const Launch *launch;
	uint64_t random;
	void *sp;              // of the thread's own stack, while a lane runs
	Lane *lane = nullptr;  // that runs, or nullptr
	std::vector<Block *> blocks; // resident ones
	uint64_t ran, slept;   // how often lanes were resumed, and went to sleep, in this round

	uint32_t next(uint32_t n) // a random number from 0 to n - 1
	{
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		return (uint32_t)((random >> 32) * n >> 32);
	}
};

// schedule.cc

extern __thread Runner *currentRunner __attribute__((tls_model("initial-exec"))); // of the calling thread; nullptr if it runs no launch
inline Lane *self() { return currentRunner->lane; }
inline Warp &warpOf(Lane *l) { return l->block->warp[l->self.thread / 32]; }
// yield lets other lanes run. It returns when the lane is chosen again, which takes that it is ready by then.
void yield(Lane *l);

// block.cc: takeBlock returns a block with shared memory, and a stack for each of so many lanes.

Block *takeBlock(uint32_t lanes);
void giveBlock(Block *b);
uint8_t *mapPages(uint64_t bytes, int access);

// stacks.cc: start makes the lane's stack such that the kernel begins when the lane is resumed.

void takeStacks(Block *b);
void giveStacks(Block *b);
void start(Lane &l, const Launch &launch);

// shared.cc: prepareShared makes shared memory ready for a block that asks for so many bytes of dynamic shared memory.

uint64_t sharedSpan(); // addresses of a block's shared memory
uint8_t *mapShared();
void prepareShared(Block *b, uint32_t dynamicBytes);

// races.cc is told when a block begins, and whether its module reports accesses; when lanes of warp w pass a barrier of theirs, and all lanes one of the block;
// and when an asynchronous copy begins, at that place in the code, and when its lane has waited for it.

void racesBegin(Block *b, bool reported);
void racesSync(Block *b, uint32_t w, uint32_t lanes);
void racesBarrier(Block *b);
void racesCopy(Lane *l, const void *to, uint32_t bytes, const void *code);
void racesCopied(Lane *l, const void *to, uint32_t bytes);

} // namespace emulator
