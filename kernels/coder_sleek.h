// KERNELS sleek16 SleekCoder lanes=8 encode ROW_WIDTH=16
// KERNELS sleek32 SleekCoder lanes=8 encode ROW_WIDTH=32
// KERNELS sleek64 SleekCoder lanes=8 encode ROW_WIDTH=64
//
// SLEEK: see docs/format/sleek.md. ROW_WIDTH is W: 16, 32 or 64.
//
// A lane decodes quads, words that have one width: at most 128 bits, which begin where a scan of the quads before says. Params: the
// logarithm of a subchunk's quads, the subchunks, the bits of the exponent, and the exponent of the bounded mode's threshold
// or 0. No metadata.
#pragma once
#include "encode.h"

// bitLength returns the bits that x takes.
INLINE u32 bitLength(u32 x) { return x == 0 ? 0 : 32 - (u32)__builtin_clz(x); }
INLINE u32 bitLength(u64 x) { return x >> 32 != 0 ? 32 + bitLength((u32)(x >> 32)) : bitLength((u32)x); }

struct SleekCoder {
	static constexpr int LANES = 8, BLOCKS = 3;
	static constexpr u32 WIDTH = ROW_WIDTH, WORDS = 128 / ROW_WIDTH;

	// Constants for two 16-bit words at once, or one wider one: see lanes in package sleek.
#if ROW_WIDTH == 64
	typedef u64 Word;
	static constexpr Word LOW = 1, FULL = ~0ull;
#else
	typedef u32 Word;
	static constexpr Word LOW = ROW_WIDTH == 16 ? 0x00010001 : 1, FULL = ROW_WIDTH == 16 ? 0xffff : ~0u;
#endif
	static constexpr Word HIGH = LOW << (ROW_WIDTH - 1), BODY = ~HIGH;
	static INLINE u32 exponent(const RowCodec &codec) { return ROW_WIDTH == 64 ? 11 : ROW_WIDTH == 32 ? 8 : codec.params[2]; }
	static INLINE Word one(const RowCodec &codec) { return LOW << (ROW_WIDTH - exponent(codec)); }

	static INLINE Word forward(const RowCodec &codec, Word x)
	{
		Word v = (x << 1 & ~LOW) | (x >> (ROW_WIDTH - 1) & LOW), u = v & BODY;
		Word s = ((u + (HIGH - one(codec))) ^ v) >> (ROW_WIDTH - 1) & LOW;
		u ^= (u ^ ((HIGH + one(codec) - LOW - u) & BODY)) & (s * FULL);
		return u << 1 | s;
	}
	static INLINE Word inverse(const RowCodec &codec, Word z)
	{
		Word s = z & LOW, u = z >> 1 & BODY;
		Word v = u | ((u + (HIGH - one(codec))) & HIGH);
		v ^= (v ^ (HIGH + one(codec) - LOW - u)) & (s * FULL);
		return (v >> 1 & BODY) | (v & LOW) << (ROW_WIDTH - 1);
	}

	// The bounded mode, a word at a time: see bounded in package sleek. m is the bits of the mantissa.
	static INLINE Word code(u32 m, u32 threshold, Word word)
	{
		const Word high = (Word)1 << (ROW_WIDTH - 1);
		Word magnitude = word & (high - 1);
		u32 e = (u32)(magnitude >> m);
		if (e >= threshold) {
			magnitude -= (Word)(threshold - 1) << m;
		} else {
			if (e == 0)
				e = 1;
			else
				magnitude = (magnitude & (((Word)1 << m) - 1)) | (Word)1 << m;
			u32 shift = threshold - e;
			magnitude = shift < ROW_WIDTH ? (magnitude + ((Word)1 << shift >> 1)) >> shift : 0;
		}
		Word z = magnitude << 1 | ((word & high) == 0);
		return z == 0 ? 0 : z - 1;
	}
	static INLINE Word wordOf(u32 m, u32 threshold, Word z)
	{
		const Word high = (Word)1 << (ROW_WIDTH - 1);
		z = (z + 1) & (high - 1 + high);
		Word magnitude = z >> 1, sign = (z & 1) != 0 ? 0 : high;
		if (magnitude == 0)
			return 0;
		if (magnitude >> m != 0)
			return ((magnitude + ((Word)(threshold - 1) << m)) & (high - 1)) | sign;
		u32 shift = minimum(m + 1 - bitLength(magnitude), threshold - 1);
		return ((magnitude << shift) + ((Word)(threshold - 1 - shift) << m)) | sign;
	}
	static ASIDE u32x4 boundedCodes(u32 m, u32 threshold, u32x4 x)
	{
		return each(x, [&](Word w) { return halves(w, [&](Word h) { return code(m, threshold, h); }); });
	}
	static ASIDE u32x4 boundedWords(u32 m, u32 threshold, u32x4 z)
	{
		return each(z, [&](Word w) { return halves(w, [&](Word h) { return wordOf(m, threshold, h); }); });
	}

