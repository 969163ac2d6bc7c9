// Rank planes: see docs/format/rank.md. ROW_ELEMENT is the bytes of an element: 2, 4 or 8.
//
// Params: the row's elements; rotation, symbol bits << 8 and levels << 16; the levels' digit bits, four bits each, level 0 lowest; and the
// length's bytes. Metadata: for each of 8 levels the 16 symbols of its digits, 16 bits each; then for each symbol a byte, level
// << 4 | digit, which encoding reads.
//
// A level's elements are lists in shared memory: a lane takes a digit of the list, whatever element it is of, and those passed on are
// a new list, made by ballots. Only level 0, which has a digit for every element, is decoded by quads, and so are the rests.
#pragma once
#include "coder.h"
#include "encode.h"

struct RankCoder {
	static constexpr int LANES = 8, BLOCKS = 3;
	static constexpr u32 WIDTH = 8 * ROW_ELEMENT, EACH = 16 / ROW_ELEMENT, SEGMENT = 512 / ROW_ELEMENT; // EACH: elements a quad
	static constexpr u32 LEVEL_SYMBOLS = 16, LEVELS = 8;

	// Shape is the params.
	struct Shape {
		u32 elements, rotate, symbol, levels, digits, header, rest, segment;
		const u16 *symbols;
		INLINE u32 bits(u32 level) const { return digits >> 4 * level & 15; }
	};
	static INLINE Shape shapeOf(const RowCodec &codec, const u8 *meta)
	{
		Shape s;
		s.elements = codec.params[0];
		s.rotate = codec.params[1] & 0xff, s.symbol = codec.params[1] >> 8 & 0xff, s.levels = codec.params[1] >> 16;
		s.digits = codec.params[2], s.header = codec.params[3];
		s.rest = WIDTH - s.symbol;
		s.segment = minimum(SEGMENT, (s.elements + 15) & ~15u);
		s.symbols = (const u16 *)meta;
		return s;
	}

	// The scratch memory: a segment's symbols, and two lists of its elements.
	static INLINE u16 *symbolsIn(u8 *scratch) { return (u16 *)scratch; }
	static INLINE u8 *listIn(u8 *scratch, const Shape &s, u32 which) { return scratch + (2 + which) * s.segment; }

	template <int N> static INLINE u32 before(const Tile<N> &tile, u32 votes) { return popcount(votes & ((1u << tile.lane) - 1)); }

	// lengthIn reads a row's length; it must have one.
	template <class W> static INLINE u32 lengthIn(const Shape &s, const W &stored) { return stored.at(0) & (s.header == 2 ? 0xffff : 0xffffff); }

	static INLINE u32 tailBytes(const RowCodec &codec, const Shape &s) { return codec.rowBytes - s.elements * ROW_ELEMENT; }

	template <int N, class W>
	static INLINE u32 storedLength(const RowCodec &codec, const u8 *meta, const W &stored, const Tile<N> &tile)
	{
		Shape s = shapeOf(codec, meta);
		if (s.header != 0) {
			u32 n = lengthIn(s, stored);
			return n < codec.rowBytes ? n : 0;
		}
		u32 left = s.elements, pos = 0; // one segment
#pragma unroll 1
		for (u32 k = 0; k < s.levels; k++) {
			u32 bits = s.bits(k), ones = (1u << bits) - 1, passed = 0;
#pragma unroll 1
			for (u32 i = tile.lane; i < left; i += N)
				passed += (bitsAt(stored, pos + i * bits) & ones) == ones;
			pos += left * bits;
			left = tile.sum(passed);
		}
		u32 n = (pos + left * s.symbol + s.elements * s.rest + tailBytes(codec, s) * 8 + 7) / 8;
		return n < codec.rowBytes ? n : 0;
	}

	// firstLevel decodes level 0 of n elements: the symbols of those that it names, and the list of the others, whose number it returns.
	template <int N, class W>
	static INLINE u32 firstLevel(const Shape &s, const W &stored, u32 pos, u32 n, u8 *scratch, const Tile<N> &tile)
	{
		u32 bits = s.bits(0), ones = (1u << bits) - 1;
		u32 every = bits == 1 ? ~0u : bits == 2 ? 0x55555555 : bits == 3 ? 0x09249249 : 0x11111111;
		u32 divide = 0x10000 / bits + 1; // 16 bits of a reciprocal: bit positions are below 32
		u16 *symbols = symbolsIn(scratch);
		u8 *list = listIn(scratch, s, 0);
		u32 lut[2] = {((const u32 *)s.symbols)[0], ((const u32 *)s.symbols)[1]};
		u32 passed = 0;
#pragma unroll 1
		for (u32 from = 0; from < n; from += N * EACH) {
			u32 first = from + tile.lane * EACH, mask = 0;
			if (first < n) {
				u32 w = bitsAt(stored, pos + first * bits);
				u32 two[EACH / 2]; // symbols
#pragma unroll
				for (u32 i = 0; i < EACH / 2; i++) {
					u32 a = w >> 2 * i * bits & ones, b = w >> (2 * i + 1) * bits & ones;
					if (bits <= 2)
						two[i] = permute(lut[0], lut[1], (a | b << 8) * 0x22 + 0x1010);
					else
						two[i] = s.symbols[a] | (u32)s.symbols[b] << 16;
				}
				u32 *to = (u32 *)(symbols + first);
#pragma unroll
				for (u32 i = 0; i < EACH / 2; i++)
					to[i] = two[i];
				mask = w & every;
#pragma unroll
				for (u32 i = 1; i < 4; i++)
					mask &= i < bits ? w >> i : ~0u;
				u32 valid = minimum(n - first, EACH) * bits; // 1 to 32
				mask &= ~0u >> (32 - valid);
			}
			u32 mine = popcount(mask), sum = tile.scan(mine), at = passed + sum - mine;
#pragma unroll 1
			for (; mask != 0; mask &= mask - 1)
				list[at++] = (u8)(first + (__builtin_ctz(mask) * divide >> 16));
			passed += tile.from(sum, N - 1);
		}
		tile.sync();
		return passed;
	}

