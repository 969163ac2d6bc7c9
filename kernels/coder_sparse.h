// KERNELS sparse1 SparseCoder lanes=8 encode ROW_ELEMENT=1
// KERNELS sparse2 SparseCoder lanes=8 encode ROW_ELEMENT=2
// KERNELS sparse4 SparseCoder lanes=8 encode ROW_ELEMENT=4
// KERNELS sparse8 SparseCoder lanes=8 encode ROW_ELEMENT=8
//
// Background and entries: see docs/format/sparse.md. ROW_ELEMENT is the bytes of an element: 1, 2, 4 or 8. SparseHits
// (coder_sparse_hits.h) decodes hits of rows shorter than LONG_ROW.
//
// Params: the row's elements; the bits of a header's count, the rotation << 8 and the symbol's bits << 16; the background element, low word
// and high word. Metadata: the symbols of 64 digits, 16 bits each; then for each symbol a byte, 1 + its digit or 0, which encoding reads.
//
// Decoding makes a bitmap of a segment's entries in shared memory, and the number of entries before each of its words. After that each lane
// writes quads: most of them are background, for which it reads nothing but a word of the bitmap.
#pragma once
#include "coder.h"
#include "encode.h"

struct SparseCoder {
	static constexpr int LANES = 8, BLOCKS = 3;
	static constexpr u32 WIDTH = 8 * ROW_ELEMENT, EACH = 16 / ROW_ELEMENT; // EACH: elements a quad
	static constexpr u32 SEGMENT = 4096, VALUE_BITS = 7, PALETTE = 64, DIGIT_BITS = 6, RAW = PALETTE + DIGIT_BITS + 1;
#if ROW_ELEMENT == 8
	typedef u64 Word;
#else
	typedef u32 Word;
#endif
	static constexpr Word FULL = (Word)~0ull >> (8 * sizeof(Word) - WIDTH);

	static INLINE u32 bitLength(u32 x) { return x == 0 ? 0 : 32 - (u32)__builtin_clz(x); }
	// low returns n ones, n at most 32, and lowWord at most WIDTH.
	static INLINE u32 low(u32 n) { return funnel(~0u, 0, 32 - n); }
	static INLINE Word lowWord(u32 n) { return n == 0 ? 0 : FULL >> (WIDTH - n); }

	// Table is the params.
	struct Table {
		u32 elements, segments, count, rotate, symbol, header; // header: bits
		Word background;
		INLINE u32 segment(u32 i) const { return minimum(SEGMENT, elements - i * SEGMENT); }
		INLINE u32 start() const { return segments == 1 ? header : (segments * header + 7) & ~7u; }
		INLINE Word rotated(Word x) const { return rotate == 0 ? x : (x << 1 | x >> (WIDTH - 1)) & FULL; }
		INLINE Word unrotated(Word x) const { return rotate == 0 ? x : x >> 1 | (x << (WIDTH - 1) & FULL); }
	};
	static INLINE Table tableOf(const RowCodec &codec)
	{
		Table t;
		t.elements = codec.params[0], t.segments = (t.elements + SEGMENT - 1) / SEGMENT;
		t.count = codec.params[1] & 0xff, t.rotate = codec.params[1] >> 8 & 0xff, t.symbol = codec.params[1] >> 16;
		t.header = t.count + VALUE_BITS;
#if ROW_ELEMENT == 8
		t.background = (u64)codec.params[3] << 32 | codec.params[2];
#else
		t.background = codec.params[2];
#endif
		return t;
	}
	static INLINE u32 tailBytes(const RowCodec &codec, const Table &t) { return codec.rowBytes - t.elements * ROW_ELEMENT; }

	// Layout says where the parts of a segment lie: see type layout of package sparse.
	struct Layout {
		u32 elements, entries, listed, low, lows, positionBits, palette, digit, rest, digitBits, bits;
		bool inverted, bitmap;

