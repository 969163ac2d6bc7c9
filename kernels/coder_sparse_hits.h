// Hits of sparse rows: docs/format/sparse.md, On a GPU.
#pragma once
#include "coder_sparse.h"

// SparseHits puts rows shorter than LONG_ROW together in shared memory, for decode_built.h: a row is filled with background, and each position of
// a list gets its entry. All tiles of a warp go the same way, so that votes and shuffles are the warp's: those of a tile cost several times
// as much. A tile whose row is corrupt, or that has none to decode, goes along without entries.
//
// The scratch memory: the row, in whole quads, then a bitmap of a segment's elements.
struct SparseHits : SparseCoder {
	static constexpr u32 GROUP = ROW_ELEMENT == 8 ? 2 : 4, GROUPS = EACH / GROUP; // elements that are decoded at once, and such groups of a quad
	static constexpr u32 WORDS = GROUP * ROW_ELEMENT / 4;			      // of a group

	// Staged are the words of a stored row in shared memory. Segments end within the stored row and no read begins behind it, so that no
	// word's number needs a limit.
	struct Staged {
		const u32 *p;
		INLINE u32 at(u32 w) const { return p[w]; }
	};

	static INLINE bool any(bool x) { return ballot(~0u, x) != 0; }

	// The steps that a segment needs, bits that can be added up over a warp: its list is put; its list is of background elements; its entries are
	// put by quads.
	static constexpr u32 LIST = 1, OTHERS = 1 << 8, QUADS = 1 << 16, LANES_OF = 0xff;

	// Segment is what a tile knows of the segment that it decodes, which begins at bit pos: a Layout, computed without branches, and its steps.
	// Without steps the rest has no meaning, except that palette, of any length, begins within the row's length.
	struct Segment : Layout {
		u32 pos, end, steps;

		// read reads the header of a segment of n elements and returns whether it is valid.
		INLINE bool read(const Table &t, u32 header, u32 n, u32 at)
		{
			u32 m = header & SparseCoder::low(t.count), values = header >> t.count & SparseCoder::low(VALUE_BITS);
			inverted = m > n - m;
			elements = n, entries = m, listed = inverted ? n - m : m;
			u32 some = maximum(listed, 1);
			low = (u32)__builtin_clz(some) - (u32)__builtin_clz(n);
			low -= some << (low & 31) > n;
			lows = listed + ((n - 1) >> (low & 31));
			positionBits = lows + listed * low;
			bitmap = listed != 0 && positionBits >= n;
			positionBits = listed == 0 ? 0 : minimum(positionBits, n);
			bool named = values < PALETTE;
			palette = named ? values + 1 : 0;
			digit = named ? bitLength(values) : values < RAW ? values - PALETTE : 0;
			rest = named ? 0 : values < RAW ? WIDTH - t.symbol : WIDTH;
			digitBits = positionBits + palette * WIDTH;
			bits = digitBits + m * (digit + rest);
			pos = at, end = at + bits;
			steps = listed != 0 && !bitmap ? (inverted ? LIST | OTHERS | QUADS : LIST) : m != 0 ? QUADS : 0;
			return m <= n && n != 0 && values <= RAW && palette <= m;
		}
	};

	static INLINE void put(u8 *row, u32 i, Word x)
	{
#if ROW_ELEMENT == 1
		row[i] = (u8)x;
#elif ROW_ELEMENT == 2
		((u16 *)row)[i] = (u16)x;
#else
		((Word *)row)[i] = x;
#endif
	}