	// segmentSymbols decodes the levels of n elements that begin at bit pos: symbols to the scratch memory. pos is then where the
	// rests begin.
	template <int N, class W>
	static INLINE void segmentSymbols(const Shape &s, const W &stored, u32 &pos, u32 n, u8 *scratch, const Tile<N> &tile)
	{
		u16 *symbols = symbolsIn(scratch);
		u32 passed = firstLevel(s, stored, pos, n, scratch, tile);
		pos += n * s.bits(0);
		u8 *list = listIn(scratch, s, 0), *other = listIn(scratch, s, 1);
#pragma unroll 1
		for (u32 k = 1; k < s.levels && passed != 0; k++) {
			u32 bits = s.bits(k), ones = (1u << bits) - 1, next = 0;
			const u16 *of = s.symbols + k * LEVEL_SYMBOLS;
#pragma unroll 1
			for (u32 from = 0; from < passed; from += N) {
				u32 i = from + tile.lane, digit = 0, element = 0;
				bool in = i < passed;
				if (in) {
					digit = bitsAt(stored, pos + i * bits) & ones;
					element = list[i];
				}
				bool on = in && digit == ones;
				if (in && !on)
					symbols[element] = of[digit];
				u32 votes = tile.vote(on);
				if (on)
					other[next + before(tile, votes)] = (u8)element;
				next += popcount(votes);
			}
			pos += passed * bits;
			passed = next;
			u8 *t = list;
			list = other, other = t;
			tile.sync(); // the new list is there, and the old one read
		}
#pragma unroll 1
		for (u32 i = tile.lane; i < passed; i += N)
			symbols[list[i]] = (u16)(bitsAt(stored, pos + i * s.symbol) & ((1u << s.symbol) - 1));
		pos += passed * s.symbol;
		tile.sync();
	}

	// joinQuad puts symbols, in words, and rests, from bit position at on, together.
	template <class W> static INLINE u32x4 joinQuad(const Shape &s, const W &stored, const u16 *symbols, u32 at)
	{
		u32 x[5], b[4];
		stored.window(at / 32, x);
#pragma unroll
		for (int i = 0; i < 4; i++)
			b[i] = funnelWrap(x[i], x[i + 1], at);
		const u32 *two = (const u32 *)symbols;
		u32 y[4];
#if ROW_ELEMENT == 2
		u32 low = (1u << s.rest) - 1;
#pragma unroll
		for (int i = 0; i < 4; i++) {
			y[i] = (b[0] & low) | (b[0] >> s.rest & low) << 16 | two[i] << s.rest;
			if (s.rotate)
				y[i] = (y[i] >> 1 & 0x7fff7fff) | (y[i] & 0x00010001) << 15;
#pragma unroll
			for (int j = 0; j + i < 3; j++)
				b[j] = funnel(b[j], b[j + 1], 2 * s.rest);
		}
#elif ROW_ELEMENT == 4
		u32 low = (1u << s.rest) - 1;
#pragma unroll
		for (int i = 0; i < 4; i++) {
			u32 symbol = i & 1 ? two[i / 2] >> 16 : two[i / 2] & 0xffff;
			y[i] = (b[0] & low) | symbol << s.rest;
			if (s.rotate)
				y[i] = y[i] >> 1 | y[i] << 31;
#pragma unroll
			for (int j = 0; j + i < 3; j++)
				b[j] = funnel(b[j], b[j + 1], s.rest);
		}
#else
		// A rest has 52 to 62 bits.
		u64 low = ((u64)1 << s.rest) - 1;
		u64 rests[2] = {
			(u64)b[1] << 32 | b[0], (u64)funnel(b[2], b[3], s.rest - 32) << 32 | funnel(b[1], b[2], s.rest - 32),
		};
#pragma unroll
		for (int i = 0; i < 2; i++) {
			u64 z = (rests[i] & low) | (u64)(i == 0 ? two[0] & 0xffff : two[0] >> 16) << s.rest;
			if (s.rotate)
				z = z >> 1 | z << 63;
			y[2 * i] = (u32)z, y[2 * i + 1] = (u32)(z >> 32);
		}
#endif
		return u32x4{y[0], y[1], y[2], y[3]};
	}