		INLINE void place(u32 n, u32 m)
		{
			elements = n, entries = m, listed = m, low = lows = positionBits = 0;
			inverted = m > n - m, bitmap = false;
			if (inverted)
				listed = n - m;
			if (listed == 0)
				return;
			low = bitLength(n) - bitLength(listed);
			low -= listed << low > n;
			lows = listed + ((n - 1) >> low);
			positionBits = lows + listed * low;
			bitmap = positionBits >= n;
			if (bitmap)
				positionBits = n;
		}
		INLINE bool hold(const Table &t, u32 values)
		{
			palette = values < PALETTE ? values + 1 : 0;
			digit = values < PALETTE ? bitLength(values) : values < RAW ? values - PALETTE : 0;
			rest = values < PALETTE ? 0 : values < RAW ? WIDTH - t.symbol : WIDTH;
			digitBits = positionBits + palette * WIDTH;
			bits = digitBits + entries * (digit + rest);
			return values <= RAW && palette <= entries;
		}
	};
	// layoutOf reads header i and returns whether it is valid.
	template <class W> static INLINE bool layoutOf(const Table &t, const W &stored, u32 i, Layout &l)
	{
		u32 x = bitsAt(stored, i * t.header), entries = x & low(t.count), n = t.segment(i);
		bool valid = entries <= n;
		l.place(n, minimum(entries, n));
		return l.hold(t, x >> t.count & low(VALUE_BITS)) && valid;
	}
	// lengthOf returns the stored length of a row whose segments end at a bit.
	static INLINE u32 lengthOf(const RowCodec &codec, const Table &t, u32 end) { return (end + 7) / 8 + tailBytes(codec, t); }

	template <int N, class W>
	static INLINE u32 storedLength(const RowCodec &codec, const u8 *, const W &stored, const Tile<N> &tile)
	{
		Table t = tableOf(codec);
		u32 bits = 0;
		bool bad = false;
#pragma unroll 1
		for (u32 i = tile.lane; i < t.segments; i += N) {
			Layout l;
			bad |= !layoutOf(t, stored, i, l);
			bits += l.bits;
		}
		u32 n = lengthOf(codec, t, t.start() + tile.sum(bits));
		return tile.vote(bad) == 0 && n < codec.rowBytes ? n : 0;
	}

	// The scratch memory: for each word of a segment's bitmap the word; then for each the entries before it, 16 bits each; and, when
	// encoding, the palette.
	static INLINE u32 words(const Table &t) { return (minimum(t.elements, SEGMENT) + 31) / 32; }
	static INLINE u16 *beforeIn(u8 *scratch, const Table &t) { return (u16 *)(scratch + 4 * words(t)); }
	static INLINE Word *paletteIn(u8 *scratch, const Table &t) { return (Word *)(scratch + ((6 * words(t) + 15) & ~15u)); }

	// bitsOf returns WIDTH bits at a bit position, at most; the others are garbage.
	template <class W> static INLINE Word bitsOf(const W &stored, u32 bit)
	{
		if constexpr (ROW_ELEMENT == 8)
			return bits64At(stored, bit);
		else
			return bitsAt(stored, bit);
	}

	// Values reads the values of a segment's entries.
	template <class W> struct Values {
		const Table &t;
		const Layout &l;
		const W &stored;
		const u16 *symbols;
		u32 palette, digits, rests; // first bits
		Word one;
		INLINE Values(const Table &t, const Layout &l, const W &stored, const u8 *meta, u32 pos) : t(t), l(l), stored(stored)
		{
			symbols = (const u16 *)meta;
			palette = pos + l.positionBits, digits = pos + l.digitBits, rests = digits + l.entries * l.digit;
			one = l.palette == 1 ? bitsOf(stored, palette) & FULL : 0;
		}
		INLINE Word at(u32 i) const
		{
			if (l.palette == 1)
				return one;
			u32 digit = bitsAt(stored, digits + i * l.digit) & low(l.digit);
			if (l.palette != 0)
				return digit < l.palette ? bitsOf(stored, palette + digit * WIDTH) & FULL : 0;
			Word x = bitsOf(stored, rests + i * l.rest) & lowWord(l.rest);
			if (l.rest != WIDTH) // else there is no symbol
				x |= (Word)symbols[digit] << l.rest;
			return t.unrotated(x);
		}
	};

