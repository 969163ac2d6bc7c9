// Hits of rank planes whose symbols are bytes: docs/format/rank.md, Decoding on a GPU. ROW_ELEMENT is 2 or 4.
#pragma once
#include "coder_rank.h"

// RankBytes decodes hits of what most tables of floats train to, rows as long as whole quads of elements whose symbols are bytes, rotated
// (T = 8, rot 1), with digits of 2 bits in level 0 and of 1 or 2 in level 1. With bases it decodes any rotation and digits of 1 or 2 bits in
// both levels. RankBits, below, does the same for other symbols, with bases.
//
// All tiles of a warp go the same way, so that votes and shuffles are the warp's: those of a tile cost several times as much. A tile whose row
// is corrupt, or that has none to decode, goes along with a row of no elements passed on, and stores nothing.
//
// A quad's digits are looked up four at a time: a table has the picks of a byte permutation of the symbols that the level names and of those
// that later levels do, in the order in which they were passed on. So levels 0 and 1 are one look-up and one permutation each. Level 2 is the
// same for up to four elements a lane, which suffice as a rule, but a tile of 32 lanes to which no more than 32 come takes them one a lane from level 2
// on. Of those that come to level 3 each lane takes one through all others.
struct RankBytes : RankCoder {
	static constexpr bool TOGETHER = true;
	static constexpr u32 TABLE = 256 + 16; // entries by four digits of 2 bits, then of 1 bit
	static_assert(TABLE == RANK_TABLE, "RANK_TABLE");

	// fill makes the table: picks, and the number of elements passed on << 24.
	static INLINE void fill(u32 *table)
	{
		for (u32 i = threadID(); i < TABLE; i += blockThreads()) {
			u32 bits = i < 256 ? 2 : 1, ones = (1u << bits) - 1, picks = 0, passed = 0;
#pragma unroll
			for (u32 j = 0; j < 4; j++) {
				u32 digit = (i & 255) >> bits * j & ones;
				picks |= (digit == ones ? 4 + passed : digit) << 4 * j;
				passed += digit == ones;
			}
			table[i] = picks | passed << 24;
		}
	}

	static constexpr u32 GROUPS = EACH / 4; // four elements are a group

	// How symbols are held in bytes, FORM below: those of fewer bits at the top; those of a byte; those of 9 bits but for bit 7.
	enum Form { SHORT, WHOLE, NINE };

	// turned has each byte as it lies in a row: rotated right by one bit, where a symbol lies in one byte and the next one's top bit.
	// Bases are added before the rotation.
	static INLINE u32 turned(u32 x) { return ROW_ELEMENT == 2 && !BASES ? (x >> 1 & 0x7f7f7f7f) | (x << 7 & 0x80808080) : x; }
	// byteOf returns a symbol as a byte.
	template <Form FORM> static INLINE u32 byteOf(const Shape &s, u32 symbol)
	{
		return FORM == WHOLE ? turned(symbol & 0xff) : FORM == NINE ? (symbol & 0x7f) | (symbol >> 1 & 0x80) : symbol << (8 - s.symbol);
	}
	// namedAt returns the byte of entry i of the symbols by level and digit.
	static INLINE u32 namedAt(const Shape &s, const u8 *meta, u32 i) { return BASES ? tables(s, meta)[BITS_BYTES + i] : turned(s.symbols[i] & 0xff); }
	// namedBy returns the symbols of a level's first three digits, a byte each.
	static INLINE u32 namedBy(const Shape &s, const u8 *meta, u32 level)
	{
		if (BASES)
			return *(const u32 *)(tables(s, meta) + BITS_BYTES + level * LEVEL_SYMBOLS);
		u32x2 x = *(const u32x2 *)(s.symbols + level * LEVEL_SYMBOLS);
		return turned(permute(x.x, x.y, 0x6420));
	}
	// Level is what a lane needs for the digits of a level: their bits, the entries of the table for these, and the symbols of the first three.
	struct Level {
		u32 bits;
		const u32 *entries;
		u32 named;
	};
	// Plan is what all rows have in common.
	struct Plan {
		Shape shape;
		Level levels[2];
	};
	template <Form FORM = WHOLE> static INLINE Plan plan(const RowCodec &codec, const u8 *meta, const u32 *table)
	{
		Plan p;
		p.shape = shapeOf(codec, meta);
		if (FORM == WHOLE)
			p.shape.symbol = 8, p.shape.rest = WIDTH - 8;
#pragma unroll
		for (u32 k = 0; k < 2; k++) {
			u32 bits = k == 0 && !BASES ? 2 : p.shape.bits(k);
			p.levels[k] = Level{bits, table + (bits == 1 ? 256 : 0), namedBy(p.shape, meta, k)};
		}
		return p;
	}

