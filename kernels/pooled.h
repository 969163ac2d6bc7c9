// Sums of rows: where bags and runs begin, elements of rows as float32, and what is written of a bag. Package reduce says in which order rows are
// added; every operation here is rounded on its own, as there.
#pragma once
#include "abi_pooled.h"
#include "coder.h"

INLINE float asFloat(u32 x) { return __builtin_bit_cast(float, x); }
INLINE u32 bitsOf(float x) { return __builtin_bit_cast(u32, x); }

#ifdef EMULATED
INLINE float sumOf(float a, float b) { return a + b; }
INLINE float productOf(float a, float b) { return a * b; }
INLINE float quotientOf(float a, float b) { return a / b; }
INLINE float ofHalf(u32 x)
{
	u32 sign = (x & 0x8000) << 16, exponent = x >> 10 & 31, fraction = x & 1023;
	if (exponent == 0)
		return asFloat(bitsOf((float)fraction * 0x1p-24f) | sign);
	return asFloat(sign | (exponent == 31 ? 0xffu : exponent + 127 - 15) << 23 | fraction << 13);
}
INLINE u32 halfOf(float x)
{
	u32 sign = bitsOf(x) >> 16 & 0x8000, size = bitsOf(x) & 0x7fffffff;
	if (size >= 0x47800000)
		return sign | 0x7c00;
	if (size < 0x38800000)
		return sign | (bitsOf(asFloat(size) + 0.5f) - 0x3f000000);
	size += 0xfff + (size >> 13 & 1);
	return sign | (size - ((127 - 15) << 23)) >> 13;
}
template <class T> INLINE void storeFar(T *p, T x) { *written(p) = x; }
#else
// Compilers would make one operation of a product and a sum.
INLINE float sumOf(float a, float b)
{
	float r;
	asm("add.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
	return r;
}
INLINE float productOf(float a, float b)
{
	float r;
	asm("mul.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
	return r;
}
INLINE float quotientOf(float a, float b)
{
	float r;
	asm("div.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
	return r;
}
INLINE float ofHalf(u32 x)
{
	float r;
	asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"((u16)x));
	return r;
}
INLINE u32 halfOf(float x)
{
	u16 r;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
	return r;
}
template <class T> INLINE void storeFar(T *p, T x) { *p = x; }
#endif

// rounded returns the bits of a 16-bit element.
INLINE u32 rounded(float x, u32 as)
{
	if (x != x)
		return as == POOL_FLOAT16 ? 0x7e00 : 0x7fc0;
	if (as == POOL_FLOAT16)
		return halfOf(x);
	u32 b = bitsOf(x);
	return (b + 0x7fff + (b >> 16 & 1)) >> 16;
}

// unpack returns the EACH elements of a quad: four, or eight of 16 bits.
template <int EACH> INLINE void unpack(u32x4 quad, u32 element, float (&x)[EACH])
{
	if constexpr (EACH == 4) {
		x[0] = asFloat(quad.x), x[1] = asFloat(quad.y), x[2] = asFloat(quad.z), x[3] = asFloat(quad.w);
	} else if (element == POOL_FLOAT16) {
#pragma unroll
		for (int i = 0; i < 4; i++)
			x[2 * i] = ofHalf(quad[i] & 0xffff), x[2 * i + 1] = ofHalf(quad[i] >> 16);
	} else {
#pragma unroll
		for (int i = 0; i < 4; i++)
			x[2 * i] = asFloat(quad[i] << 16), x[2 * i + 1] = asFloat(quad[i] & 0xffff0000);
	}
}

// storeSums writes the EACH sums of a quad as elements of the output. A row's last quad may have fewer.
template <int EACH> INLINE void storeSums(const PoolArgs &p, u8 *out, u32 quad, const float (&x)[EACH])
{
	u32 first = quad * EACH, n = minimum(p.columns - first, EACH);
	if (p.output == POOL_FLOAT32) {
		u32 y[EACH];
#pragma unroll
		for (int i = 0; i < EACH; i++)
			y[i] = x[i] != x[i] ? 0x7fc00000 : bitsOf(x[i]);
		u32 *to = (u32 *)out + first;
		if (n == EACH && p.unit == 16) {
#pragma unroll
			for (int i = 0; i < EACH; i += 4)
				storeFar((u32x4 *)(to + i), u32x4{y[i], y[i + 1], y[i + 2], y[i + 3]});
			return;
		}
#pragma unroll
		for (int i = 0; i < EACH; i++)
			if (i < n)
				storeFar(to + i, y[i]);
		return;
	}
	u32 y[EACH / 2];
#pragma unroll
	for (int i = 0; i < EACH / 2; i++)
		y[i] = rounded(x[2 * i], p.output) | rounded(x[2 * i + 1], p.output) << 16;
	u16 *to = (u16 *)out + first;
	if (n == EACH && p.unit >= 2 * EACH) {
		if constexpr (EACH == 8)
			storeFar((u32x4 *)to, u32x4{y[0], y[1], y[2], y[3]});
		else
			storeFar((u32x2 *)to, u32x2{y[0], y[1]});
		return;
	}
#pragma unroll
	for (int i = 0; i < EACH; i++)
		if (i < n)
			storeFar(to + i, (u16)(y[i / 2] >> 16 * (i % 2)));
}

// addUnit adds elements of a row to the sums of those before it. fresh says that the row is the first one of its bag.
template <int EACH> INLINE void addUnit(const PoolArgs &p, float (&s)[EACH], float (&y)[EACH], u32 weight, bool fresh)
{
	if (p.mode == POOL_MAX) {
#pragma unroll
		for (int k = 0; k < EACH; k++)
			s[k] = fresh || y[k] > s[k] ? y[k] : s[k];
		return;
	}
	if (p.weights != 0) {
#pragma unroll
		for (int k = 0; k < EACH; k++)
			y[k] = productOf(asFloat(weight), y[k]);
	}
#pragma unroll
	for (int k = 0; k < EACH; k++)
		s[k] = sumOf(s[k], y[k]);
}

// firstSum returns what leaves the first row that is added as it is.
INLINE float firstSum(const PoolArgs &p) { return asFloat(p.mode == POOL_MAX ? 0xff800000 : 0x80000000); }

// finish makes of a run's sums, of so many rows, those of the bag, which has no other run.
template <int EACH> INLINE void finish(const PoolArgs &p, float (&y)[EACH], u32 rows)
{
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		if (rows == 0)
			y[i] = 0;
		else if (rows > 1 && p.mode == POOL_MEAN)
			y[i] = quotientOf(y[i], (float)rows);
	}
}

// storePartial writes the sums of a unit of a run to its place.
template <int EACH> INLINE void storePartial(const PoolArgs &p, u8 *place, u32 unit, const float (&y)[EACH])
{
#pragma unroll
	for (int i = 0; i < EACH; i += 4)
		if (unit * EACH + i < p.columns) // the last four may be padding
			storeFar((u32x4 *)(place + POOL_PARTIAL_HEADER + (unit * EACH + i) * 4), u32x4{bitsOf(y[i]), bitsOf(y[i + 1]), bitsOf(y[i + 2]), bitsOf(y[i + 3])});
}

// offsetGiven returns the i-th of the offsets at an address.
INLINE i64 offsetGiven(u64 offsets, u32 narrow, u32 i)
{
	return narrow ? (i64)(i32)loadConst((const u32 *)offsets + i) : (i64)loadConst((const u64 *)offsets + i);
}

// boundAt returns the i-th offset of a batch as a position of the batch, which it may be outside of.
INLINE i64 boundAt(const PoolArgs &p, u32 i) { return (i64)((u64)offsetGiven(p.offsets, p.narrow, i) - p.begin); }

// startOf returns the position at which a bag begins; of bag number p.bags, where the last one ends. n is the number of positions.
INLINE u32 startOf(const PoolArgs &p, u32 n, u32 bag)
{
	if (p.size != 0)
		return bag * p.size;
	if (bag >= p.offsetCount)
		return n;
	i64 x = boundAt(p, bag);
	return x < 0 ? 0 : (u32)minimum64((u64)x, n);
}

// placeOf returns where the sums of a run of a longer bag go, with their header in front: see reduce.Batch.PartialBytes. placeNumber returns the number of that
// place.
INLINE u32 placeNumber(u32 position, bool last) { return position / POOL_RUN * 2 + last; }
INLINE u8 *placeOf(const PoolArgs &p, u32 position, bool last) { return (u8 *)p.partials + (u64)placeNumber(position, last) * p.partialStride; }

// badOffset says whether an offset is out of order.
INLINE bool badOffset(const PoolArgs &p, u32 n, u32 i)
{
	i64 x = boundAt(p, i), before = i == 0 ? 0 : boundAt(p, i - 1);
	return x < before || x > (i64)n || (i == 0 && x != 0);
}

// Runs finds the runs of a batch of n positions, by a tile.
template <int N> struct Runs {
	const PoolArgs &p;
	const Tile<N> &tile;
	u32 n;

	// firstBag returns the first bag that begins at a position or behind it, p.bags if there is none. N bags are looked at at once.
	INLINE u32 firstBag(u32 position) const
	{
		if (p.size != 0)
			return minimum((position + p.size - 1) / p.size, p.bags);
		u32 low = 0, high = p.bags;
		while (low < high) {
			u32 step = (high - low) / N + 1, at = low + tile.lane * step;
			u32 before = popcount(tile.vote(at < high && startOf(p, n, at) < position));
			high = minimum(high, low + before * step);
			low = before == 0 ? low : low + (before - 1) * step + 1;
		}
		return low;
	}
	// first returns the first run that begins at a position or behind it.
	INLINE void first(u32 position, u32 &bag, u32 &at) const
	{
		bag = firstBag(position);
		if (bag > 0) {
			u32 start = startOf(p, n, bag - 1), end = startOf(p, n, bag);
			at = start + (position - start + POOL_RUN - 1) / POOL_RUN * POOL_RUN;
			if (start < position && at < end) {
				bag--;
				return;
			}
		}
		at = startOf(p, n, bag);
	}
	// each calls run for the runs from the one on that begins at a position of a bag: for those that begin before next, and if last is set for
	// empty bags behind them. No run ends behind limit. run is given the bag, where the run begins and ends, and where the bag does.
	// It ends where it finds offsets out of order.
	template <class F> INLINE void each(u32 bag, u32 at, u32 next, bool last, u32 limit, F run) const
	{
		for (; bag < p.bags && (at < next || last); bag++) {
			u32 bagStart = startOf(p, n, bag), bagEnd = startOf(p, n, bag + 1);
			if (bagEnd < at || bagStart > at)
				return;
			do {
				u32 end = minimum(at + POOL_RUN, bagEnd);
				if (end > limit)
					return;
				run(bag, at, end, bagStart, bagEnd);
				at = end;
			} while (at < bagEnd && at < next);
			if (at < bagEnd)
				return;
		}
	}
};