	// codes are a quad's words as they are stored, and words what they are read back as.
	static INLINE u32x4 codes(const RowCodec &codec, u32x4 x)
	{
		if (codec.params[3] != 0)
			return boundedCodes(ROW_WIDTH - 1 - exponent(codec), codec.params[3], x);
		return each(x, [&](Word w) { return forward(codec, w); });
	}
	static INLINE u32x4 words(const RowCodec &codec, u32x4 z)
	{
		if (codec.params[3] != 0)
			return boundedWords(ROW_WIDTH - 1 - exponent(codec), codec.params[3], z);
		return each(z, [&](Word w) { return inverse(codec, w); });
	}
#if ROW_WIDTH == 64
	template <class F> static INLINE u32x4 each(u32x4 x, F f)
	{
		u64 a = f((u64)x.y << 32 | x.x), b = f((u64)x.w << 32 | x.z);
		return u32x4{(u32)a, (u32)(a >> 32), (u32)b, (u32)(b >> 32)};
	}
#else
	template <class F> static INLINE u32x4 each(u32x4 x, F f) { return u32x4{f(x.x), f(x.y), f(x.z), f(x.w)}; }
#endif
	template <class F> static INLINE Word halves(Word w, F f) { return ROW_WIDTH == 16 ? f(w & 0xffff) | f(w >> 16) << 16 : f(w); }

	// wordsIn returns how many words of the row a quad has, the last one perhaps padded.
	static INLINE u32 wordsIn(const RowCodec &codec, u32 quad)
	{
		return minimum((codec.rowBytes - quad * 16 + WIDTH / 8 - 1) / (WIDTH / 8), WORDS);
	}
	template <class W> static INLINE u32 widthOf(const W &stored, u32 subchunk)
	{
		return stored.at(subchunk / 4) >> subchunk % 4 * 8 & 0xff;
	}
	static INLINE u32 lengthOf(const RowCodec &codec, u32 bits) { return codec.params[1] + (bits + 7) / 8; }

	// unpack returns a quad's words of n bits, n at most WIDTH, given the five words of the row that they begin in, at bit position
	// at modulo 32.
	static INLINE u32x4 unpack(const u32 (&x)[5], u32 at, u32 n)
	{
		u32 b0 = funnelWrap(x[0], x[1], at), b1 = funnelWrap(x[1], x[2], at);
		u32 b2 = funnelWrap(x[2], x[3], at), b3 = funnelWrap(x[3], x[4], at);
		u32x4 y;
		if (WIDTH == 64) {
			u32 low = funnel(~0u, 0, 32 - minimum(n, 32)), high = funnel(~0u, 0, 32 - (maximum(n, 32) - 32));
			y.x = b0 & low, y.y = b1 & high;
			bool far = n >= 32;
			u32 c0 = far ? b1 : b0, c1 = far ? b2 : b1, c2 = far ? b3 : b2;
			n -= far ? 32 : 0;
			y.z = funnel(c0, c1, n) & low, y.w = funnel(c1, c2, n) & high;
			return y;
		}
		u32 two = WIDTH == 16 ? 2 * n : n; // the bits of a word of y
		y.x = b0;
		b0 = funnel(b0, b1, two), b1 = funnel(b1, b2, two), b2 = funnel(b2, b3, two);
		y.y = b0;
		b0 = funnel(b0, b1, two), b1 = funnel(b1, b2, two);
		y.z = b0;
		y.w = funnel(b0, b1, two);
		u32 mask = funnel(~0u, 0, 32 - n);
		if (WIDTH == 16)
			return (y & mask) | (y >> n & mask) << 16;
		return y & mask;
	}

	template <int N, class W>
	static INLINE u32 storedLength(const RowCodec &codec, const u8 *, const W &stored, const Tile<N> &tile)
	{
		u32 subchunks = codec.params[1], subchunk = 16u << codec.params[0], bits = 0;
		bool bad = false;
		for (u32 i = tile.lane; i < subchunks; i += N) {
			u32 n = widthOf(stored, i), bytes = minimum(codec.rowBytes - i * subchunk, subchunk);
			bad |= n > WIDTH;
			bits += n * ((bytes + WIDTH / 8 - 1) / (WIDTH / 8));
		}
		bits = tile.sum(bits);
		return tile.vote(bad) != 0 ? 0 : lengthOf(codec, bits);
	}

