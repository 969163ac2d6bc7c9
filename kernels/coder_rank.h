// KERNELS rank2 RankCoder lanes=8 encode ROW_ELEMENT=2
// KERNELS rank4 RankCoder lanes=8 encode ROW_ELEMENT=4
// KERNELS rank8 RankCoder lanes=8 encode ROW_ELEMENT=8
// KERNELS rankb2 RankCoder lanes=8 encode ROW_ELEMENT=2 ROW_BASES=1
// KERNELS rankb4 RankCoder lanes=8 encode ROW_ELEMENT=4 ROW_BASES=1
//
// quads, measured on an H200, GB/s of output by 1, 2 and 4 quads a lane, where RankBytes does not serve: float32 rows of 512 B 901, 1029,
// 1152; bfloat16 ones 721, 790, 649, whose lists are twice as long.
//
// Rank planes: see docs/format/rank.md. ROW_ELEMENT is the bytes of an element: 2, 4 or 8. ROW_BASES: tables with a base for each column.
//
// Params: the row's elements; rotation, symbol bits << 8, levels << 16 and, with ROW_BASES, 1 << 24 if a byte holds each symbol that digits
// name; the levels' digit bits, four bits each, level 0 lowest; and the length's bytes, with ROW_BASES | 1 << 8 | the bits of a class << 9.
// Metadata: for each of 8 levels the 16 symbols of its digits, 16 bits each; then for each symbol a byte, level << 4 | digit, which encoding
// reads, at least 16. With ROW_BASES follow, in 16 bytes, for each level and after the last one the bits of a symbol that this level names;
// the symbols of digits again, a byte each; and, class by class in whole quads, an element for each column, to be added to rotated elements.
//
// A lane has whole quads, keeps their digits of level 0, and merges the symbols of later levels into them. Levels of more elements than
// the tile has lanes are passes over lists in shared memory, made by ballots; from then on each lane has an element.
#pragma once
#include "coder.h"
#include "encode.h"

struct RankCoder {
	static constexpr int LANES = 8, BLOCKS = 3;
	static constexpr u32 WIDTH = 8 * ROW_ELEMENT, EACH = 16 / ROW_ELEMENT, SEGMENT = 512 / ROW_ELEMENT; // EACH: elements a quad
	static constexpr u32 LEVEL_SYMBOLS = 16, LEVELS = 8;
#ifdef ROW_BASES
	static_assert(ROW_ELEMENT <= 4, "addBases adds elements of 2 or 4 bytes");
	static constexpr bool BASES = true;
#else
	static constexpr bool BASES = false;
#endif

	// Shape is the params.
	struct Shape {
		u32 elements, rotate, symbol, levels, digits, header, rest, segment;
		const u16 *symbols;
		u32 classBits;   // 0 without ROW_BASES
		const u8 *bases; // with ROW_BASES, aligned to 16: those of the row's class, or of all
		INLINE u32 bits(u32 level) const { return digits >> 4 * level & 15; }
	};
	static INLINE Shape shapeOf(const RowCodec &codec, const u8 *meta)
	{
		Shape s;
		s.elements = codec.params[0];
		s.rotate = codec.params[1] & 0xff, s.symbol = codec.params[1] >> 8 & 0xff, s.levels = codec.params[1] >> 16 & 0xff;
		s.digits = codec.params[2], s.header = codec.params[3];
		s.rest = WIDTH - s.symbol;
		s.segment = minimum(SEGMENT, (s.elements + 15) & ~15u);
		s.symbols = (const u16 *)meta;
		s.classBits = 0, s.bases = 0;
		if (BASES) {
			s.header &= 0xff, s.classBits = codec.params[3] >> 9;
			s.bases = tables(s, meta) + BITS_BYTES + LEVELS * LEVEL_SYMBOLS;
		}
		return s;
	}
	// With ROW_BASES, tables has BITS_BYTES of bits by level, then the symbols of digits, a byte each.
	static constexpr u32 BITS_BYTES = 16;
	static INLINE const u8 *tables(const Shape &s, const u8 *meta) { return meta + LEVELS * LEVEL_SYMBOLS * 2 + (s.symbol > 4 ? 1u << s.symbol : 16); }
	// classBases returns the bases of a class.
	static INLINE const u8 *classBases(const Shape &s, u32 rowClass) { return s.bases + rowClass * ((s.elements + EACH - 1) / EACH * 16); }

