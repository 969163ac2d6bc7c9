/*
 * What kernels compiled for the emulator ask of it: kernels/emulated.h is made of these. All but the checks are rendezvous
 * of lanes or run other lanes meanwhile.
 */
#ifndef TENSORCACHE_EMULATOR_LANE_H
#define TENSORCACHE_EMULATOR_LANE_H

#ifdef __cplusplus
extern "C" {
#endif

/* What a lane knows of itself; it stays what it is as long as the lane lives. */
struct EmulatedLane {
	unsigned thread, threads, block, blocks;
};

__attribute__((const)) const struct EmulatedLane *emulatedLane(void);

/* Rendezvous of the lanes of a warp that are named. Values of lanes that have ended are 0 in votes and an error elsewhere. */
void emulatedWarpSync(unsigned lanes);
unsigned emulatedBallot(unsigned lanes, unsigned vote);
unsigned emulatedShuffle(unsigned lanes, unsigned value, unsigned from);
unsigned emulatedScan(unsigned lanes, unsigned value, unsigned width); /* inclusive sums over tiles of so many lanes */
unsigned emulatedSum(unsigned lanes, unsigned value, unsigned width);  /* the sum over the lane's tile */
unsigned emulatedMax(unsigned lanes, unsigned value, unsigned width);
unsigned emulatedMin(unsigned lanes, unsigned value, unsigned width);

/* A rendezvous of all lanes of the block that have not ended. */
void emulatedBlockSync(void);

/* Copies to shared memory that happen when they are waited for; until then the target has bytes that nobody wrote. */
void emulatedCopy(void *shared, unsigned long long global, unsigned bytes);
void emulatedCopyCommit(void);
void emulatedCopyWait(unsigned groups); /* for all but the last so many groups; ~0: for all copies */

/* Shared memory as 32-bit addresses. */
unsigned emulatedSharedAddress(const void *p);
void *emulatedSharedPointer(unsigned address);

unsigned long long emulatedNanos(void);
void emulatedSleep(void); /* lets others run */
void emulatedPause(void); /* lets others run now and then */

/* The range of addresses of all allocations; access elsewhere, and such that is not aligned, is looked at by emulatedReach. */
extern unsigned long long emulatedBase, emulatedBytes;
void emulatedReach(unsigned long long address, unsigned bytes, int write);

#ifdef __cplusplus
}
#endif

#endif