	// Each is what the lane knows of a quad of a level: the picks of its groups, the first one's in the lower half.
	struct Each {
		u32 picks;
		// of makes it of the entries of a quad's digits, x.
		static INLINE Each of(const Level &l, u32 x)
		{
			u32 group = (1u << 4 * l.bits) - 1, first = l.entries[x & group];
			return Each{GROUPS == 2 ? permute(first, l.entries[x >> 4 * l.bits & group], 0x5410) : first & 0xffff};
		}
		// passed returns how many elements are passed on: a pick of later symbols has bit 2.
		INLINE u32 passed() const { return popcount(picks & 0x44444444); }
		// merge returns the quad's symbols, of those that the level names and later ones, the first of which are in x and y.
		INLINE void merge(u32 named, u32 x, u32 y, u32 (&to)[GROUPS]) const
		{
			to[0] = permute(named, x, picks);
			if (GROUPS == 2)
				to[GROUPS - 1] = permute(named, funnel(x, y, 8 * popcount(picks & 0x4444)), picks >> 16);
		}
	};
	// places returns how many elements are passed on before each quad of the lane, and of all.
	template <int N, u32 K> static INLINE u32 places(const Each (&e)[K], u32 (&at)[K])
	{
		u32 own = e[0].passed();
#pragma unroll
		for (u32 q = 1; q < K; q++)
			own += e[q].passed() << 8 * q % 32;
		u32 sums = tileScan<N>(~0u, own), all = tileFrom<N>(~0u, sums, N - 1);
		if (K == 1) {
			at[0] = sums - own;
			return all;
		}
		sums += all * 0x01010100 - own;
#pragma unroll
		for (u32 q = 0; q < K; q++)
			at[q] = sums >> 8 * q & 0xff;
		return byteSum(all);
	}

	// The scratch memory: the bytes of the symbols of the elements that come to level 2, in their order; bit 7 of those of nine bits, if it is set
	// in any; and two lists of such elements.
	static INLINE u8 *highsIn(u8 *scratch, const Shape &s) { return scratch + s.segment; }
	// four returns four bytes of them, from number at on.
	static INLINE u32 four(const u8 *bytes, u32 at)
	{
		const u32 *words = (const u32 *)bytes + at / 4;
		return funnelWrap(words[0], words[1], 8 * at);
	}