	// pattern returns a word of background elements, the even or odd one of 8-byte elements.
	static INLINE u32 pattern(const Table &t, u32 odd)
	{
		if constexpr (ROW_ELEMENT == 8)
			return odd ? (u32)(t.background >> 32) : (u32)t.background;
		else
			return (u32)t.background * (ROW_ELEMENT == 4 ? 1 : ROW_ELEMENT == 2 ? 0x00010001 : 0x01010101);
	}

	// quadOf returns the elements of a quad: in says which are entries, the first of them entry number i.
	template <class V> static INLINE u32x4 quadOf(const Table &t, const V &values, u32 in, u32 i)
	{
		u32 y[4];
#if ROW_ELEMENT == 8
#pragma unroll
		for (int k = 0; k < 2; k++) {
			u64 x = t.background;
			if (in >> k & 1)
				x = values.at(i++);
			y[2 * k] = (u32)x, y[2 * k + 1] = (u32)(x >> 32);
		}
#elif ROW_ELEMENT == 4
#pragma unroll
		for (int k = 0; k < 4; k++) {
			y[k] = t.background;
			if (in >> k & 1)
				y[k] = values.at(i++);
		}
#else
#pragma unroll
		for (int k = 0; k < 4; k++) {
			u32 part = in & ((1u << (4 / ROW_ELEMENT)) - 1);
			in >>= 4 / ROW_ELEMENT;
			y[k] = pattern(t, 0);
#pragma unroll 1
			while (part != 0) {
				u32 shift = lowestBit(part) * WIDTH;
				y[k] = (y[k] & ~((u32)FULL << shift)) | values.at(i++) << shift;
				part &= part - 1;
			}
		}
#endif
		return u32x4{y[0], y[1], y[2], y[3]};
	}

	// eachListed calls take for each position of a list, which begins at bit pos, with the position and its number, in the lane that finds it. It returns
	// whether the lane saw no fault.
	template <int N, class W, class TAKE>
	static INLINE bool eachListed(const Layout &l, const W &stored, u32 pos, const Tile<N> &tile, const TAKE &take)
	{
		u32 known = 0, last = 0; // positions so far; the last bit of the round before
		bool ok = true;
#pragma unroll 1
		for (u32 from = 0; from < l.lows; from += N) {
			u32 x = bitsAt(stored, pos + from) & low(minimum(N, l.lows - from)), i = known + popcount(x & ((1u << tile.lane) - 1));
			if ((x >> tile.lane & 1) != 0 && i < l.listed) {
				u32 at = pos + l.lows + i * l.low, mine = bitsAt(stored, at) & low(l.low);
				u32 p = (from + tile.lane - i) << l.low | mine;
				// A neighbour's upper half is the same.
				bool neighbour = ((x << 1 | last) >> tile.lane & 1) != 0;
				ok = ok && p < l.elements && !(neighbour && (bitsAt(stored, at - l.low) & low(l.low)) >= mine);
				if (p < l.elements)
					take(p, i);
			}
			known += popcount(x);
			last = x >> (N - 1);
		}
		return ok && known == l.listed;
	}

	// fillBitmap makes the bitmap of a segment and what is before its words, and returns whether the lane saw no fault.
	template <int N, class W>
	static INLINE bool fillBitmap(const Layout &l, const W &stored, u32 pos, u32 *bitmap, u16 *before, const Tile<N> &tile)
	{
		u32 words = (l.elements + 31) / 32, total = 0;
		bool ok = true, list = l.listed != 0 && !l.bitmap;
		if (list) {
			for (u32 w = tile.lane; w < words; w += N)
				bitmap[w] = 0;
			tile.sync();
			ok = eachListed(l, stored, pos, tile, [&](u32 p, u32) { atomicOrShared(bitmap + p / 32, 1u << (p & 31)); });
			tile.sync();
		}
#pragma unroll 1
		for (u32 from = 0; from < words; from += N) {
			u32 w = from + tile.lane, x = 0;
			if (w < words) {
				x = l.bitmap ? bitsAt(stored, pos + 32 * w) : (list ? bitmap[w] : 0) ^ (l.inverted ? ~0u : 0);
				x &= low(minimum(32, l.elements - 32 * w));
			}
			u32 sum = tile.scan(popcount(x));
			if (w < words) {
				bitmap[w] = x;
				before[w] = (u16)(total + sum - popcount(x));
			}
			total += tile.from(sum, N - 1);
		}
		tile.sync();
		return ok && total == l.entries;
	}