	// putList puts the entries of a list, or sets the bits of a list of background elements in the bitmap. It returns whether the lane saw
	// no fault.
	template <int N>
	static INLINE bool putList(const Table &t, const Segment &s, const Staged &stored, const u8 *meta, u32 *bitmap, u8 *row, const Tile<N> &tile)
	{
		const Values<Staged> values(t, s, stored, meta, s.pos);
		u32 known = 0, last = 0; // positions so far; the last bit of the word before
		u32 lows = s.steps & LIST ? s.lows : 0, mask = low(s.low), before = s.pos + s.lows - s.low;
		bool ok = true;
#pragma unroll 1
		for (u32 from = 0;; from += 32) {
			if (from < lows) {
				u32 x = bitsAt(stored, s.pos + from) & low(minimum(32, lows - from));
				u32 pairs = x & (x << 1 | last); // ones behind a one: their upper half is the same
				u32 left = x, b = tile.lane;
#pragma unroll 1
				do {
					u32 i = known + popcount(x & ((1u << b) - 1));
					if ((x >> b & 1) != 0 && i < s.listed) {
						// The lower half before this one, if there is any, and this one.
						u32 both = bitsAt(stored, before + i * s.low), mine = both >> s.low & mask;
						u32 p = (from + b - i) << s.low | mine;
						bool in = p < s.elements;
						ok = ok && in && !((pairs >> b & 1) != 0 && (both & mask) >= mine);
						if (in && s.inverted)
							atomicOrShared(bitmap + p / 32, 1u << (p & 31));
						else if (in)
							put(row, p, values.at(i));
					}
					b += N;
					left = N == 32 ? 0 : left >> (N & 31);
				} while (left != 0);
				known += popcount(x);
				last = x >> 31;
			}
			if (!any(from + 32 < lows))
				break;
		}
		return ok && (lows == 0 || known == s.listed);
	}

	// window returns the words from a bit on that a group's rests can take.
	static INLINE void window(const Staged &stored, u32 bit, u32 (&y)[WORDS])
	{
		const u32 *p = stored.p + bit / 32;
		u32 x = p[0];
#pragma unroll
		for (u32 w = 0; w < WORDS; w++) {
			u32 next = p[w + 1];
			y[w] = funnelWrap(x, next, bit);
			x = next;
		}
	}

	// unrotated is Table's for all elements of a word, which are shorter than it or as long.
	static INLINE u32 unrotated(u32 x)
	{
		constexpr u32 top = ROW_ELEMENT == 4 ? 1u << 31 : ROW_ELEMENT == 2 ? 0x80008000 : 0x80808080;
		return (x >> 1 & ~top) | (x << (WIDTH - 1 & 31) & top);
	}

	// Quads puts entries by quads. Of a quad whose elements are all entries, which ALL says, nothing has to be kept.
	struct Quads {
		const Table &t;
		const Segment &s;
		const Staged &stored;
		const u16 *symbols;
		u32 palette, digits, rests; // first bits
		Word one;

		INLINE Quads(const Table &t, const Segment &s, const Staged &stored, const u8 *meta) : t(t), s(s), stored(stored), symbols((const u16 *)meta)
		{
			palette = s.pos + s.positionBits, digits = s.pos + s.digitBits, rests = digits + s.entries * s.digit;
			one = s.palette == 1 && s.entries != 0 ? bitsOf(stored, palette) & FULL : 0;
		}
		// clamped keeps a read within the stored row, where a bitmap may have more entries than there should be.
		template <bool ALL> INLINE u32 clamped(u32 bit) const { return ALL ? bit : minimum(bit, s.end); }

		// pairOf returns two elements of 16 bits with digits, whose rests are the first bits of z. rest is the ones of a rest.
		INLINE u32 pairOf(u32 z, u32 rest, u32 a, u32 b) const
		{
			return (symbols[a] | symbols[b] << 16) << s.rest | (z & rest) | (z << (16 - s.rest) & rest << 16);
		}

