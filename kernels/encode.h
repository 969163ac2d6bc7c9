// Parts of IBP's encoders. ibp.h describes the device metadata.
#pragma once
#include "ibp.h"

// rowQuad returns the words of a quad, zeros beyond the row.
INLINE u32x4 rowQuad(const u32 *row, u32 quad, u32 rowBytes)
{
	u32 w[4];
#pragma unroll
	for (u32 i = 0; i < 4; i++) {
		u32 at = quad * 16 + i * 4;
		w[i] = at < rowBytes ? row[quad * 4 + i] : 0;
		if (at < rowBytes && rowBytes - at < 4)
			w[i] &= (1u << (8 * (rowBytes - at))) - 1;
	}
	return u32x4{w[0], w[1], w[2], w[3]};
}

// participation returns which chunks of a quad participate, each as a byte of ones or zeros.
template <int CHUNK> INLINE u32 participation(u32x4 x, u32x4 mask, u32x4 val)
{
	u32x4 bad = (x & mask) ^ val;
	if (CHUNK == 4)
		return (bad.x == 0 ? 0xff : 0) | (bad.y == 0 ? 0xff00 : 0) | (bad.z == 0 ? 0xff0000 : 0) | (bad.w == 0 ? 0xff000000 : 0);
	return ((bad.x | bad.y) == 0 ? 0xff : 0) | ((bad.z | bad.w) == 0 ? 0xff00 : 0);
}

// packQuad moves the kept bits of each chunk of a quad to the chunk's low end, and sets part to the participating chunks.
template <int CHUNK, int STEPS, class M> INLINE u32x4 packQuad(const M &meta, u32 quad, u32x4 x, u32 &part)
{
	u32x4 mask = meta.plane(quad, 0);
	part = participation<CHUNK>(x, mask, meta.plane(quad, 1));
	x &= ~mask;
	if (CHUNK == 4) {
#pragma unroll
		for (int i = 0; i < STEPS; i++) {
			u32x4 t = x & meta.plane(quad, 2 + i);
			x = (x ^ t) | t >> (1 << i);
		}
		return x;
	}
	u64 a = (u64)x.y << 32 | x.x, b = (u64)x.w << 32 | x.z;
#pragma unroll
	for (int i = 0; i < STEPS; i++) {
		u32x4 m = meta.plane(quad, 2 + i);
		u64 t = a & ((u64)m.y << 32 | m.x), u = b & ((u64)m.w << 32 | m.z);
		a = (a ^ t) | t >> (1 << i);
		b = (b ^ u) | u >> (1 << i);
	}
	return u32x4{(u32)a, (u32)(a >> 32), (u32)b, (u32)(b >> 32)};
}

// putBits sets the low n bits of x, 0 to 32 with zeros above, at a bit position of words that are zero there.
INLINE void putBits(u32 *words, u32 bit, u64 x, u32 n)
{
	if (n == 0)
		return;
	x <<= bit & 31;
	atomicOrShared(words + bit / 32, (u32)x);
	if ((bit & 31) + n > 32)
		atomicOrShared(words + bit / 32 + 1, (u32)(x >> 32));
}

// putQuad writes a quad's kept bits to payload from a bit position on, and its participation bits to flags as those of quad number quad.
// chunks is the number of the row's chunks from this quad on.
template <int CHUNK>
INLINE void putQuad(u32 *payload, u32 bit, u32 *flags, u32 quad, u32 chunks, u32x4 x, u32x4 packed, u32 part, u32 masked)
{
	constexpr u32 N = 16 / CHUNK;
	u32 on = 0;
	u64 words[4] = {x.x, x.y, x.z, x.w}, low[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
	for (u32 c = 0; c < N; c++)
		if (c < chunks) {
			bool in = part >> (8 * c) & 1;
			u32 n = CHUNK * 8 - (in ? masked >> (8 * c) & 0xff : 0);
			on |= (u32)in << c;
			if (CHUNK == 4) {
				putBits(payload, bit, in ? low[c] : words[c], n);
			} else {
				u64 v = in ? low[2 * c] | low[2 * c + 1] << 32 : words[2 * c] | words[2 * c + 1] << 32;
				putBits(payload, bit, v & 0xffffffff, minimum(n, 32));
				if (n > 32)
					putBits(payload, bit + 32, v >> 32, n - 32);
			}
			bit += n;
		}
	atomicOrShared(flags + quad * N / 32, on << (quad * N & 31));
}

// Tally counts the rows that a thread has encoded, for EncodeTotals.
struct Tally {
	u64 raw, stored, slots;
	INLINE void clear() { raw = stored = slots = 0; }
	// add counts row i of the launch, and writes the row's bit and length.
	INLINE void add(const EncodeArgs &a, u32 i, u32 length)
	{
		bool shrinks = length < a.codec.rowBytes;
		u64 row = a.first + i;
		if (shrinks && a.bits != 0)
			atomicOrShared((u32 *)a.bits + row / 32, 1u << (row & 31));
		if (a.lengths != 0)
			((u32 *)a.lengths)[row] = shrinks ? length : 0;
		u32 n = shrinks ? length : a.codec.rowBytes;
		raw += !shrinks;
		stored += n;
		slots += (n + SLOT_ALIGN - 1) & ~(SLOT_ALIGN - 1);
	}
	// join adds another thread's tally to this one, which lies in shared memory.
	INLINE void join(const Tally &t)
	{
		__atomic_fetch_add(&raw, t.raw, __ATOMIC_RELAXED);
		__atomic_fetch_add(&stored, t.stored, __ATOMIC_RELAXED);
		__atomic_fetch_add(&slots, t.slots, __ATOMIC_RELAXED);
	}
	INLINE void flush(const EncodeArgs &a) const
	{
		EncodeTotals *t = (EncodeTotals *)a.totals;
		atomicAdd(&t->rawRows, raw);
		atomicAdd(&t->storedBytes, stored);
		atomicAdd(&t->slotBytes, slots);
	}
};
