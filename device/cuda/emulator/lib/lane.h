/*
 * The functions of the emulator that kernels call: kernels/emulated.h builds on them. C, so that modules and library need no common
 * C++ runtime. Each acts on the lane that calls it.
 */
#ifndef TENSORCACHE_EMULATOR_LANE_H
#define TENSORCACHE_EMULATOR_LANE_H

#ifdef __cplusplus
extern "C" {
#endif

/* Where a lane is in its block, and its block in the grid. It does not change while the lane lives. */
struct EmulatedLane {
	unsigned thread, threads, block, blocks;
};

__attribute__((const)) const struct EmulatedLane *emulatedLane(void);

/*
 * Collective operations of the lanes of a warp that are named. Lanes that have ended are not waited for; it is an error to read the value of
 * one. A tile is width lanes in a row, width a power of two.
 */
void emulatedWarpSync(unsigned lanes);
unsigned emulatedBallot(unsigned lanes, unsigned vote);
unsigned emulatedShuffle(unsigned lanes, unsigned value, unsigned from); /* the value of lane from */
unsigned emulatedScan(unsigned lanes, unsigned value, unsigned width);   /* the sum up to the lane's own value, within its tile */
unsigned emulatedSum(unsigned lanes, unsigned value, unsigned width);    /* the sum of the lane's tile */

/* The barrier of all lanes of the block that have not ended. */
void emulatedBlockSync(void);

/* Asynchronous copies to shared memory. They arrive when the lane waits for them; until then the target has bytes that nobody wrote. */
void emulatedCopy(void *shared, unsigned long long global, unsigned bytes);
void emulatedCopyCommit(void);           /* ends a group of copies */
void emulatedCopyWait(unsigned groups);  /* for all groups but the last so many; ~0: for all copies, those in no group yet among them */

/* Addresses in shared memory as 32-bit numbers. */
unsigned emulatedSharedAddress(const void *p);
void *emulatedSharedPointer(unsigned address);

unsigned long long emulatedNanos(void);
void emulatedSleep(void); /* lets all other lanes run */
void emulatedPause(void); /* lets other lanes run now and then, and sleeps if it is called often: a lane that waits for memory to change calls it */

/* The range of addresses of all allocations. emulatedReach checks an access outside this range, or one that is not aligned, and faults if it is not allowed. */
extern unsigned long long emulatedBase, emulatedBytes;
void emulatedReach(unsigned long long address, unsigned bytes, int write);

#ifdef __cplusplus
}
#endif

#endif