	// The scratch memory: two bytes for each element of a segment, and two lists of such elements.
	static INLINE u8 *listIn(u8 *scratch, const Shape &s, u32 which) { return scratch + (2 + which) * s.segment; }

	template <int N> static INLINE u32 before(const Tile<N> &tile, u32 votes) { return popcount(votes & ((1u << tile.lane) - 1)); }

	// lengthIn reads a row's length, or returns 0 if it comes with a class that there is none of; it must have one.
	template <class W> static INLINE u32 lengthIn(const Shape &s, const W &stored)
	{
		u32 x = stored.at(0);
		if (BASES)
			return (x >> 12 & 15) >> s.classBits ? 0 : x & 0xfff;
		return x & (s.header == 2 ? 0xffff : 0xffffff);
	}
	// begin returns where the row's first segment begins, and sets the bases to those of its class.
	template <class W> static INLINE u32 begin(Shape &s, const W &stored)
	{
		if (!BASES)
			return 8 * s.header;
		s.bases = classBases(s, (s.header != 0 ? stored.at(0) >> 12 : stored.at(0)) & ((1u << s.classBits) - 1));
		return s.header != 0 ? 16 : s.classBits;
	}

	static INLINE u32 tailBytes(const RowCodec &codec, const Shape &s) { return codec.rowBytes - s.elements * ROW_ELEMENT; }