		// groupOf returns the words of a group: in says which elements are entries, the first of them entry number i.
		template <bool ALL> INLINE void groupOf(u32 in, u32 i, u32 (&y)[WORDS]) const
		{
#if ROW_ELEMENT == 8
			const Values<Staged> values(t, s, stored, (const u8 *)symbols, s.pos);
#pragma unroll
			for (u32 k = 0; k < GROUP; k++)
				if (in >> k & 1) {
					u64 x = values.at(minimum(i++, s.entries - 1));
					y[2 * k] = (u32)x, y[2 * k + 1] = (u32)(x >> 32);
				}
#else
			u32 x[GROUP], z[WORDS];
			if (ALL && s.palette == 0 && s.rest == WIDTH) {
				window(stored, rests + i * WIDTH, z);
			} else {
				if (s.palette == 1) {
#pragma unroll
					for (u32 k = 0; k < GROUP; k++)
						x[k] = one;
				} else {
					u32 named = bitsAt(stored, clamped<ALL>(digits + i * s.digit)), mask = low(s.digit), digit[GROUP];
#pragma unroll
					for (u32 k = 0; k < GROUP; k++) {
						digit[k] = named & mask;
						named >>= ALL || (in >> k & 1) ? s.digit : 0;
					}
					if (s.palette != 0) {
#pragma unroll
						for (u32 k = 0; k < GROUP; k++) {
							u32 value = bitsAt(stored, palette + minimum(digit[k], s.palette - 1) * WIDTH) & FULL;
							x[k] = digit[k] < s.palette ? value : 0;
						}
					} else {
						u32 of = ALL || s.rest != WIDTH ? ~0u : 0, rest = low(s.rest); // elements as they are have no symbol
						window(stored, clamped<ALL>(rests + i * s.rest), z);
if constexpr (ALL && ROW_ELEMENT == 2) { // pairs, two of which have at most two words of rests
							u32 next = funnel(z[0], z[WORDS - 1], 2 * s.rest);
							x[0] = pairOf(z[0], rest, digit[0], digit[1]), x[1] = 0;
							x[2] = pairOf(next, rest, digit[2], digit[3]), x[3] = 0;
						} else {
#pragma unroll
							for (u32 k = 0; k < GROUP; k++) {
								x[k] = (z[0] & rest) | (symbols[digit[k]] & of) << (s.rest & 31);
								u32 bits = ALL || (in >> k & 1) ? s.rest : 0;
#pragma unroll
								for (u32 w = 0; w < WORDS; w++)
									if (w * 32 < (GROUP - 1 - k) * WIDTH) // later elements' words
										z[w] = funnel(z[w], w + 1 < WORDS ? z[w + 1] : 0, bits);
							}
						}
					}
				}
#pragma unroll
				for (u32 w = 0; w < WORDS; w++)
					z[w] = ROW_ELEMENT == 4 ? x[w] : ROW_ELEMENT == 2 ? x[2 * w & 3] | x[(2 * w + 1) & 3] << 16
											: x[0] | x[1] << 8 | x[2] << 16 | x[3] << 24;
			}
			bool turn = s.palette == 0 && t.rotate != 0;
#pragma unroll
			for (u32 w = 0; w < WORDS; w++) {
				u32 v = turn ? unrotated(z[w]) : z[w];
				if (!ALL) {
					u32 part = in >> (w * (4 / ROW_ELEMENT)), keep = ROW_ELEMENT == 4 ? -(part & 1)
									  : ROW_ELEMENT == 2 ? permute(part << 7, part << 6, 0xcc88) : bytesOf(part & 15);
					v = (v & keep) | (y[w] & ~keep);
				}
				y[w] = v;
			}
#endif
		}

		// put writes a quad.
		template <bool ALL> INLINE void put(u8 *row, u32 q, u32 in, u32 i) const
		{
			u32 y[4] = {pattern(t, 0), pattern(t, 1), pattern(t, 0), pattern(t, 1)};
#pragma unroll
			for (u32 g = 0; g < GROUPS; g++) {
				u32 part = in >> g * GROUP & ((1u << GROUP) - 1), z[WORDS];
#pragma unroll
				for (u32 w = 0; w < WORDS; w++)
					z[w] = y[g * WORDS + w];
				if (ALL || part != 0)
					groupOf<ALL>(part, i, z);
#pragma unroll
				for (u32 w = 0; w < WORDS; w++)
					y[g * WORDS + w] = z[w];
				i += ALL ? GROUP : popcount(part);
			}
			((u32x4 *)row)[q] = u32x4{y[0], y[1], y[2], y[3]};
		}
	};

