// Hits of rank planes whose symbols are bytes: docs/format/rank.md, Decoding on a GPU. ROW_ELEMENT is 2 or 4.
#pragma once
#include "coder_rank.h"

// RankBytes decodes hits of what most tables of floats train to, rows as long as whole quads of elements whose symbols are bytes, rotated
// (T = 8, rot 1), with digits of 2 bits in level 0 and of 1 or 2 in level 1; or T = 8 and bases, with digits of 1 or 2 bits in both. All tiles of a warp go the same way, so that votes and
// shuffles are the warp's: those of a tile cost several times as much. A tile whose row is corrupt, or that has none to decode, goes along
// with a row of no elements passed on, and stores nothing.
//
// A quad's digits are looked up four at a time: a table has the picks of a byte permutation of the symbols that the level names and of those
// that later levels do, in the order in which they were passed on. So levels 0 and 1 are one look-up and one permutation each; of the
// elements that come to level 2, few, each lane takes one through all others.
struct RankBytes : RankCoder {
	static constexpr bool TOGETHER = true;
	static constexpr u32 TABLE = 256 + 16; // entries by four digits of 2 bits, then of 1 bit
	static_assert(TABLE == RANK_TABLE, "RANK_TABLE");

	// fill makes the table: picks, then 8 × the elements passed on << 16, and their number << 24.
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
			table[i] = picks | passed << 19 | passed << 24;
		}
	}

	static constexpr u32 GROUPS = EACH / 4, REST = WIDTH - 8; // four elements are a group

	// turned has each byte as it lies in a row: rotated right by one bit, where a symbol lies in one byte and the next one's top bit.
	// Bases are added before the rotation.
	static INLINE u32 turned(u32 x) { return ROW_ELEMENT == 2 && !BASES ? (x >> 1 & 0x7f7f7f7f) | (x << 7 & 0x80808080) : x; }
	// namedBy returns the symbols of a level's first three digits, a byte each.
	static INLINE u32 namedBy(const Shape &s, u32 level)
	{
		u32x2 x = *(const u32x2 *)(s.symbols + level * LEVEL_SYMBOLS);
		return turned(permute(x.x, x.y, 0x6420));
	}
	static INLINE u32 bitsPassed(u32 entry) { return permute(entry, 0, 0x4442); }

	// Each is what the lane knows of a quad of a level: its groups' entries; and their number passed on, summed.
	struct Each {
		u32 entry[GROUPS];
		INLINE u32 sum() const { return GROUPS == 2 ? entry[0] + entry[GROUPS - 1] : entry[0]; }
	};
	// pack has a byte for each quad of the lane: how many elements it passes on.
	template <u32 K> static INLINE u32 pack(const Each (&e)[K])
	{
		if (K == 1)
			return e[0].sum() >> 24;
		u32 low = permute(e[0].sum(), e[K - 1 < 1 ? 0 : 1].sum(), 0x73);
		if (K == 2)
			return low & 0xffff;
		return permute(low, permute(e[K - 1 < 2 ? 0 : 2].sum(), e[K - 1 < 3 ? 0 : 3].sum(), 0x73), 0x5410);
	}
	// places returns how many elements are passed on before each quad of the lane, and of all.
	template <int N, u32 K> static INLINE u32 places(const Each (&e)[K], u32 (&at)[K])
	{
		u32 own = pack<K>(e), sums = tileScan<N>(~0u, own), all = tileFrom<N>(~0u, sums, N - 1);
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
	// merge returns the quad's symbols, of those that the level names and later ones, the first of which are in x and y.
	static INLINE void merge(const Each &e, u32 named, u32 x, u32 y, u32 (&to)[GROUPS])
	{
		to[0] = permute(named, x, e.entry[0]);
		if (GROUPS == 2)
			to[GROUPS - 1] = permute(named, funnel(x, y, bitsPassed(e.entry[0])), e.entry[GROUPS - 1]);
	}

	// lastLevels decodes the levels from 2 on of passed elements of each tile and returns where they end.
	template <int N>
	static INLINE u32 lastLevels(const Shape &s, const Words<SHARED> &stored, u32 pos, u32 passed, u8 *scratch, const Tile<N> &tile)
	{
		if (ballot(~0u, passed > N) != 0) {
			pos = laterLevels(s, stored, 2, pos, passed, scratch, tile);
			if (ROW_ELEMENT == 2 && !BASES) {
				tile.sync();
				for (u32 i = 4 * tile.lane; i < passed; i += 4 * N)
					*(u32 *)(scratch + i) = turned(*(u32 *)(scratch + i));
			}
			return pos;
		}
		u32 mine = N == 32 ? ~0u : ((1u << N % 32) - 1) << (laneID() & ~(N - 1)), below = mine & ((1u << laneID()) - 1);
		bool in = tile.lane < passed, on = in;
		u32 i = tile.lane, named = 0, digits = s.digits >> 8, symbols = 2 * LEVEL_SYMBOLS, votes = ballot(~0u, on);
#pragma unroll 1
		for (u32 k = 2; votes != 0 && k < s.levels; k++, digits >>= 4, symbols += LEVEL_SYMBOLS) {
			u32 bits = digits & 15, ones = (1u << bits) - 1, digit = wordIn(stored, pos + i * bits) & ones;
			named = on ? symbols + digit : named;
			pos += popcount(votes & mine) * bits;
			on = on && digit == ones;
			votes = ballot(~0u, on);
			i = popcount(votes & below);
		}
		u32 symbol = s.symbols[named];
		if (votes != 0) {
			u32 x = wordIn(stored, pos + i * 8);
			symbol = on ? x : symbol;
			pos += popcount(votes & mine) * 8;
		}
		if (in)
			scratch[tile.lane] = (u8)turned(symbol & 0xff);
		return pos;
	}

	// join puts a quad's symbols and its rests, from bit position at on, together. quad is its number in the row.
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
				y[i] = (y[i] >> 1 & 0x7fff7fff) | (y[i] & 0x00010001) << 15;
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
		static constexpr bool WHOLE = false;
		u8 *row;
		INLINE void operator()(u32 element, u32x4 x) const { storeOut((u32x4 *)(row + element * ROW_ELEMENT), x); }
	};

	// decode is called by all lanes of a warp together; tiles without a row to decode have length 0.
	template <int N>
	static INLINE bool decode(const RowCodec &codec, const u8 *meta, const u32 *table, const Words<SHARED> &stored, u32 length, u8 *scratch,
				  const Tile<N> &tile, u8 *row)
	{
		return decodeTo<N>(codec, meta, table, stored, length, scratch, tile, Written{row});
	}
	// decodeTo calls put for each quad that the lane has decoded, with the number of its first element. If PUT::WHOLE is set, it does so for no quad of a corrupt row of one segment.
	template <int N, class PUT>
	static INLINE bool decodeTo(const RowCodec &codec, const u8 *meta, const u32 *table, const Words<SHARED> &stored, u32 length, u8 *scratch,
				    const Tile<N> &tile, const PUT &put)
	{
		constexpr u32 K = QUADS<N>;
		Shape s = shapeOf(codec, meta);
		s.symbol = 8, s.rest = REST;
		const u32 bits0 = BASES ? s.bits(0) : 2, base0 = bits0 == 1 ? 256 : 0, group0 = (1u << 4 * bits0) - 1;
		const u32 bits1 = s.bits(1), base1 = bits1 == 1 ? 256 : 0, group1 = (1u << 4 * bits1) - 1;
		const u32 named0 = namedBy(s, 0), named1 = namedBy(s, 1);
		u32 pos = 8 * s.header, end = 8 * length;
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
#pragma unroll
				for (u32 g = 0; g < GROUPS; g++)
					e[q].entry[g] = table[base0 + (x >> 4 * bits0 * g & group0)];
			}
			u32 at[K], passed = places<N, K>(e, at);
			pos += bits0 * n;
			ok = ok && pos + passed * bits1 <= end;
			pos = ok ? pos : 0;