	// fill writes background to a part of a row, which begins at a multiple of 8 of the row's bytes, by a warp: 16 bytes a lane, however memory is aligned.
	static INLINE void fill(const Table &t, u8 *at, u32 bytes, const Tile<32> &tile)
	{
		u32 head = minimum(-(u32)(u64)at & 15, bytes), end = head + (bytes - head) / 16 * 16, turn = 8 * (head & 7);
		u64 x = (u64)pattern(t, 1) << 32 | pattern(t, 0), y = x >> turn | x << (-turn & 63);
		const u32x4 quad = {(u32)y, (u32)(y >> 32), (u32)y, (u32)(y >> 32)};
#pragma unroll 1
		for (u32 i = head + tile.lane * 16; i < end; i += 32 * 16)
			storeOut((u32x4 *)(at + i), quad);
		if (tile.lane < head)
			at[tile.lane] = (u8)(x >> 8 * (tile.lane & 7));
		if (tile.lane < bytes - end)
			at[end + tile.lane] = (u8)(x >> 8 * ((end + tile.lane) & 7));
	}

	// putElement writes element i of a row.
	static INLINE void putElement(const RowCodec &codec, u8 *row, u32 i, Word x)
	{
#if ROW_ELEMENT == 1
		row[i] = (u8)x;
#elif ROW_ELEMENT == 2
		storeHalf(codec, row, i, x);
#elif ROW_ELEMENT == 4
		storeWord(codec, row, i, x);
#else
		storeDouble(codec, row, i, x);
#endif
	}

	template <int N, class W>
	static INLINE bool decode(const RowCodec &codec, const u8 *meta, const W &stored, u32 length, u8 *scratch, const Tile<N> &tile, u8 *row)
	{
		return decodeBy<false>(codec, meta, stored, length, scratch, tile, row);
	}

	// decodeLong is decode of rows that have no stage, by a warp. Segments of few entries are filled and then get their entries. That writes 16 bytes a lane
	// also where rows begin at multiples of 4 bytes, and a quad would be four stores, between which those of the other lanes lie.
	template <class W>
	static INLINE bool decodeLong(const RowCodec &codec, const u8 *meta, const W &stored, u32 length, u8 *scratch, const Tile<32> &tile, u8 *row)
	{
		return decodeBy<true>(codec, meta, stored, length, scratch, tile, row);
	}
	static constexpr u32 FEW = 16; // few are one of so many elements

