// Blocks and their lanes. The blocks of a launch that run at once, and all their lanes, take turns in one thread: each lane has a
// stack of its own, and gives way where it meets others.
#pragma once

#include "emulator.h"
#include "lane.h"

namespace emulator {

enum class Meeting : uint8_t { None, Sync, Ballot, Shuffle, Scan, Sum, Max, Min, Block };

struct Block;

struct PendingCopy {
	void *to;
	uint64_t from;
	uint32_t bytes, group;
};

struct alignas(64) Lane {
	EmulatedLane self; // first: emulatedLane returns it
	Block *block;
	void *sp; // while it does not run
	uint32_t lanes, value, parameter, result; // of the meeting
	Meeting at;
	uint8_t index; // in its warp
	uint16_t spins;
	uint32_t group; // of copies
	std::vector<PendingCopy> copies;
};

// Warp says in which state its lanes are, as bits; a lane is in one of them, or runs.
struct Warp {
	uint32_t ready, spinning, waiting, atBlock, ended;
};

struct Runner;
struct Races; // what was accessed in shared memory: races.cc

struct Block {
	Runner *runner;
	uint32_t number, lanes, warps, left, atBlock; // lanes that have not ended, and those at the block's barrier
	std::vector<Lane> lane;
	std::vector<Warp> warp;
	std::vector<uint8_t *> stacks;
	// Shared memory: variables, each before a page that cannot be reached, then the dynamic part.
	uint8_t *shared = nullptr;
	uint8_t *dynamic;
	uint32_t dynamicBytes;
	std::vector<std::pair<const void *, void *>> variables; // those that lanes have asked for
	Races *races = nullptr; // none if no module of its blocks has reported accesses
};

// Runner runs the blocks of one launch.
struct Runner {
	const Launch *launch;
	uint64_t random;
	void *sp; // of the thread's own stack, while a lane runs
	Lane *lane = nullptr;
	std::vector<Block *> blocks;
	uint64_t ran, slept; // lanes, since the last look

	uint32_t next(uint32_t n) // 0 to n - 1
	{
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		return (uint32_t)((random >> 32) * n >> 32);
	}
};

Runner *runner();              // of the calling thread
Block *takeBlock(uint32_t lanes); // with stacks for so many
void giveBlock(Block *b);
void prepareShared(Block *b, uint32_t dynamicBytes);
// start puts a lane's first frame on its stack.
void start(Lane &l, const Launch &launch);
// give lets others run; the lane goes on when it is chosen.
void give(Lane *l);
std::string stateOf(const Block &b);

uint64_t sharedSpan(); // of a block's shared memory in addresses, from Block.shared on

// The search for races (races.cc) is told when a block begins, and whether its module reports accesses; when lanes of warp w pass a barrier of
// theirs, and all lanes one of the block; and when an asynchronous copy begins, at that place in the code, and when its lane has waited for it.
void racesBegin(Block *b, bool reported);
void racesSync(Block *b, uint32_t w, uint32_t lanes);
void racesBarrier(Block *b);
void racesCopy(Lane *l, const void *to, uint32_t bytes, const void *code);
void racesCopied(Lane *l, const void *to, uint32_t bytes);

} // namespace emulator