	// lastLevels decodes the levels from 2 on of passed elements of each tile and returns where they end. high says, to all tiles, whether one
	// has a symbol with bit 7 of nine.
	template <int N, Form FORM>
	static INLINE u32 lastLevels(const Shape &s, const u8 *meta, const u32 *table, const Words<SHARED> &stored, u32 pos, u32 passed, u8 *scratch,
				     const Tile<N> &tile, bool &high)
	{
		const u32 came = passed, mine = N == 32 ? ~0u : ((1u << N % 32) - 1) << (laneID() & ~(N - 1)), below = mine & ((1u << laneID()) - 1);
		// Level 2, if no tile has more than four elements for each lane: after the later levels it is merged with these. A warp that decodes one row
		// has more lanes than such elements as a rule.
		const u32 bits2 = s.bits(2), first = 4 * tile.lane;
		const bool few = N == 32 && ballot(~0u, came > N) == 0;
		const bool merged = bits2 - 1 < 2 && !few && ballot(~0u, came > 4 * N) == 0; // bits2 is 0 if there is no level 2
		u32 k = 2, digits = s.digits >> 8, entry2 = 0, at = 0;
		if (merged) {
			u32 have = minimum(came - minimum(first, came), 4) * bits2, x = wordIn(stored, pos + first * bits2) & ~(~0u << have);
			entry2 = table[(bits2 == 1 ? 256 : 0) + x];
			u32 own = entry2 >> 24, sums = tileScan<N>(~0u, own);
			pos += came * bits2;
			at = sums - own, passed = tileFrom<N>(~0u, sums, N - 1);
			k = 3, digits >>= 4;
		}
		u8 *list = listIn(scratch, s, 0), *other = listIn(scratch, s, 1);
		bool listed = false; // else the list is all of them
		auto clearHighs = [&] {
			for (u32 i = first; !high && i < came; i += 4 * N)
				*(u32 *)(highsIn(scratch, s) + i) = 0;
			high = true;
			warpSync(~0u);
		};
		// While there are more than a tile has lanes, a level is a pass over the lists, which makes the next ones.
#pragma unroll 1
		while (ballot(~0u, passed > N) != 0) {
			bool last = k == s.levels, narrow = FORM == NINE && last;
			u32 bits = last ? s.symbol : digits & 15, ones = (1u << bits) - 1, next = 0;
			if (narrow)
				clearHighs();
#pragma unroll 1
			for (u32 from = 0; ballot(~0u, from < passed) != 0; from += N) {
				u32 i = from + tile.lane, entry = i, digit = wordIn(stored, pos + i * bits) & ones;
				bool in = i < passed, on = in && !last && digit == ones;
				if (in) {
					if (listed)
						entry = list[i];
					scratch[entry] = (u8)(last ? byteOf<FORM>(s, digit) : namedAt(s, meta, k * LEVEL_SYMBOLS + digit)); // one passed on is put again
					if (narrow)
						highsIn(scratch, s)[entry] = (u8)(digit >> 7 & 1);
				}
				u32 votes = ballot(~0u, on);
				if (on)
					other[next + popcount(votes & below)] = (u8)entry;
				next += popcount(votes & mine);
			}
			pos += passed * bits;
			passed = next;
			u8 *t = list;
			list = other, other = t;
			listed = true, k++, digits >>= 4;
			warpSync(~0u); // the new list is there, and the old one read
		}
		// From there on each lane takes its element through all levels: i is the element's place in the level, if it is still on.
		bool in = tile.lane < passed, on = in;
		u32 i = tile.lane, entry = listed && in ? list[i] : i, named = 0, votes = ballot(~0u, on);
#pragma unroll 1
		for (; votes != 0 && k < s.levels; k++, digits >>= 4) {
			u32 bits = digits & 15, ones = (1u << bits) - 1, digit = wordIn(stored, pos + i * bits) & ones;
			named = on ? k * LEVEL_SYMBOLS + digit : named;
			pos += popcount(votes & mine) * bits;
			on = on && digit == ones;
			votes = ballot(~0u, on);
			i = popcount(votes & below);
		}
		u32 symbol = namedAt(s, meta, named);
		if (votes != 0) {
			u32 x = wordIn(stored, pos + i * s.symbol) & ((1u << s.symbol) - 1);
			symbol = on ? byteOf<FORM>(s, x) : symbol;
			pos += popcount(votes & mine) * s.symbol;
			bool bit7 = FORM == NINE && on && (x & 0x80) != 0;
			if (FORM == NINE && ballot(~0u, bit7) != 0) {
				clearHighs();
				if (bit7)
					highsIn(scratch, s)[entry] = 1;
			}
		}
		if (in)
			scratch[entry] = (u8)symbol;
		if (merged) {
			warpSync(~0u); // the symbols of the later levels are there
			u32 bytes = permute(namedBy(s, meta, 2), four(scratch, at), entry2), highs = high ? permute(0, four(highsIn(scratch, s), at), entry2) : 0;
			warpSync(~0u); // and read
			if (first < came) {
				*(u32 *)(scratch + first) = bytes;
				if (high)
					*(u32 *)(highsIn(scratch, s) + first) = highs;
			}
		}
		return pos;
	}