#pragma unroll
			for (u32 q = 0; q < K; q++) {
				u32 bit = ok ? pos + at[q] * bits1 : 0, bits = (e[q].sum() >> 24) * bits1;
				u32 x = funnelWrap(stored.p[bit / 32], stored.p[bit / 32 + 1], bit);
				x = ok ? x & ~(~0u << bits) : 0;
				f[q].entry[0] = table[base1 + (x & group1)];
				if (GROUPS == 2)
					f[q].entry[GROUPS - 1] = table[base1 + (x >> 4 * bits1)];
			}
			pos += ok ? passed * bits1 : 0;
			u32 later = places<N, K>(f, at);
			pos = lastLevels(s, stored, pos, later, scratch, tile);
			ok = ok && pos + n * REST <= end && (!PUT::WHOLE || from + n < s.elements || end - (pos + n * REST) < 8);
			have = ok ? n : 0;
			warpSync(~0u); // the symbols are there
#pragma unroll
			for (u32 q = 0; q < K; q++) {
				u32 first = (q * N + tile.lane) * EACH, symbols[GROUPS], these[GROUPS];
				const u32 *p = (const u32 *)scratch + at[q] / 4;
				u32 x = funnelWrap(p[0], p[1], 8 * at[q]), y = GROUPS == 2 ? funnelWrap(p[1], p[2], 8 * at[q]) : 0;
				merge(f[q], named1, x, y, these);
				merge(e[q], named0, these[0], these[GROUPS - 1], symbols);
				if (first < have)
					put(from + first, join(s, symbols, stored, pos + first * REST, (from + first) / EACH));
			}
			pos += n * REST;
			warpSync(~0u); // the scratch memory is free
		}
		return ok && (pos + 7) / 8 == length;
	}
};