	template <bool LONG, int N, class W>
	static INLINE bool decodeBy(const RowCodec &codec, const u8 *meta, const W &stored, u32 length, u8 *scratch, const Tile<N> &tile, u8 *row)
	{
		Table t = tableOf(codec);
		u32 pos = t.start(), *bitmap = (u32 *)scratch;
		u16 *before = beforeIn(scratch, t);
		bool ok = true;
#pragma unroll 1
		for (u32 s = 0; s < t.segments; s++) {
			Layout l;
			if (!layoutOf(t, stored, s, l))
				return false; // all lanes
			if constexpr (LONG) {
				if (l.entries * FEW <= l.elements && !l.bitmap) {
					u8 *part = row + s * (SEGMENT * ROW_ELEMENT);
					fill(t, part, l.elements * ROW_ELEMENT, tile);
					tile.sync(); // entries are written behind the background
					if (l.entries != 0) {
						Values<W> values(t, l, stored, meta, pos);
						ok = eachListed(l, stored, pos, tile, [&](u32 p, u32 i) { putElement(codec, part, p, values.at(i)); }) && ok;
					}
					pos += l.bits;
					continue;
				}
			}
			bool some = l.entries != 0;
			if (some)
				ok = fillBitmap(l, stored, pos, bitmap, before, tile) && ok;
			Values<W> values(t, l, stored, meta, pos);
			u32 first = s * (SEGMENT / EACH), quads = (l.elements + EACH - 1) / EACH;
			const u32x4 plain = {pattern(t, 0), pattern(t, 1), pattern(t, 0), pattern(t, 1)};
#pragma unroll 1
			for (u32 q = tile.lane; q < quads; q += N) {
				u32 e = q * EACH, in = 0, x = 0;
				if (some)
					x = bitmap[e / 32], in = x >> (e & 31) & ((1u << EACH) - 1);
				u32x4 y = plain;
				if (in != 0)
					y = quadOf(t, values, in, before[e / 32] + popcount(x & ((1u << (e & 31)) - 1)));
				storeQuad(row, first + q, y, codec.rowBytes, codec.store);
			}
			pos += l.bits;
			tile.sync(); // the scratch memory is free, and the last quad's lane has written over the tail bytes
		}
		u32 tail = tailBytes(codec, t);
		if (tile.lane < tail)
			row[t.elements * ROW_ELEMENT + tile.lane] = (u8)bitsAt(stored, pos + 8 * tile.lane);
		return tile.vote(!ok) == 0 && (pos + 8 * tail + 7) / 8 == length;
	}

	// element returns element i of a row in shared memory.
	static INLINE Word element(const u32 *row, u32 i)
	{
#if ROW_ELEMENT == 8
		return (u64)row[2 * i + 1] << 32 | row[2 * i];
#else
		return row[i * ROW_ELEMENT / 4] >> (i * WIDTH & 31) & (u32)FULL;
#endif
	}
	static INLINE Word wordFrom(const Tile<32> &tile, Word x, u32 lane)
	{
#if ROW_ELEMENT == 8
		return (u64)tile.from((u32)(x >> 32), lane) << 32 | tile.from((u32)x, lane);
#else
		return tile.from(x, lane);
#endif
	}
	static INLINE void putWord(u32 *out, u32 bit, Word x, u32 n)
	{
		putBits(out, bit, (u32)x, minimum(n, 32));
		if (n > 32)
			putBits(out, bit + 32, (u64)x >> 32, n - 32);
	}

	// largestCode returns 1 + the largest digit of a segment's entries, ~0 if one has none.
	static INLINE u32 largestCode(const Table &t, const u8 *meta, const u32 *row, u32 first, u32 n, const u32 *bitmap, const Tile<32> &tile)
	{
		const u8 *codes = meta + 2 * PALETTE;
		u32 largest = 0;
#pragma unroll 1
		for (u32 w = 0; w * 32 < n; w++)
			if (bitmap[w] >> tile.lane & 1) {
				u32 code = codes[t.rotated(element(row, first + w * 32 + tile.lane)) >> (WIDTH - t.symbol)];
				largest = maximum(largest, code == 0 ? ~0u : code);
			}
#pragma unroll
		for (u32 d = 1; d < 32; d *= 2)
			largest = maximum(largest, tileXor<32>(tile.lanes, largest, d));
		return largest;
	}

	// fillPalette collects the distinct values of m entries in the order of their first ones, and returns how many there are, or 0 if a palette
	// of them takes so many bits or more.
	static INLINE u32 fillPalette(const u32 *row, u32 first, u32 n, u32 m, u32 most, const u32 *bitmap, Word *palette, const Tile<32> &tile)
	{
		u32 known = 0;
#pragma unroll 1
		for (u32 w = 0; w * 32 < n; w++) {
			bool in = bitmap[w] >> tile.lane & 1;
			Word x = in ? element(row, first + w * 32 + tile.lane) : 0;
			bool found = !in;
#pragma unroll 1
			for (u32 p = 0; p < known; p++)
				found |= palette[p] == x;
			u32 left = tile.vote(!found);
#pragma unroll 1
			while (left != 0) {
				if (known == PALETTE || (known + 1) * WIDTH + m * bitLength(known) >= most)
					return 0;
				Word next = wordFrom(tile, x, lowestBit(left));
				if (tile.lane == 0)
					palette[known] = next;
				known++;
				found |= x == next;
				left = tile.vote(!found);
			}
			tile.sync(); // the palette is written
		}
		return known;
	}