	// joinPart is join for symbols that are no whole bytes. highs has bit 7 of symbols of nine bits, a byte each.
	template <Form FORM>
	static INLINE u32x4 joinPart(const Shape &shape, const u32 (&symbols)[GROUPS], const u32 (&highs)[GROUPS], const Words<SHARED> &stored, u32 at,
				     u32 quad)
	{
		u32 y[4];
#if ROW_ELEMENT == 2
		const u32 rest = FORM == NINE ? 7 : shape.rest, low = (1u << rest) - 1;
#pragma unroll
		for (u32 g = 0; g < GROUPS; g++, at += 4 * rest) {
			const u32 *p = stored.p + at / 32;
			u32 x[3] = {p[0], p[1], p[2]}, b[2] = {funnelWrap(x[0], x[1], at), funnelWrap(x[1], x[2], at)};
#pragma unroll
			for (u32 i = 0; i < 2; i++) {
				u32 pair = i == 0 ? b[0] : funnel(b[0], b[1], 2 * rest), pick = i == 0 ? 0x1404 : 0x3424;
				u32 symbol = permute(symbols[g], 0, pick); // in the upper byte of each half
				if (FORM == NINE)
					symbol = (symbol >> 1 & 0x3f803f80) | (symbol & 0x80008000) | permute(highs[g], 0, pick) << 6;
				y[2 * g + i] = (pair & low) | ((pair << (16 - rest) & low << 16) | symbol);
			}
		}
		addBases(shape, quad, y);
		if (shape.rotate) {
#pragma unroll
			for (int i = 0; i < 4; i++)
				y[i] = (y[i] >> 1 & 0x7fff7fff) | (y[i] << 15 & 0x80008000);
		}
#else
		static_assert(FORM != SHORT, "elements of 4 bytes");
		const u32 *p = stored.p + at / 32;
		u32 x[4] = {p[0], p[1], p[2], p[3]}, b[3];
#pragma unroll
		for (int i = 0; i < 3; i++)
			b[i] = funnelWrap(x[i], x[i + 1], at);
		u32 rests[4] = {b[0], funnel(b[0], b[1], 23), funnel(b[1], b[2], 14), b[2] >> 5};
#pragma unroll
		for (u32 i = 0; i < 4; i++) {
			u32 symbol = permute(symbols[0], 0, i << 12 | 0x444), bit7 = permute(highs[0], 0, i << 12 | 0x444) << 6;
			y[i] = (rests[i] & 0x7fffff) | (symbol >> 1 & 0x3f800000) | (symbol & 0x80000000) | bit7;
		}
		addBases(shape, quad, y);
		if (shape.rotate) {
#pragma unroll
			for (int i = 0; i < 4; i++)
				y[i] = funnelWrap(y[i], y[i], 1);
		}
#endif
		return u32x4{y[0], y[1], y[2], y[3]};
	}

