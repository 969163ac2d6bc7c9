// What the kernels need of CUDA C++, in place of the toolkit's headers: clang's builtins and inline PTX by name.
#pragma once
#include "abi.h"

#ifdef EMULATED
#include "emulated.h"
#else

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define INLINE __device__ inline __attribute__((always_inline))
#define KERNEL extern "C" __global__
// A function that is called: seldom, and by kernels whose registers it must not take. Arguments are passed by value: a reference
// to a kernel's would have all of those copied to local memory.
#define ASIDE __device__ inline __attribute__((noinline))

typedef u32 u32x2 __attribute__((ext_vector_type(2)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef u64 u64x2 __attribute__((ext_vector_type(2)));
typedef u64x2 u64x2At8; // in a thread's own variables, which are registers here, and memory aligned to 8 bytes on the emulated GPU

INLINE u32 threadID() { return __nvvm_read_ptx_sreg_tid_x(); }
INLINE u32 blockID() { return __nvvm_read_ptx_sreg_ctaid_x(); }
INLINE u32 blockThreads() { return __nvvm_read_ptx_sreg_ntid_x(); }
INLINE u32 gridBlocks() { return __nvvm_read_ptx_sreg_nctaid_x(); }
INLINE void blockSync() { __syncthreads(); }
INLINE void warpSync(u32 lanes) { __nvvm_bar_warp_sync(lanes); }

INLINE u32 ballot(u32 lanes, bool vote) { return __nvvm_vote_ballot_sync(lanes, vote); }

// Shuffles within tiles of WIDTH lanes, a power of two; lanes names the tile's lanes.
template <int WIDTH> INLINE u32 tileFrom(u32 lanes, u32 x, u32 lane)
{
	return __nvvm_shfl_sync_idx_i32(lanes, x, lane, (32 - WIDTH) << 8 | 31);
}
template <int WIDTH> INLINE u32 tileXor(u32 lanes, u32 x, u32 bit)
{
	return __nvvm_shfl_sync_bfly_i32(lanes, x, bit, (32 - WIDTH) << 8 | 31);
}

// tileBefore returns x of the lane before, within tiles of WIDTH lanes; a tile's first lane gets its own.
template <int WIDTH> INLINE u32 tileBefore(u32 x) { return __nvvm_shfl_sync_up_i32(~0u, x, 1, (32 - WIDTH) << 8); }

INLINE u32 warpSum(u32 x) { return (u32)__nvvm_redux_sync_add((int)x, ~0u); }

// tileScan returns the inclusive sums of x over a tile's lanes.
template <int WIDTH> INLINE u32 tileScan(u32 lanes, u32 x)
{
#pragma unroll
	for (int d = 1; d < WIDTH; d *= 2)
		asm volatile("{ .reg .u32 t; .reg .pred p;\n\t"
			     "shfl.sync.up.b32 t|p, %0, %1, %2, %3;\n\t"
			     "@p add.u32 %0, %0, t; }"
			     : "+r"(x)
			     : "n"(d), "n"((32 - WIDTH) << 8), "r"(lanes));
	return x;
}

// Tiles of any number of lanes, of whole warps. laneFrom returns x of a lane of the warp. runScan returns the inclusive sums of x over the
// lanes from first to the caller's, of which there are at most RUN: first is the first lane of the caller's tile.
INLINE u32 laneFrom(u32 x, u32 lane) { return __nvvm_shfl_sync_idx_i32(~0u, x, lane, 31); }
template <int RUN> INLINE u32 runScan(u32 x, u32 first)
{
#pragma unroll
	for (int d = 1; d < RUN; d *= 2)
		asm volatile("{ .reg .u32 t; .reg .pred p;\n\t"
			     "shfl.sync.up.b32 t|p, %0, %1, %2, -1;\n\t"
			     "@p add.u32 %0, %0, t; }"
			     : "+r"(x)
			     : "n"(d), "r"(first));
	return x;
}

template <int WIDTH> INLINE u32 tileSum(u32 lanes, u32 x)
{
#pragma unroll
	for (int d = 1; d < WIDTH; d *= 2)
		x += tileXor<WIDTH>(lanes, x, d);
	return x;
}

// funnel returns the low word of high:low shifted right by s, 0 to 32.
INLINE u32 funnel(u32 low, u32 high, u32 s)
{
	u32 r;
	asm("shf.r.clamp.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(low), "r"(high), "r"(s));
	return r;
}

// funnelWrap is funnel by s modulo 32.
INLINE u32 funnelWrap(u32 low, u32 high, u32 s)
{
	u32 r;
	asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(low), "r"(high), "r"(s));
	return r;
}

// shiftLeft returns x shifted left by s modulo 32.
INLINE u32 shiftLeft(u32 x, u32 s)
{
	u32 r;
	asm("shf.l.wrap.b32 %0, 0, %1, %2;" : "=r"(r) : "r"(x), "r"(s));
	return r;
}

INLINE u64 multiplyHigh(u64 a, u64 b)
{
	u64 r;
	asm("mul.hi.u64 %0, %1, %2;" : "=l"(r) : "l"(a), "l"(b));
	return r;
}

// permute picks bytes of b:a, or their signs.
INLINE u32 permute(u32 a, u32 b, u32 picks) { return __nvvm_prmt(a, b, picks); }

// lowBits returns n ones in the lowest bits, n being 0 to 32.
INLINE u32 lowBits(u32 n)
{
	u32 r;
	asm("bmsk.clamp.b32 %0, 0, %1;" : "=r"(r) : "r"(n));
	return r;
}

// choose returns the bits of a where mask has ones, those of b where it has zeros. Compilers take two instructions for it.
INLINE u32 choose(u32 mask, u32 a, u32 b)
{
	u32 r;
	asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(r) : "r"(mask), "r"(a), "r"(b));
	return r;
}

// byteSum returns the sum of the bytes of x.
INLINE u32 byteSum(u32 x)
{
	u32 r;
	asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(0x01010101), "r"(0));
	return r;
}

