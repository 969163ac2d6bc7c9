#include "gpu.h"

// The kernels of tests that load PTX of their own: those of packages cuda and emulator.

struct SpinArgs {
	u64 flag;
};

// Waits until the word is not 0.
KERNEL void spin(const SpinArgs a)
{
	while (loadSystem((const u32 *)a.flag) == 0)
		sleepNanos(100);
}

// Kernels with faults that the emulator finds. Each is launched as one block; what a thread has read goes to its word of out.

struct FaultArgs {
	u64 out;
	u32 words, mode;
};

// Writes a word behind the words, by a plain store or by a checked one.
KERNEL void writeBehind(const FaultArgs a)
{
	if (threadID() == 0 && a.mode == 0)
		((volatile u32 *)a.out)[a.words] = 1;
	if (threadID() == 0 && a.mode == 1)
		storeOut((u32 *)a.out + a.words, 1u);
}

// Writes two words at an address that is no multiple of 8.
KERNEL void notAligned(const FaultArgs a) { *(u64 *)((u32 *)a.out + 1) = 1; }

// Copies 16 bytes asynchronously to shared memory, to an address there that is no multiple of 16, or to what is not shared memory.
KERNEL void copyTo(const FaultArgs a)
{
	__shared__ u32x4 words[2];
	copyAsync16(a.mode == 0 ? (void *)words : a.mode == 1 ? (void *)((u32 *)words + 1) : (void *)(a.out + 64), a.out);
	copyWait();
}

// Half a warp votes and the other half does not, or half the block comes to its barrier and the others wait in a vote.
KERNEL void diverged(const FaultArgs a)
{
	bool half = threadID() % 32 < 16;
	if (a.mode == 0 && half)
		ballot(~0u, true);
	if (a.mode == 0 && !half)
		warpSync(0xffff0000);
	if (a.mode == 0 && !half)
		blockSync();
	if (a.mode == 1)
		tileFrom<32>(half ? 0xffff : 0xffff0000, 1, threadID() % 32 ^ 16);
	((u32 *)a.out)[threadID()] = 1;
}

// The steps of kernel steps, in the order of `steps` in emulator_test.go.
enum Step : u32 {
	END,
	WRITE,         // the thread's number to its word
	WRITE_OTHER,   // to the word of a thread of the next warp
	READ,          // the thread's word
	READ_LANE,     // the word of the next lane of the warp
	READ_WARP,     // the word of a thread of the next warp
	COPY,          // asynchronously, from the thread's word of out to its word
	COPY_SECOND,   // the same to its second word
	READ_SECOND,   // the thread's second word
	COMMIT,        // ends a group of copies
	WAIT_BUT_LAST, // for all groups of copies but the last
	WAIT_GROUPS,   // for all groups of copies
	WAIT_ALL,      // for all copies, those in no group yet among them
	VOTE,
	WARP_SYNC,
	BLOCK_SYNC,
};

// Each thread takes up to 8 steps, a hexadecimal digit of the mode each, the lowest first. Each thread has two words of shared memory. What it
// has read last goes to out, behind a word for each thread.
KERNEL void steps(const FaultArgs a)
{
	__shared__ u32 words[1024], second[1024];
	u32 t = threadID(), n = blockThreads(), other = (t + 33) % n, got = 0;
	volatile u32 *memory = words;
	for (u32 left = a.mode; left != 0; left >>= 4)
		switch (left & 15) {
		case WRITE: memory[t] = t; break;
		case WRITE_OTHER: memory[other] = t; break;
		case READ: got = memory[t]; break;
		case READ_LANE: got = memory[(t & ~31u) | ((t + 1) & 31)]; break;
		case READ_WARP: got = memory[other]; break;
		case COPY: copyAsync4(words + t, a.out + 4 * t); break;
		case COPY_SECOND: copyAsync4(second + t, a.out + 4 * t); break;
		case READ_SECOND: got = ((volatile u32 *)second)[t]; break;
		case COMMIT: copyCommit(); break;
		case WAIT_BUT_LAST: copyWaitGroups<1>(); break;
		case WAIT_GROUPS: copyWaitGroups<0>(); break;
		case WAIT_ALL: copyWait(); break;
		case VOTE: ballot(~0u, true); break;
		case WARP_SYNC: warpSync(~0u); break;
		case BLOCK_SYNC: blockSync(); break;
		}
	((u32 *)a.out)[n + t] = got;
}

// Reads a word of dynamic shared memory behind what the launch asked for.
KERNEL void sharedBehind(const FaultArgs a)
{
	extern __shared__ u32x4 dynamic[];
	((u32 *)a.out)[threadID()] = ((volatile u32 *)dynamic)[a.words + threadID()];
}

struct CopyArgs {
	u64 to, from;
	u32 words, rows;
};

// Copies words, a thread a word.
KERNEL void copyWords(const CopyArgs a)
{
	u32 i = blockID() * blockThreads() + threadID();
	if (i < a.words)
		((u32 *)a.to)[i] = ((const u32 *)a.from)[i];
}

// Gathers so many rows of 256 bytes that lie apart, 16 threads a row.
KERNEL void gatherRows(const CopyArgs a)
{
	u32 i = blockID() * blockThreads() + threadID(), row = (u32)((u64)((i >> 4) * 2654435761u) * a.rows >> 32);
	((u32x4 *)a.to)[i] = ((const u32x4 *)a.from)[row * 16 + (i & 15)];
}
