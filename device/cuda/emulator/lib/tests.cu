#include "gpu.h"

// The kernels that tests bring as PTX of their own: see packages cuda and emulator.

struct SpinArgs {
	u64 flag;
};

// Waits until the word is not 0.
KERNEL void spin(const SpinArgs a)
{
	while (loadSystem((const u32 *)a.flag) == 0)
		sleepNanos(100);
}

// Faults that the emulator is to find, by kernels of one block that write what they see to out, a word a thread.

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

// Each thread reads what its neighbour has written to shared memory, with or without meeting it between.
KERNEL void neighbour(const FaultArgs a)
{
	__shared__ u32 words[1024];
	u32 t = threadID();
	words[t] = t;
	if (a.mode == 1)
		warpSync(~0u);
	if (a.mode == 2)
		blockSync();
	((u32 *)a.out)[t] = words[(t + (a.mode == 2 ? 33 : 1)) % blockThreads()];
}

// Each thread writes a word of shared memory, reads another thread's, and may write its own again. What is between is in the bits of the mode, one
// hexadecimal digit each: before the read, and before the second write, which there is if the digit is not 0. 1: a vote; 2: a barrier of the warp; 3: one of the
// block. The lowest digit says whose word is read: 0: the next lane's; 1: that of a thread of the next warp.
KERNEL void handed(const FaultArgs a)
{
	__shared__ u32 words[1024];
	u32 t = threadID(), n = blockThreads();
	auto meet = [](u32 how) {
		if (how == 1)
			ballot(~0u, true);
		if (how == 2)
			warpSync(~0u);
		if (how == 3)
			blockSync();
	};
	words[t] = t;
	meet(a.mode >> 4 & 15);
	((u32 *)a.out)[t] = words[a.mode & 1 ? (t + 33) % n : (t & ~31u) | ((t + 1) & 31)];
	meet(a.mode >> 8 & 15);
	if (a.mode >> 8 & 15)
		((volatile u32 *)words)[t] = 2 * t;
}

// Copies a word to shared memory and reads it there, waiting for the copy or not.
KERNEL void copied(const FaultArgs a)
{
	extern __shared__ u32x4 dynamic[];
	u32 t = threadID(), *stage = (u32 *)dynamic;
	copyAsync4(stage + t, a.out + 4 * t);
	if (a.mode == 1)
		copyWait();
	((u32 *)a.out)[t + blockThreads()] = stage[t];
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