// Loads of what nobody writes while the kernel runs. In a captured graph that holds only from the replay's announcement on: so these are
// ordinary loads there, which stay behind its fence.
#ifdef ROW_REPLAY
#define LOAD_CONST "ld.global"
#else
#define LOAD_CONST "ld.global.nc"
#endif
INLINE u32 loadConst(const u32 *p)
{
	u32 x;
	asm(LOAD_CONST ".u32 %0, [%1];" : "=r"(x) : "l"(p));
	return x;
}
INLINE u64 loadConst(const u64 *p)
{
	u64 x;
	asm(LOAD_CONST ".u64 %0, [%1];" : "=l"(x) : "l"(p));
	return x;
}
INLINE u32x4 loadConst(const u32x4 *p)
{
	u32x4 x;
	asm(LOAD_CONST ".v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(p));
	return x;
}

INLINE void prefetchL2(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// A load that sees another kernel's stores.
INLINE u64x2 loadShared(const u64x2 *p)
{
	u64x2 x;
	asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(x.x), "=l"(x.y) : "l"(p));
	return x;
}

// Streaming stores: what is written here is not read here again.
INLINE void storeOut(u32x4 *p, u32x4 x)
{
	asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
INLINE void storeOut(u32x2 *p, u32x2 x)
{
	asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(x.x), "r"(x.y) : "memory");
}
INLINE void storeOut(u32 *p, u32 x) { asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory"); }

INLINE u32 atomicAdd(u32 *p, u32 x) { return __nvvm_atom_add_gen_i((int *)p, x); }
INLINE u64 atomicFetchAdd(u64 *p, u64 x)
{
	u64 before;
	asm volatile("atom.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(p), "l"(x) : "memory");
	return before;
}
INLINE void atomicAdd(u64 *p, u64 x)
{
	asm volatile("red.global.add.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
}
INLINE void atomicMin(u64 *p, u64 x) { asm volatile("red.global.min.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory"); }
INLINE void atomicMax(u32 *p, u32 x) { asm volatile("red.global.max.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory"); }
INLINE u32 atomicOrShared(u32 *p, u32 x) { return __atomic_fetch_or(p, x, __ATOMIC_RELAXED); }

// Copies 16 or 4 bytes from global to shared memory, asynchronously; copyWait waits for the thread's copies.
INLINE void copyAsync16(void *shared, u64 global)
{
	asm volatile("{ .reg .u64 t; .reg .u32 s; cvta.to.shared.u64 t, %0; cvt.u32.u64 s, t;\n\t"
		     "cp.async.cg.shared.global [s], [%1], 16; }" ::"l"(shared),
		     "l"(global)
		     : "memory");
}
INLINE void copyAsync4(void *shared, u64 global)
{
	asm volatile("{ .reg .u64 t; .reg .u32 s; cvta.to.shared.u64 t, %0; cvt.u32.u64 s, t;\n\t"
		     "cp.async.ca.shared.global [s], [%1], 4; }" ::"l"(shared),
		     "l"(global)
		     : "memory");
}

// The same to an address in shared memory, in groups: copyCommit ends one, and copyWaitGroups waits for all but the last N.
INLINE u32 sharedAddress(const void *p)
{
	u32 s;
	asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(s) : "l"(p));
	return s;
}
// loadAt loads from an address in shared memory.
template <class T> INLINE T loadAt(u32 shared) { return *(const __attribute__((address_space(3))) T *)(u64)shared; }
INLINE void copyAsync16(u32 shared, u64 global)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}
INLINE void copyAsync4(u32 shared, u64 global)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
}
INLINE void copyCached16(u32 shared, u64 global)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}
INLINE void copyCommit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> INLINE void copyWaitGroups() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
INLINE void copyWait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// loadSlot sees another kernel's stores. No bucket is read twice soon: without a place in L1 it is 1 to 3 % faster.
INLINE u64x2 loadSlot(const u64x2 *p)
{
	u64x2 x;
	asm volatile("ld.relaxed.gpu.global.L1::no_allocate.v2.u64 {%0, %1}, [%2];" : "=l"(x.x), "=l"(x.y) : "l"(p));
	return x;
}

