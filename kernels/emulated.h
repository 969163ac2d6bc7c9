// Takes the place of gpu.h on the emulated GPU of device/cuda/emulator: what is inline PTX there is plain C++ or a call of the emulator (lane.h) here.
// Each helper of gpu.h needs one of the same name here.
#pragma once
#include "lane.h"

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __shared__ thread_local
#define __launch_bounds__(...)
#define INLINE inline __attribute__((always_inline))
#define KERNEL extern "C" __global__
#define ASIDE inline __attribute__((noinline))

typedef u32 u32x2 __attribute__((ext_vector_type(2)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef u64 u64x2 __attribute__((ext_vector_type(2)));
typedef u64x2 u64x2At8 __attribute__((aligned(8)));

INLINE u32 threadID() { return emulatedLane()->thread; }
INLINE u32 blockID() { return emulatedLane()->block; }
INLINE u32 blockThreads() { return emulatedLane()->threads; }
INLINE u32 gridBlocks() { return emulatedLane()->blocks; }
INLINE void blockSync() { emulatedBlockSync(); }
INLINE void warpSync(u32 lanes) { emulatedWarpSync(lanes); }

INLINE u32 ballot(u32 lanes, bool vote) { return emulatedBallot(lanes, vote); }

template <int WIDTH> INLINE u32 tileFrom(u32 lanes, u32 x, u32 lane)
{
	return emulatedShuffle(lanes, x, (threadID() & 31 & ~(WIDTH - 1)) | (lane & (WIDTH - 1)));
}
template <int WIDTH> INLINE u32 tileXor(u32 lanes, u32 x, u32 bit)
{
	u32 own = threadID() & 31, from = own ^ bit;
	return emulatedShuffle(lanes, x, from > (own | (WIDTH - 1)) ? own : from);
}
template <int WIDTH> INLINE u32 tileBefore(u32 x)
{
	u32 own = threadID() & 31;
	return emulatedShuffle(~0u, x, own & (WIDTH - 1) ? own - 1 : own);
}
INLINE u32 laneFrom(u32 x, u32 lane) { return emulatedShuffle(~0u, x, lane); }
template <int RUN> INLINE u32 runScan(u32 x, u32 first)
{
	u32 own = threadID() & 31;
	for (u32 d = 1; d < RUN; d *= 2) {
		u32 t = emulatedShuffle(~0u, x, own >= first + d ? own - d : own);
		x += own >= first + d ? t : 0;
	}
	return x;
}
INLINE u32 warpSum(u32 x) { return emulatedSum(~0u, x, 32); }
template <int WIDTH> INLINE u32 tileScan(u32 lanes, u32 x) { return emulatedScan(lanes, x, WIDTH); }
template <int WIDTH> INLINE u32 tileSum(u32 lanes, u32 x) { return emulatedSum(lanes, x, WIDTH); }

INLINE u32 funnelClamp(u32 low, u32 high, u32 s) { return (u32)(((u64)high << 32 | low) >> s); }
INLINE u32 funnel(u32 low, u32 high, u32 s) { return funnelClamp(low, high, s < 32 ? s : 32); }
INLINE u32 funnelWrap(u32 low, u32 high, u32 s) { return funnelClamp(low, high, s & 31); }
INLINE u32 shiftLeft(u32 x, u32 s) { return x << (s & 31); }
INLINE u64 multiplyHigh(u64 a, u64 b) { return (u64)((unsigned __int128)a * b >> 64); }
INLINE u32 permute(u32 a, u32 b, u32 picks)
{
	u64 all = (u64)b << 32 | a;
	u32 x = 0;
	for (u32 i = 0; i < 4; i++) {
		u32 pick = picks >> (4 * i), byte = (u32)(all >> (8 * (pick & 7))) & 0xff;
		x |= (pick & 8 ? (byte & 0x80 ? 0xff : 0) : byte) << (8 * i);
	}
	return x;
}
INLINE u32 lowBits(u32 n) { return n < 32 ? (1u << n) - 1 : ~0u; }
INLINE u32 choose(u32 mask, u32 a, u32 b) { return (mask & a) | (~mask & b); }
INLINE u32 byteSum(u32 x) { return (x & 0xff) + (x >> 8 & 0xff) + (x >> 16 & 0xff) + (x >> 24); }

// reached checks an address of global memory.
template <class T> INLINE T *reached(T *p, int write = 0)
{
	u64 at = (u64)p;
	if (at - emulatedBase >= emulatedBytes - sizeof(T) || (at & (sizeof(T) - 1)) != 0)
		emulatedReach(at, sizeof(T), write);
	return p;
}
template <class T> INLINE T *written(T *p) { return reached(p, 1); }

template <class T> INLINE T loadConst(const T *p) { return *reached(p); }
INLINE void prefetchL2(const void *) {}

// A vector is read in two atomic loads: reading all of it at once would be more than GPUs guarantee.
INLINE u64x2 loadShared(const u64x2 *p)
{
	const u64 *words = (const u64 *)reached(p);
	return u64x2{__atomic_load_n(words, __ATOMIC_RELAXED), __atomic_load_n(words + 1, __ATOMIC_RELAXED)};
}
INLINE u64x2 loadSlot(const u64x2 *p) { return loadShared(p); }

template <class T> INLINE void storeOut(T *p, T x) { *written(p) = x; }

template <class T> INLINE T paused(T x)
{
	emulatedPause();
	return x;
}
INLINE u32 atomicAdd(u32 *p, u32 x) { return paused(__atomic_fetch_add(p, x, __ATOMIC_RELAXED)); }
INLINE u64 atomicFetchAdd(u64 *p, u64 x) { return paused(__atomic_fetch_add(written(p), x, __ATOMIC_RELAXED)); }
INLINE void atomicAdd(u64 *p, u64 x) { __atomic_fetch_add(written(p), x, __ATOMIC_RELAXED); }
template <class T> INLINE void replace(T *p, T x, bool (*better)(T, T))
{
	T have = __atomic_load_n(written(p), __ATOMIC_RELAXED);
	while (better(x, have) && !__atomic_compare_exchange_n(p, &have, x, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}
INLINE void atomicMin(u64 *p, u64 x)
{
	replace<u64>(p, x, [](u64 a, u64 b) { return a < b; });
}
INLINE void atomicMax(u32 *p, u32 x)
{
	replace<u32>(p, x, [](u32 a, u32 b) { return a > b; });
}
INLINE void atomicMax(u64 *p, u64 x)
{
	replace<u64>(p, x, [](u64 a, u64 b) { return a > b; });
}
INLINE u32 atomicOrShared(u32 *p, u32 x) { return __atomic_fetch_or(p, x, __ATOMIC_RELAXED); }

INLINE void copyAsync16(void *shared, u64 global) { emulatedCopy(shared, global, 16); }
INLINE void copyAsync4(void *shared, u64 global) { emulatedCopy(shared, global, 4); }
INLINE u32 sharedAddress(const void *p) { return emulatedSharedAddress(p); }
template <class T> INLINE T loadAt(u32 shared) { return *(const T *)emulatedSharedPointer(shared); }
INLINE void copyAsync16(u32 shared, u64 global) { emulatedCopy(emulatedSharedPointer(shared), global, 16); }
INLINE void copyAsync4(u32 shared, u64 global) { emulatedCopy(emulatedSharedPointer(shared), global, 4); }
INLINE void copyCached16(u32 shared, u64 global) { copyAsync16(shared, global); }
INLINE void copyCommit() { emulatedCopyCommit(); }
template <int N> INLINE void copyWaitGroups() { emulatedCopyWait(N); }
INLINE void copyWait() { emulatedCopyWait(~0u); }

INLINE u32 loadDevice(const u32 *p) { return paused(__atomic_load_n(reached(p), __ATOMIC_RELAXED)); }
INLINE u64 loadDevice(const u64 *p) { return paused(__atomic_load_n(reached(p), __ATOMIC_RELAXED)); }
INLINE void fenceDevice() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
INLINE void storeSystem(u64 *p, u64 x) { __atomic_store_n(written(p), x, __ATOMIC_RELAXED); }

INLINE u32 loadSystem(const u32 *p) { return paused(__atomic_load_n(reached(p), __ATOMIC_ACQUIRE)); }
INLINE u64 loadSystem(const u64 *p) { return paused(__atomic_load_n(reached(p), __ATOMIC_ACQUIRE)); }
INLINE u64 loadSame(const u64 *p) // lanes load one after another here, so all take the value of the first lane
{
	u64 x = loadSystem(p);
	return (u64)laneFrom((u32)(x >> 32), 0) << 32 | laneFrom((u32)x, 0);
}
INLINE void storeSystem(u32 *p, u32 x) { __atomic_store_n(written(p), x, __ATOMIC_RELEASE); }
INLINE void fenceSystem() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
INLINE void fenceSequential() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
INLINE void fenceSequentialSystem() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
INLINE u32 exchange(u32 *p, u32 x) { return paused(__atomic_exchange_n(written(p), x, __ATOMIC_ACQ_REL)); }
INLINE u64 nanos() { return emulatedNanos(); }
INLINE void sleepNanos(u32) { emulatedSleep(); }
INLINE u32x4 loadTier(u64 p) { return *reached((const u32x4 *)p); }
INLINE u32x4 loadArrived(u64 p)
{
	const u32 *words = (const u32 *)reached((const u32x4 *)p);
	u32x4 x;
	for (int i = 0; i < 4; i++)
		x[i] = __atomic_load_n(words + i, __ATOMIC_RELAXED);
	return x;
}