	// putQuads puts the entries of segments of which no list says where they are: all elements, those of a stored bitmap, or those that are not
	// in the bitmap in shared memory. It returns whether there are as many as the header says.
	template <int N>
	static INLINE bool putQuads(const Table &t, const Segment &s, const Staged &stored, const u8 *meta, const u32 *bitmap, u8 *row, u32 n, const Tile<N> &tile)
	{
		const Quads quads(t, s, stored, meta);
		const bool counted = any((s.steps & QUADS) != 0 && s.listed != 0); // else all elements are entries
		u32 total = 0;
#pragma unroll 1
		for (u32 from = 0; from * EACH < n; from += N) {
			u32 q = from + tile.lane, e = q * EACH, in = 0;
			if ((s.steps & QUADS) != 0 && e < n) {
				in = low(minimum(EACH, n - e));
				if (s.bitmap)
					in &= bitsAt(stored, s.pos + e);
				else if (s.listed != 0)
					in &= ~(bitmap[e / 32] >> (e & 31));
			}
			u32 i = e;
			if (counted) {
				u32 m = popcount(in), sum = tileScan<N>(~0u, m);
				i = total + sum - m;
				total += tileFrom<N>(~0u, sum, N - 1);
			}
			if (in != 0 && s.listed == 0)
				quads.template put<true>(row, q, in, i);
			else if (in != 0)
				quads.template put<false>(row, q, in, i);
		}
		return (s.steps & QUADS) == 0 || !counted || total == s.entries;
	}

	template <int N>
	static INLINE bool build(const u8 *meta, const RowCodec &codec, const u32 *words, u32 length, u8 *scratch, const Tile<N> &tile)
	{
		const Table t = tableOf(codec);
		const Staged stored{words};
		u32 *bitmap = (u32 *)(scratch + codec.quads * 16);
		const u32x4 plain = {pattern(t, 0), pattern(t, 1), pattern(t, 0), pattern(t, 1)};
#pragma unroll 1
		for (u32 q = tile.lane; q < codec.quads; q += N)
			((u32x4 *)scratch)[q] = plain;
		u32 pos = ROW_ELEMENT == 1 ? t.start() : t.header, tail = tailBytes(codec, t);
		bool ok = length != 0;
		// Only rows of one-byte elements are long enough for two segments.
#pragma unroll 1
		for (u32 i = 0; i < (ROW_ELEMENT == 1 ? t.segments : 1); i++) {
			Segment s;
			u32 n = ROW_ELEMENT == 1 ? t.segment(i) : t.elements;
			ok = s.read(t, ROW_ELEMENT == 1 ? bitsAt(stored, i * t.header) : words[0], n, pos) && ok;
			ok = ok && (ROW_ELEMENT == 1 ? s.end <= 8 * length : (s.end + 8 * tail + 7) / 8 == length);
			if (!ok)
				s.steps = 0, s.end = pos;
			u32 tiles = warpSum(s.steps);
			if (tiles & LANES_OF * OTHERS)
#pragma unroll 1
				for (u32 w = tile.lane; w < (n + 31) / 32; w += N)
					bitmap[w] = 0;
			warpSync(~0u); // the row and the bitmap are filled
			u8 *part = scratch + i * SEGMENT * ROW_ELEMENT;
			if (tiles & LANES_OF * LIST)
				ok = putList(t, s, stored, meta, bitmap, part, tile) && ok;
			if (tiles & LANES_OF * QUADS) {
				warpSync(~0u); // the bitmap is complete
				ok = putQuads(t, s, stored, meta, bitmap, part, n, tile) && ok;
			}
			pos = s.end;
			warpSync(~0u); // the bitmap is free, and the last quad's lane has written over the tail bytes
		}
		if (tail != 0) {
			if (tile.lane < tail)
				scratch[t.elements * ROW_ELEMENT + tile.lane] = (u8)bitsAt(stored, pos + 8 * tile.lane);
			warpSync(~0u);
		}
		if (ROW_ELEMENT == 1)
			ok = ok && (pos + 7) / 8 == length;
		return (ballot(~0u, !ok) & tile.lanes) == 0;
	}
};