// Words that other kernels, or the host and other devices, see and write while this one runs.
INLINE u32 loadDevice(const u32 *p)
{
	u32 x;
	asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
	return x;
}
INLINE u64 loadDevice(const u64 *p)
{
	u64 x;
	asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
	return x;
}
INLINE void fenceDevice() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
INLINE void storeSystem(u64 *p, u64 x) { asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory"); }
INLINE u32 loadSystem(const u32 *p)
{
	u32 x;
	asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
	return x;
}
INLINE u64 loadSystem(const u64 *p)
{
	u64 x;
	asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
	return x;
}
// loadSame is loadSystem by all lanes of a warp from one address. They get the same value: the instruction makes one access.
INLINE u64 loadSame(const u64 *p) { return loadSystem(p); }
INLINE void storeSystem(u32 *p, u32 x) { asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory"); }
INLINE void fenceSystem() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
// fenceSequential orders the stores before it and the loads behind it, for all kernels of this device that have such a fence of their own.
INLINE void fenceSequential() { asm volatile("fence.sc.gpu;" ::: "memory"); }
// fenceSequentialSystem does so for the host and other devices, too.
INLINE void fenceSequentialSystem() { asm volatile("fence.sc.sys;" ::: "memory"); }
INLINE u32 exchange(u32 *p, u32 x)
{
	u32 before;
	asm volatile("atom.acq_rel.gpu.global.exch.b32 %0, [%1], %2;" : "=r"(before) : "l"(p), "r"(x) : "memory");
	return before;
}
INLINE void atomicMax(u64 *p, u64 x) { asm volatile("red.global.max.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory"); }
INLINE u64 nanos()
{
	u64 t;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}
INLINE void sleepNanos(u32 n) { asm volatile("nanosleep.u32 %0;" ::"r"(n)); }

// Rows of the host tier, and rows that have arrived while the kernel runs.
INLINE u32x4 loadTier(u64 p)
{
	u32x4 x;
	asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(p));
	return x;
}
INLINE u32x4 loadArrived(u64 p)
{
	u32x4 x;
	asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(p));
	return x;
}

#endif // EMULATED

// loadWritten loads what other blocks of the same kernel have written.
INLINE u32x4 loadWritten(const u32x4 *p)
{
	u64x2 x = loadShared((const u64x2 *)p);
	return u32x4{(u32)x.x, (u32)(x.x >> 32), (u32)x.y, (u32)(x.y >> 32)};
}

INLINE u32 laneID() { return threadID() & 31; }

INLINE u32 minimum(u32 a, u32 b) { return a < b ? a : b; }
INLINE u64 minimum64(u64 a, u64 b) { return a < b ? a : b; }
INLINE u32 maximum(u32 a, u32 b) { return a > b ? a : b; }
INLINE u32 popcount(u32 x) { return __builtin_popcount(x); }
INLINE u32 lowestBit(u32 x) { return __builtin_ctz(x); } // x is not 0

// A location word: see package slab.
INLINE bool located(u64 word) { return word >> 44 != 0xfffff; }
INLINE bool compressedAt(u64 word) { return word >> 43 & 1; }
INLINE u64 offsetAt(u64 word) { return word & 0xffffffffffull; }
INLINE u32 slabAt(u64 word) { return (u32)(word >> 40) & 7; }
INLINE bool inPeers(u32 peers, u64 word) { return (peers >> slabAt(word) & 1) != 0; }
INLINE u32 storedAt(u64 word) { return (u32)(word >> 44); }

// bitAt returns a row's bit, LSB first in 64-bit words; bits is 0 where there are none.
INLINE bool bitAt(u64 bits, i64 row) { return bits != 0 && loadConst((const u64 *)bits + (row >> 6)) >> (row & 63) & 1; }

// rowAt returns row number i of a batch. All threads of a launch take the same branch. The test is a comparison of a.table, which
// lookups hold in a register anyway: for an argument or a mask of its own, compilers keep another register across serve's loop, and spill.
INLINE i64 rowAt(const LookupArgs &a, u32 i)
{
	return a.table >= INT32_ROWS ? (i64)(i32)loadConst((const u32 *)a.rows + i) : (i64)loadConst((const u64 *)a.rows + i);
}
