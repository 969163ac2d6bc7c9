// What the kernels need of CUDA C++, in place of the toolkit's headers: clang's builtins and inline PTX by name.
#pragma once
#include "abi.h"

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define INLINE __device__ inline __attribute__((always_inline))
#define KERNEL extern "C" __global__

typedef u32 u32x2 __attribute__((ext_vector_type(2)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef u64 u64x2 __attribute__((ext_vector_type(2)));

INLINE u32 threadID() { return __nvvm_read_ptx_sreg_tid_x(); }
INLINE u32 blockID() { return __nvvm_read_ptx_sreg_ctaid_x(); }
INLINE u32 blockThreads() { return __nvvm_read_ptx_sreg_ntid_x(); }
INLINE u32 gridBlocks() { return __nvvm_read_ptx_sreg_nctaid_x(); }
INLINE u32 laneID() { return threadID() & 31; }
INLINE void blockSync() { __syncthreads(); }
INLINE void warpSync(u32 lanes) { __nvvm_bar_warp_sync(lanes); }

INLINE u32 minimum(u32 a, u32 b) { return a < b ? a : b; }
INLINE u64 minimum64(u64 a, u64 b) { return a < b ? a : b; }
INLINE u32 maximum(u32 a, u32 b) { return a > b ? a : b; }

INLINE u32 ballot(u32 lanes, bool vote) { return __nvvm_vote_ballot_sync(lanes, vote); }
INLINE u32 popcount(u32 x) { return __builtin_popcount(x); }

// Shuffles within tiles of WIDTH lanes, a power of two; lanes names the tile's lanes.
template <int WIDTH> INLINE u32 tileFrom(u32 lanes, u32 x, u32 lane)
{
	return __nvvm_shfl_sync_idx_i32(lanes, x, lane, (32 - WIDTH) << 8 | 31);
}
template <int WIDTH> INLINE u32 tileXor(u32 lanes, u32 x, u32 bit)
{
	return __nvvm_shfl_sync_bfly_i32(lanes, x, bit, (32 - WIDTH) << 8 | 31);
}

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

// Loads of what no kernel that runs at the same time writes.
INLINE u32 loadConst(const u32 *p)
{
	u32 x;
	asm("ld.global.nc.u32 %0, [%1];" : "=r"(x) : "l"(p));
	return x;
}
INLINE u64 loadConst(const u64 *p)
{
	u64 x;
	asm("ld.global.nc.u64 %0, [%1];" : "=l"(x) : "l"(p));
	return x;
}
INLINE u32x4 loadConst(const u32x4 *p)
{
	u32x4 x;
	asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(p));
	return x;
}

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
INLINE void copyWait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// A location word: see package slab.
INLINE bool located(u64 word) { return word >> 44 != 0xfffff; }
INLINE bool compressedAt(u64 word) { return word >> 43 & 1; }
INLINE u64 offsetAt(u64 word) { return word & 0xffffffffffull; }
INLINE u32 slabAt(u64 word) { return (u32)(word >> 40) & 7; }
INLINE u32 storedAt(u64 word) { return (u32)(word >> 44); }