	static INLINE u32 encode(const RowCodec &codec, const u8 *meta, const u32 *row, u32 *out, u32, u8 *scratch, const Tile<32> &tile)
	{
		Table t = tableOf(codec);
		u32 pos = t.start(), tail = tailBytes(codec, t), below = (1u << tile.lane) - 1;
		u32 *bitmap = (u32 *)scratch;
		Word *palette = paletteIn(scratch, t);
#pragma unroll 1
		for (u32 s = 0; s < t.segments; s++) {
			u32 n = t.segment(s), first = s * SEGMENT, m = 0;
#pragma unroll 1
			for (u32 w = 0; w * 32 < n; w++) {
				u32 i = w * 32 + tile.lane, x = tile.vote(i < n && element(row, first + i) != t.background);
				if (tile.lane == 0)
					bitmap[w] = x;
				m += popcount(x);
			}
			tile.sync();
			Layout l;
			l.place(n, m);
			u32 values = RAW, most = m * WIDTH;
			if (m != 0) {
				u32 largest = largestCode(t, meta, row, first, n, bitmap, tile);
				u32 digit = bitLength(largest - 1), bits = m * (digit + WIDTH - t.symbol);
				if (largest != ~0u && bits < most)
					values = PALETTE + digit, most = bits;
				u32 known = fillPalette(row, first, n, m, most, bitmap, palette, tile);
				if (known != 0)
					values = known - 1;
			}
			tile.sync(); // also where fillPalette gave up
			l.hold(t, values);
			u32 at = pos;
			pos += l.bits;
			if ((pos + 8 * tail + 7) / 8 >= codec.rowBytes)
				return codec.rowBytes;
			if (tile.lane == 0)
				putBits(out, s * t.header, m | values << t.count, t.header);
			for (u32 p = tile.lane; p < l.palette; p += 32)
				putWord(out, at + l.positionBits + p * WIDTH, palette[p], WIDTH);
			u32 digits = at + l.digitBits, rests = digits + m * l.digit, entry = 0, position = 0;
#pragma unroll 1
			for (u32 w = 0; w * 32 < n; w++) {
				u32 x = bitmap[w], left = minimum(32, n - 32 * w), i = entry + popcount(x & below);
				entry += popcount(x);
				if (l.bitmap) {
					if (tile.lane == 0)
						putBits(out, at + 32 * w, x, left);
				} else if (l.listed != 0) {
					u32 y = (l.inverted ? ~x : x) & low(left), k = position + popcount(y & below), p = w * 32 + tile.lane;
					if (y >> tile.lane & 1) {
						putBits(out, at + (p >> l.low) + k, 1, 1);
						putBits(out, at + l.lows + k * l.low, p & low(l.low), l.low);
					}
					position += popcount(y);
				}
				if ((x >> tile.lane & 1) == 0)
					continue;
				Word v = element(row, first + w * 32 + tile.lane), r = t.rotated(v);
				if (l.digit != 0) {
					u32 digit = 0;
					if (l.palette == 0)
						digit = (meta + 2 * PALETTE)[r >> (WIDTH - t.symbol)] - 1;
					else
						while (palette[digit] != v)
							digit++;
					putBits(out, digits + i * l.digit, digit, l.digit);
				}
				if (l.rest != 0)
					putWord(out, rests + i * l.rest, r & lowWord(l.rest), l.rest);
			}
			tile.sync(); // the scratch memory is free
		}
		if (t.segments == 0)
			return codec.rowBytes;
		if (tile.lane < tail) {
			u32 byte = t.elements * ROW_ELEMENT + tile.lane;
			putBits(out, pos + 8 * tile.lane, row[byte / 4] >> (byte % 4 * 8) & 0xff, 8);
		}
		return (pos + 8 * tail + 7) / 8;
	}
};

#ifdef ROW_BUILT
#include "coder_sparse_hits.h"
#endif