	template <int N, class W>
	static INLINE bool decode(const RowCodec &codec, const u8 *, const W &stored, u32 length, u8 *, const Tile<N> &tile, u8 *row)
	{
		u32 before = codec.params[1] * 8; // the bits before the quads of the round
		bool bad = false;
		for (u32 from = 0; from < codec.quads; from += N) {
			u32 quad = from + tile.lane, n = 0, bits = 0;
			bool in = quad < codec.quads;
			if (in) {
				n = widthOf(stored, quad >> codec.params[0]);
				bad |= n > WIDTH;
				n = minimum(n, WIDTH);
				bits = n * wordsIn(codec, quad);
			}
			u32 sum = tile.scan(bits);
			if (in) {
				u32 at = before + sum - bits, x[5];
				stored.window(at / 32, x);
				storeQuad(row, quad, words(codec, unpack(x, at, n)), codec.rowBytes, codec.store);
			}
			before += tile.from(sum, N - 1);
		}
		return tile.vote(bad) == 0 && (before + 7) / 8 == length;
	}

	// widest returns the bits of a quad's largest code.
	static INLINE u32 widest(u32x4 z)
	{
		if (WIDTH == 64)
			return bitLength((u64)(z.y | z.w) << 32 | z.x | z.z);
		u32 all = z.x | z.y | z.z | z.w;
		return bitLength(WIDTH == 16 ? (all | all >> 16) & 0xffff : all);
	}

	// put sets a quad's codes, n bits each, from a bit position on.
	static INLINE void put(const RowCodec &codec, u32 *out, u32 bit, u32 quad, u32x4 z, u32 n)
	{
		u32 words = wordsIn(codec, quad);
		if (WIDTH == 64) {
			putBits(out, bit, z.x, minimum(n, 32));
			putBits(out, bit + 32, z.y, n > 32 ? n - 32 : 0);
			if (words > 1) {
				putBits(out, bit + n, z.z, minimum(n, 32));
				putBits(out, bit + n + 32, z.w, n > 32 ? n - 32 : 0);
			}
			return;
		}
		const u32 y[4] = {z.x, z.y, z.z, z.w};
#pragma unroll
		for (u32 i = 0; i < 4; i++) {
			if (WIDTH == 32) {
				if (i < words)
					putBits(out, bit + i * n, y[i], n);
				continue;
			}
			if (2 * i < words)
				putBits(out, bit + 2 * i * n, y[i] & 0xffff, n);
			if (2 * i + 1 < words)
				putBits(out, bit + (2 * i + 1) * n, y[i] >> 16, n);
		}
	}

	// A warp takes 64 quads a round, two a lane, so that no subchunk is begun in one round and ended in another. The first pass sums the
	// bits, the second stores them.
	static INLINE u32 encode(const RowCodec &codec, const u8 *, const u32 *row, u32 *out, u32, u8 *, const Tile<32> &tile)
	{
		u32 length = 0;
#pragma unroll 1
		for (int pass = 0; pass < 2; pass++) {
			u32 before = 0;
			for (u32 from = 0; from < codec.quads; from += 64) {
				u32 a = from + tile.lane, b = a + 32, group = 1u << codec.params[0];
				u32x4 za = {0, 0, 0, 0}, zb = {0, 0, 0, 0};
				u32 wordsA = 0, wordsB = 0;
				if (a < codec.quads)
					za = codes(codec, rowQuad(row, a, codec.rowBytes)), wordsA = wordsIn(codec, a);
				if (b < codec.quads)
					zb = codes(codec, rowQuad(row, b, codec.rowBytes)), wordsB = wordsIn(codec, b);
				u32 n = widest(za), m = widest(zb);
				for (u32 d = 1; d < minimum(group, 32); d *= 2) {
					n = maximum(n, tileXor<32>(tile.lanes, n, d));
					m = maximum(m, tileXor<32>(tile.lanes, m, d));
				}
				if (group == 64)
					n = m = maximum(n, m);
				u32 bitsA = n * wordsA, bitsB = m * wordsB;
				u32 sum = tile.scan(bitsA | bitsB << 16), all = tile.from(sum, 31);
				if (pass == 1) {
					u32 at = codec.params[1] * 8 + before;
					if (wordsA != 0)
						put(codec, out, at + (sum & 0xffff) - bitsA, a, za, n);
					if (wordsB != 0)
						put(codec, out, at + (all & 0xffff) + (sum >> 16) - bitsB, b, zb, m);
					if (a % group == 0 && wordsA != 0)
						putWidth(out, a / group, n);
					if (b % group == 0 && wordsB != 0)
						putWidth(out, b / group, m);
				}
				before += (all & 0xffff) + (all >> 16);
			}
			length = lengthOf(codec, before);
			if (length >= codec.rowBytes)
				break;
		}
		return length;
	}
	static INLINE void putWidth(u32 *out, u32 subchunk, u32 n) { atomicOrShared(out + subchunk / 4, n << subchunk % 4 * 8); }
};