	template <int N, class W>
	static INLINE bool decode(const RowCodec &codec, const u8 *meta, const W &stored, u32 length, u8 *scratch, const Tile<N> &tile, u8 *row)
	{
		Shape s = shapeOf(codec, meta);
		u32 pos = 8 * s.header;
#pragma unroll 1
		for (u32 from = 0; from < s.elements && pos / 8 <= length; from += SEGMENT) {
			u32 n = minimum(s.elements - from, SEGMENT);
			segmentSymbols(s, stored, pos, n, scratch, tile);
#pragma unroll 1
			for (u32 first = tile.lane * EACH; first < n; first += N * EACH) {
				u32x4 x = joinQuad(s, stored, symbolsIn(scratch) + first, pos + first * s.rest);
				storeQuad(row, (from + first) / EACH, x, codec.rowBytes, codec.store);
			}
			pos += n * s.rest;
			tile.sync(); // the scratch memory is free
		}
		// The last quad's lane wrote over the tail bytes: they come after tile.sync.
		u32 tail = tailBytes(codec, s);
		if (tile.lane < tail)
			row[s.elements * ROW_ELEMENT + tile.lane] = (u8)bitsAt(stored, pos + 8 * tile.lane);
		pos += 8 * tail;
		return (pos + 7) / 8 == length && length < codec.rowBytes && (s.header == 0 || lengthIn(s, stored) == length);
	}

	// putRoom is putBits where there is room.
	static INLINE void putRoom(u32 *out, u32 room, u32 bit, u32 x, u32 n)
	{
		if ((bit + n + 31) / 32 <= room)
			putBits(out, bit, x, n);
	}

	// symbolAt cuts element i of a row in symbol and rest.
	static INLINE u32 symbolAt(const Shape &s, const u32 *words, u32 i, u64 &rest)
	{
		u64 x;
		if (ROW_ELEMENT == 2) {
			u32 y = words[i / 2] >> (i & 1) * 16 & 0xffff;
			x = s.rotate ? (y << 1 & 0xffff) | y >> 15 : y;
		} else if (ROW_ELEMENT == 4) {
			u32 y = words[i];
			x = s.rotate ? y << 1 | y >> 31 : y;
		} else {
			u64 y = (u64)words[2 * i + 1] << 32 | words[2 * i];
			x = s.rotate ? y << 1 | y >> 63 : y;
		}
		rest = x & (((u64)1 << s.rest) - 1);
		return (u32)(x >> s.rest);
	}

	static INLINE u32 encode(const RowCodec &codec, const u8 *meta, const u32 *words, u32 *out, u32 room, u8 *scratch, const Tile<32> &tile)
	{
		Shape s = shapeOf(codec, meta);
		const u8 *codes = meta + LEVELS * LEVEL_SYMBOLS * 2;
		u32 pos = 8 * s.header;
#pragma unroll 1
		for (u32 from = 0; from < s.elements; from += SEGMENT) {
			u32 n = minimum(s.elements - from, SEGMENT), passed = n;
			u64 rest;
			u8 *list = listIn(scratch, s, 0), *other = listIn(scratch, s, 1);
#pragma unroll 1
			for (u32 k = 0; k <= s.levels && passed != 0; k++) { // past the last level: symbols as such
				bool last = k == s.levels;
				u32 bits = last ? s.symbol : s.bits(k), ones = (1u << bits) - 1, next = 0;
#pragma unroll 1
				for (u32 first = 0; first < passed; first += 32) {
					u32 i = first + tile.lane, element = 0;
					bool on = false;
					if (i < passed) {
						element = k == 0 ? i : list[i];
						u32 symbol = symbolAt(s, words, from + element, rest), code = codes[symbol];
						on = !last && code >> 4 != k;
						putRoom(out, room, pos + i * bits, last ? symbol : on ? ones : code & 15, bits);
					}
					u32 votes = tile.vote(on);
					if (on)
						other[next + before(tile, votes)] = (u8)element;
					next += popcount(votes);
				}
				pos += passed * bits;
				passed = next;
				u8 *t = list;
				list = other, other = t;
				tile.sync(); // the new list is there, and the old one read
			}
#pragma unroll 1
			for (u32 i = tile.lane; i < n; i += 32) {
				symbolAt(s, words, from + i, rest);
				u32 bit = pos + i * s.rest, low = minimum(s.rest, 32);
				putRoom(out, room, bit, (u32)rest, low);
				if (s.rest > 32)
					putRoom(out, room, bit + 32, (u32)(rest >> 32), s.rest - 32);
			}
			pos += n * s.rest;
		}
		u32 tail = tailBytes(codec, s), at = s.elements * ROW_ELEMENT + tile.lane;
		if (tile.lane < tail)
			putRoom(out, room, pos + 8 * tile.lane, words[at / 4] >> at % 4 * 8 & 0xff, 8);
		u32 length = (pos + 8 * tail + 7) / 8;
		if (tile.lane == 0)
			putRoom(out, room, 0, length, 8 * s.header);
		return length;
	}
};