	// join puts a quad's symbols, which are bytes, and its rests, from bit position at on, together. quad is its number in the row.
	static INLINE u32x4 join(const Shape &shape, const u32 (&symbols)[GROUPS], const Words<SHARED> &stored, u32 at, u32 quad)
	{
		const u32 *p = stored.p + at / 32;
		u32 y[4];
#if ROW_ELEMENT == 2
		u32 x[3] = {p[0], p[1], p[2]};
#pragma unroll
		for (int i = 0; i < 2; i++) {
			u32 rests = funnelWrap(x[i], x[i + 1], at);
			if (BASES) {
				y[2 * i] = permute(rests, symbols[i], 0x5140);
				y[2 * i + 1] = permute(rests, symbols[i], 0x7362);
				continue;
			}
			u32 high = (symbols[i] & 0x7f7f7f7f) | (rests << 7 & 0x80808080), low = (rests >> 1 & 0x7f7f7f7f) | (symbols[i] & 0x80808080);
			y[2 * i] = permute(low, high, 0x5140);
			y[2 * i + 1] = permute(low, high, 0x7362);
		}
		if (BASES)
			addBases(shape, quad, y);
		if (BASES && shape.rotate) {
#pragma unroll
			for (int i = 0; i < 4; i++)
				y[i] = (y[i] >> 1 & 0x7fff7fff) | (y[i] << 15 & 0x80008000);
		}
#else
		u32 x[4] = {p[0], p[1], p[2], p[3]}, b[3], s = symbols[0];
#pragma unroll
		for (int i = 0; i < 3; i++)
			b[i] = funnelWrap(x[i], x[i + 1], at);
		y[0] = permute(b[0], s, 0x4210);
		y[1] = permute(funnel(b[0], b[1], 24), s, 0x5210);
		y[2] = permute(funnel(b[1], b[2], 16), s, 0x6210);
		y[3] = permute(b[2], s, 0x7321);
		if (BASES)
			addBases(shape, quad, y);
		if (!BASES || shape.rotate) {
#pragma unroll
			for (int i = 0; i < 4; i++)
				y[i] = funnelWrap(y[i], y[i], 1);
		}
#endif
		return u32x4{y[0], y[1], y[2], y[3]};
	}

	// Written writes the quads of a decoded row.
	struct Written {
		static constexpr bool CHECKED = false;
		u8 *row;
		INLINE void operator()(u32 element, u32x4 x) const { storeOut((u32x4 *)(row + element * ROW_ELEMENT), x); }
	};