	template <int N, class W>
	static INLINE u32 storedLength(const RowCodec &codec, const u8 *meta, const W &stored, const Tile<N> &tile)
	{
		Shape s = shapeOf(codec, meta);
		if (s.header != 0) {
			u32 n = lengthIn(s, stored);
			return n < codec.rowBytes ? n : 0;
		}
		u32 left = s.elements, pos = s.classBits; // one segment
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

	// A lane has QUADS quads of a segment, lane, lane + N and so on: 32 quads a segment.
	template <int N> static constexpr u32 QUADS = 32 / N;

	// Spread takes a quad's digits apart, to nibbles, the first one lowest: the upper half of the digits is moved up, then that of each
	// half, then that of each quarter, by a product each.
	struct Spread {
		u32 bits, digits, high4, by4, high2, by2, high1, by1, pad;
		static INLINE Spread of(u32 bits)
		{
			Spread x;
			u32 one = (1u << bits) - 1, two = (1u << 2 * bits) - 1, four = bits == 4 ? 0xffff : (1u << 4 * bits) - 1;
			x.bits = bits;
			x.digits = EACH == 8 ? (bits == 4 ? ~0u : (1u << 8 * bits % 32) - 1) : EACH == 4 ? four : two;
			x.high4 = four << 4 * bits, x.by4 = (1u << (16 - 4 * bits)) - 1;
			x.high2 = (two << 2 * bits) * 0x00010001, x.by2 = (1u << (8 - 2 * bits)) - 1;
			x.high1 = (one << bits) * 0x01010101, x.by1 = (1u << (4 - bits)) - 1;
			x.pad = (15 - one) * 0x11111111;
			return x;
		}
		INLINE u32 operator()(u32 w) const
		{
			w &= digits;
			if (EACH == 8)
				w += (w & high4) * by4;
			if (EACH >= 4)
				w += (w & high2) * by2;
			return w + (w & high1) * by1;
		}
		// passed returns a bit, the lowest, for each nibble that passes its element on.
		INLINE u32 passed(u32 nibbles) const
		{
			u32 x = nibbles | pad;
			x &= x >> 2;
			return x & x >> 1 & (EACH == 8 ? 0x11111111 : EACH == 4 ? 0x1111 : 0x11);
		}
	};

	// Named are the symbols of level 0's digits below 8, low bytes and high bytes.
	struct Named {
		u32 low[2], high[2];
		static INLINE Named of(const Shape &s)
		{
			u32x4 x = *(const u32x4 *)s.symbols;
			return Named{{permute(x.x, x.y, 0x6420), permute(x.z, x.w, 0x6420)}, {permute(x.x, x.y, 0x7531), permute(x.z, x.w, 0x7531)}};
		}
		// bytes returns byte 0 or 1 of the symbols of four nibbles of level 0.
		INLINE u32 bytes(const Shape &s, u32 byte, u32 nibbles) const
		{
			if (s.bits(0) <= 3)
				return byte == 0 ? permute(low[0], low[1], nibbles) : permute(high[0], high[1], nibbles);
			u32 x = 0;
#pragma unroll
			for (int i = 0; i < 4; i++)
				x |= (s.symbols[nibbles >> 4 * i & 15] >> 8 * byte & 0xff) << 8 * i;
			return x;
		}
	};

	// wordIn returns the 32 bits from a bit position on, as bitsAt does where the row has them.
	template <class W> static INLINE u32 wordIn(const W &stored, u32 bit)
	{
		u32 x[5];
		stored.window(bit / 32, x);
		return funnelWrap(x[0], x[1], bit);
	}

	// The scratch memory when decoding: bytes 0 and 1 of the symbols of the elements that level 0 passed on, in their order, and two
	// lists of such elements, by their number in that order.
	static INLINE void put(const Shape &s, u8 *scratch, u32 i, u32 symbol)
	{
		scratch[i] = (u8)symbol;
		if (s.symbol > 8)
			scratch[s.segment + i] = (u8)(symbol >> 8);
	}

	// laterLevels decodes the levels from k on, of passed elements, which begin at bit pos, and returns where they end.
	template <int N, class W>
	static INLINE u32 laterLevels(const Shape &s, const W &stored, u32 k, u32 pos, u32 passed, u8 *scratch, const Tile<N> &tile)
	{
		u8 *list = listIn(scratch, s, 0), *other = listIn(scratch, s, 1);
		u32 digits = s.digits >> 4 * k, last = (1u << s.symbol) - 1;
		bool listed = false; // else the list is all of them
		// While there are more than the tile has lanes, a level is a pass over the list and makes the next one, by ballots.
#pragma unroll 1
		for (; passed > N && k < s.levels; k++, digits >>= 4) {
			u32 bits = digits & 15, ones = (1u << bits) - 1, next = 0;
			const u16 *of = s.symbols + k * LEVEL_SYMBOLS;
#pragma unroll 1
			for (u32 from = 0; from < passed; from += N) {
				u32 i = from + tile.lane, entry = i;
				bool in = i < passed;
				u32 digit = wordIn(stored, pos + i * bits) & ones;
				if (in) {
					if (listed)
						entry = list[i];
					put(s, scratch, entry, of[digit]); // one passed on is put again
				}
				bool on = in && digit == ones;
				u32 votes = tile.vote(on);
				if (on)
					other[next + before(tile, votes)] = (u8)entry;
				next += popcount(votes);
			}
			pos += passed * bits;
			passed = next;
			u8 *t = list;
			list = other, other = t;
			listed = true;
			tile.sync(); // the new list is there, and the old one read
		}
		if (passed > N) {
#pragma unroll 1
			for (u32 i = tile.lane; i < passed; i += N)
				put(s, scratch, listed ? list[i] : i, wordIn(stored, pos + i * s.symbol) & last);
			return pos + passed * s.symbol;
		}
		// From there on each lane takes its element through all levels: i is the element's place in the level, if it is still on.
		bool in = tile.lane < passed, on = in;
		u32 i = tile.lane, entry = i, symbol = 0, named = 0;
		if (in && listed)
			entry = list[i];
#pragma unroll 1
		for (; passed != 0 && k < s.levels; k++, digits >>= 4) {
			u32 bits = digits & 15, ones = (1u << bits) - 1;
			u32 digit = wordIn(stored, pos + i * bits) & ones;
			named = on ? k * LEVEL_SYMBOLS + digit : named;
			on = on && digit == ones;
			u32 votes = tile.vote(on);
			i = before(tile, votes);
			pos += passed * bits;
			passed = popcount(votes);
		}
		if (in)
			symbol = s.symbols[named];
		if (passed != 0) {
			u32 x = wordIn(stored, pos + i * s.symbol) & last;
			symbol = on ? x : symbol;
			pos += passed * s.symbol;
		}
		if (in)
			put(s, scratch, entry, symbol);
		return pos;
	}

	// four returns a byte of the symbols of four elements, given their nibbles of level 0, which of these pass them on, and the place of the
	// first one passed on among the bytes of those, list.
	static INLINE u32 four(const Shape &s, const Named &named, u32 byte, u32 nibbles, u32 passed, const u8 *list, u32 at)
	{
		const u32 *words = (const u32 *)list + at / 4;
		u32 later = funnelWrap(words[0], words[1], 8 * at);
		// The i-th byte is later's, as many on as nibbles before it have passed theirs on, or level 0's.
		u32 all = (passed & 0xffff) * 15, picks = ((passed & 0xffff) * 0x1114 & all) | (0x3210 & ~all);
		return permute(named.bytes(s, byte, nibbles & 0xffff), later, picks);
	}

	// addBases adds the bases of their columns to a quad of rotated elements, each modulo 2^WIDTH.
	static INLINE void addBases(const Shape &s, u32 quad, u32 (&y)[4])
	{
		u32x4 x = ((const u32x4 *)s.bases)[quad];
		u32 b[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
		for (int i = 0; i < 4; i++) {
			u32 sum = y[i] + b[i];
			y[i] = ROW_ELEMENT == 4 ? sum : sum - ((sum ^ y[i] ^ b[i]) & 0x10000); // without the lower half's carry
		}
	}

	// joinQuad puts a quad's symbols, whose low and high bytes are given, and its rests, from bit position at on, together. quad is its number in the row.
	template <class W>
	static INLINE u32x4 joinQuad(const Shape &s, const W &stored, const u32 *lows, const u32 *highs, u32 at, u32 quad)
	{
		u32 x[5], b[4];
		stored.window(at / 32, x);
#pragma unroll
		for (int i = 0; i < 4; i++)
			b[i] = funnelWrap(x[i], x[i + 1], at);
		u32 y[4];
#if ROW_ELEMENT == 2
		if (s.symbol == 8) { // whole bytes
#pragma unroll
			for (int i = 0; i < 4; i++)
				y[i] = permute(b[i / 2], lows[i / 2], i % 2 ? 0x7362 : 0x5140);
		} else {
			u32 low = (1u << s.rest) - 1;
#pragma unroll
			for (int i = 0; i < 4; i++) {
				y[i] = (b[0] & low) | (b[0] >> s.rest & low) << 16 | permute(lows[i / 2], highs[i / 2], i % 2 ? 0x7362 : 0x5140) << s.rest;
#pragma unroll
				for (int j = 0; j + i < 3; j++)
					b[j] = funnel(b[j], b[j + 1], 2 * s.rest);
			}
		}
		if (BASES)
			addBases(s, quad, y);
		if (s.rotate) {
#pragma unroll
			for (int i = 0; i < 4; i++)
				y[i] = (y[i] >> 1 & 0x7fff7fff) | (y[i] & 0x00010001) << 15;
		}
#elif ROW_ELEMENT == 4
		if (s.symbol == 8) {
			y[0] = permute(b[0], lows[0], 0x4210);
			y[1] = permute(funnel(b[0], b[1], 24), lows[0], 0x5210);
			y[2] = permute(funnel(b[1], b[2], 16), lows[0], 0x6210);
			y[3] = permute(b[2], lows[0], 0x7321);
		} else {
			u32 low = (1u << s.rest) - 1;
#pragma unroll
			for (int i = 0; i < 4; i++) {
				y[i] = (b[0] & low) | permute(lows[0], highs[0], i | (4 + i) << 4) << s.rest;
#pragma unroll
				for (int j = 0; j + i < 3; j++)
					b[j] = funnel(b[j], b[j + 1], s.rest);
			}
		}
		if (BASES)
			addBases(s, quad, y);
		if (s.rotate) {
#pragma unroll
			for (int i = 0; i < 4; i++)
				y[i] = y[i] >> 1 | y[i] << 31;
		}
#else
		// A rest has 52 to 62 bits.
		u64 low = ((u64)1 << s.rest) - 1;
		u64 rests[2] = {
			(u64)b[1] << 32 | b[0], (u64)funnel(b[2], b[3], s.rest - 32) << 32 | funnel(b[1], b[2], s.rest - 32),
		};
#pragma unroll
		for (int i = 0; i < 2; i++) {
			u64 z = (rests[i] & low) | (u64)permute(lows[0], highs[0], i | (4 + i) << 4) << s.rest;
			if (s.rotate)
				z = z >> 1 | z << 63;
			y[2 * i] = (u32)z, y[2 * i + 1] = (u32)(z >> 32);
		}
#endif
		return u32x4{y[0], y[1], y[2], y[3]};
	}

	// segment decodes the n elements that begin at bit pos, from element from of the row on, and returns where they end.
	template <int N, class W>
	static INLINE u32 segment(const RowCodec &codec, const Shape &s, const Spread &spread, const Named &named, const W &stored, u32 pos,
				  u32 from, u32 n, u8 *scratch, const Tile<N> &tile, u8 *row)
	{
		constexpr u32 K = QUADS<N>, FIELD = 32 / K; // a quad's count of those passed on has FIELD bits
		u32 nibbles[K], counts = 0;
#pragma unroll
		for (u32 q = 0; q < K; q++) {
			u32 first = (q * N + tile.lane) * EACH, in = 4 * minimum(n - minimum(first, n), EACH); // bits of nibbles
			nibbles[q] = spread(wordIn(stored, pos + first * spread.bits)) & funnel(~0u, 0, 32 - in);
			counts |= popcount(spread.passed(nibbles[q])) << FIELD % 32 * q;
		}
		u32 sums = tile.scan(counts), all = tile.from(sums, N - 1), passed = 0;
		sums -= counts; // those of the lanes before
		u32 places[K]; // those before the lane's quad
#pragma unroll
		for (u32 q = 0; q < K; q++) {
			u32 field = K == 1 ? ~0u : (1u << FIELD % 32) - 1;
			places[q] = passed + (sums >> FIELD % 32 * q & field);
			passed += all >> FIELD % 32 * q & field;
		}
		pos += n * spread.bits;
		pos = laterLevels(s, stored, 1, pos, passed, scratch, tile);
		tile.sync(); // the symbols are there
#pragma unroll 1
		for (u32 q = 0; q < K; q++) {
			u32 first = (q * N + tile.lane) * EACH, at = places[0], on = spread.passed(nibbles[0]);
			u32 lows[2], highs[2] = {0, 0};
#pragma unroll
			for (u32 g = 0; g < (EACH + 3) / 4; g++) {
				lows[g] = four(s, named, 0, nibbles[0] >> 16 * g, on >> 16 * g, scratch, at);
				if (s.symbol > 8)
					highs[g] = four(s, named, 1, nibbles[0] >> 16 * g, on >> 16 * g, scratch + s.segment, at);
				at += popcount(on & 0xffff);
			}
			if (first < n) {
				u32 quad = (from + first) / EACH;
				storeQuad(row, quad, joinQuad(s, stored, lows, highs, pos + first * s.rest, quad), codec.rowBytes, codec.store);
			}
#pragma unroll
			for (u32 i = 1; i < K; i++)
				nibbles[i - 1] = nibbles[i], places[i - 1] = places[i];
		}
		tile.sync(); // the scratch memory is free
		return pos + n * s.rest;
	}

	template <int N, class W>
	static INLINE bool decode(const RowCodec &codec, const u8 *meta, const W &stored, u32 length, u8 *scratch, const Tile<N> &tile, u8 *row)
	{
		Shape s = shapeOf(codec, meta);
		Spread spread = Spread::of(s.bits(0));
		Named named = Named::of(s);
		u32 pos = begin(s, stored);
#pragma unroll 1
		for (u32 from = 0; from < s.elements && pos / 8 <= length; from += SEGMENT)
			pos = segment(codec, s, spread, named, stored, pos, from, minimum(s.elements - from, SEGMENT), scratch, tile, row);
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

	// rotatedAt returns element i of a row, rotated.
	static INLINE u64 rotatedAt(const Shape &s, const u32 *words, u32 i)
	{
		if (ROW_ELEMENT == 2) {
			u32 y = words[i / 2] >> (i & 1) * 16 & 0xffff;
			return s.rotate ? (y << 1 & 0xffff) | y >> 15 : y;
		}
		if (ROW_ELEMENT == 4) {
			u32 y = words[i];
			return s.rotate ? y << 1 | y >> 31 : y;
		}
		u64 y = (u64)words[2 * i + 1] << 32 | words[2 * i];
		return s.rotate ? y << 1 | y >> 63 : y;
	}
	// symbolOf cuts a rotated element of column i, the bases being those of a class, in symbol and rest.
	static INLINE u32 symbolOf(const Shape &s, const u8 *bases, u64 x, u32 i, u64 &rest)
	{
		if (BASES)
			x = ROW_ELEMENT == 2 ? (x - ((const u16 *)bases)[i]) & 0xffff : (u32)x - ((const u32 *)bases)[i];
		rest = x & (((u64)1 << s.rest) - 1);
		return (u32)(x >> s.rest);
	}
	static INLINE u32 symbolAt(const Shape &s, const u32 *words, u32 i, u64 &rest) { return symbolOf(s, s.bases, rotatedAt(s, words, i), i, rest); }

	// classBitsOf returns the bits that the symbols of a row's elements 0, step, 2 × step and so on, n of them, take in a class.
	static INLINE u32 classBitsOf(const Shape &s, const u8 *meta, const u32 *words, u32 rowClass, u32 n, u32 step, const Tile<32> &tile)
	{
		const u8 *codes = meta + LEVELS * LEVEL_SYMBOLS * 2, *bits = tables(s, meta), *bases = classBases(s, rowClass);
		u32 sum = 0;
		u64 rest;
#pragma unroll 1
		for (u32 i = tile.lane; i < n; i += 32)
			sum += bits[codes[symbolOf(s, bases, rotatedAt(s, words, i * step), i * step, rest)] >> 4];
		return tile.sum(sum);
	}
	// classOf returns the class that a row is stored by: of the two that take the fewest bits for up to 32 columns the one that takes fewer
	// for all, and the lower one of those that take as many, as Codec.classOf finds it.
	static INLINE u32 classOf(const Shape &s, const u8 *meta, const u32 *words, const Tile<32> &tile)
	{
		u32 probes = minimum(s.elements, 32), step = s.elements / (probes == 0 ? 1 : probes), best = ~0u, next = ~0u;
#pragma unroll 1
		for (u32 k = 0; k < 1u << s.classBits; k++) {
			u32 x = classBitsOf(s, meta, words, k, probes, step, tile) << 4 | k;
			next = minimum(next, best > x ? best : x);
			best = minimum(best, x);
		}
		u32 first = minimum(best & 15, next & 15), second = (best ^ next ^ first) & 15;
		if (s.classBits == 0 || probes == s.elements)
			return best & 15;
		return classBitsOf(s, meta, words, second, s.elements, 1, tile) < classBitsOf(s, meta, words, first, s.elements, 1, tile) ? second : first;
	}

	static INLINE u32 encode(const RowCodec &codec, const u8 *meta, const u32 *words, u32 *out, u32 room, u8 *scratch, const Tile<32> &tile)
	{
		Shape s = shapeOf(codec, meta);
		const u8 *codes = meta + LEVELS * LEVEL_SYMBOLS * 2;
		u32 pos = 8 * s.header, front = 0;
		if (BASES && s.classBits != 0) {
			u32 rowClass = classOf(s, meta, words, tile);
			s.bases = classBases(s, rowClass);
			front = s.header != 0 ? rowClass << 12 : rowClass;
			pos = s.header != 0 ? 16 : s.classBits;
		}
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
			putRoom(out, room, 0, s.header != 0 ? length | front : front, s.header != 0 ? 8 * s.header : s.classBits);
		return length;
	}
};

#ifdef ROW_BYTES
#include "coder_rank_bytes.h"
#endif