	// decode is called by all lanes of a warp together; tiles without a row to decode have length 0.
	template <int N>
	static INLINE bool decode(const Plan &plan, const u8 *meta, const u32 *table, const Words<SHARED> &stored, u32 length, u8 *scratch,
				  const Tile<N> &tile, u8 *row)
	{
		return decodeTo<N, WHOLE>(plan, meta, table, stored, length, scratch, tile, Written{row});
	}
	// decodeTo calls put for each quad that the lane has decoded, with the number of its first element. If PUT::CHECKED is set, it does so for no
	// quad of a corrupt row of one segment.
	template <int N, Form FORM, class PUT>
	static INLINE bool decodeTo(const Plan &plan, const u8 *meta, const u32 *table, const Words<SHARED> &stored, u32 length, u8 *scratch,
				    const Tile<N> &tile, const PUT &put)
	{
		constexpr u32 K = QUADS<N>;
		constexpr bool LOOP = FORM == NINE || (FORM == SHORT && N == 8); // registers do not suffice for all quads at once
		Shape s = plan.shape;
		const u32 bits0 = plan.levels[0].bits, bits1 = plan.levels[1].bits;
		u32 pos = begin(s, stored), end = 8 * length;
		bool ok = length != 0 && (s.header == 0 || lengthIn(s, stored) == length);
#pragma unroll 1
		for (u32 from = 0; from < s.elements; from += SEGMENT) {
			u32 n = minimum(s.elements - from, SEGMENT);
			ok = ok && pos + bits0 * n <= end;
			u32 have = ok ? n : 0;
			Each e[K], f[K];
#pragma unroll
			for (u32 q = 0; q < K; q++) {
				u32 first = (q * N + tile.lane) * EACH, at = first < have ? pos + bits0 * first : 0;
				u32 x = funnelWrap(stored.p[at / 32], stored.p[at / 32 + 1], at);
				x = first < have ? x : 0;
				e[q] = Each::of(plan.levels[0], x);
			}
			u32 at[K], passed = places<N, K>(e, at);
			pos += bits0 * n;
			ok = ok && pos + passed * bits1 <= end;
			pos = ok ? pos : 0;
#pragma unroll
			for (u32 q = 0; q < K; q++) {
				u32 bit = ok ? pos + at[q] * bits1 : 0, bits = e[q].passed() * bits1;
				u32 x = funnelWrap(stored.p[bit / 32], stored.p[bit / 32 + 1], bit);
				x = ok ? x & ~(~0u << bits) : 0;
				f[q] = Each::of(plan.levels[1], x);
			}
			pos += ok ? passed * bits1 : 0;
			u32 later = places<N, K>(f, at);
			bool high = false;
			pos = lastLevels<N, FORM>(s, meta, table, stored, pos, later, scratch, tile, high);
			ok = ok && pos + n * s.rest <= end && (!PUT::CHECKED || from + n < s.elements || end - (pos + n * s.rest) < 8);
			have = ok ? n : 0;
			warpSync(~0u); // the symbols are there
#pragma unroll LOOP ? 1 : K
			for (u32 q = 0; q < K; q++) {
				u32 first = (q * N + tile.lane) * EACH, symbols[GROUPS], these[GROUPS], of = LOOP ? 0 : q;
				const Each &level0 = e[of], &level1 = f[of];
				u32 x = four(scratch, at[of]), y = GROUPS == 2 ? four(scratch + 4, at[of]) : 0;
				level1.merge(plan.levels[1].named, x, y, these);
				level0.merge(plan.levels[0].named, these[0], these[GROUPS - 1], symbols);
				u32 quad = (from + first) / EACH, rests = pos + first * s.rest;
				if constexpr (FORM == WHOLE) {
					if (first < have)
						put(from + first, join(s, symbols, stored, rests, quad));
				} else {
					u32 highs[GROUPS] = {};
					if (high) {
						x = four(highsIn(scratch, s), at[of]), y = GROUPS == 2 ? four(highsIn(scratch, s) + 4, at[of]) : 0;
						level1.merge(0, x, y, these);
						level0.merge(0, these[0], these[GROUPS - 1], highs);
					}
					if (first < have)
						put(from + first, joinPart<FORM>(s, symbols, highs, stored, rests, quad));
				}
#pragma unroll
				for (u32 i = 1; LOOP && i < K; i++)
					e[i - 1] = e[i], f[i - 1] = f[i], at[i - 1] = at[i];
			}
			pos += n * s.rest;
			warpSync(~0u); // the scratch memory is free
		}
		return ok && (pos + 7) / 8 == length;
	}
};

#ifdef ROW_BITS
// RankPart is RankBytes, with bases, for symbols of another FORM.
template <RankBytes::Form FORM> struct RankPart : RankBytes {
	static INLINE Plan plan(const RowCodec &codec, const u8 *meta, const u32 *table) { return RankBytes::plan<FORM>(codec, meta, table); }
	template <int N>
	static INLINE bool decode(const Plan &plan, const u8 *meta, const u32 *table, const Words<SHARED> &stored, u32 length, u8 *scratch,
				  const Tile<N> &tile, u8 *row)
	{
		return decodeTo<N, FORM>(plan, meta, table, stored, length, scratch, tile, Written{row});
	}
};
// RankBits decodes symbols of 9 bits if those that digits name have a 0 in bit 7: a byte holds them, and its bit 7 is their bit 8. Its Other
// decodes symbols of fewer than 8 bits, of elements of 2 bytes.
struct RankBits : RankPart<RankBytes::NINE> {
#if ROW_ELEMENT == 2
	using Other = RankPart<SHORT>;
	static INLINE bool other(const RowCodec &codec) { return (codec.params[1] >> 8 & 0xff) < 8; }
#endif
};
#endif
