// KERNELS parts PartsCoder lanes=8 ROW_ELEMENT=1
//
// Rows of parts of different types: see docs/format/parts.md. ROW_ELEMENT says which pooled kernels there are: those of float8 values with
// scales.
//
// Params: the length of a field, planes << 16; the bytes of all but level 1 and escapes; the same in bits. Metadata: a table of 272 words, how
// symbols of any four digits are put together (codec/parts/device.go, merging). Then 8 words for each plane: elements, byte of the row at which
// it begins << 16; kind (those of the format, and SHORT and QUADS: deviceKind in codec/parts/device.go), constant value << 8, bytes of an element
// << 16, which of its bytes << 24, rotation << 31; bits of a symbol, of a digit of level 0 << 8 and of level 1 << 16; bit position of level 0;
// that of the rests; byte of the metadata at which bases begin, 0 if there are none, and place in the scratch memory << 16; symbols of the digits
// of level 0, and of level 1, a byte each. Then bases. Symbols and bases of planes of kind QUADS are shifted right by one bit, to where they lie
// in a row.
//
// Each lane decodes units of 16 elements, or of 4 if a plane is short: two scans over the tile give where its digits of level 1 and its
// escapes begin. Nothing is parsed serially. All tiles of a warp go the same way.
#pragma once
#include "coder.h"

struct PartsCoder {
	static constexpr int LANES = 8, BLOCKS = 3;
	static constexpr bool TOGETHER = true;
	static constexpr u32 SEGMENT = 512, CONSTANT = 1, CODED = 2, SHORT = 3, QUADS = 4, TABLE = 256 + 16;

	// Plane reads what the metadata say of a plane: that takes fewer registers than keeping all of it.
	struct Plane {
		const u32 *w;
		INLINE u32 elements() const { return w[0] & 0xffff; }
		INLINE u32 at() const { return w[0] >> 16; }
		INLINE u32 kind() const { return w[1] & 0xff; }
		INLINE u32 value() const { return w[1] >> 8 & 0xff; }
		INLINE u32 stride() const { return w[1] >> 16 & 0xff; }
		INLINE u32 byte() const { return w[1] >> 24 & 0x7f; }
		INLINE bool rotate() const { return w[1] >> 31; }
		INLINE u32 shape() const { return w[2]; }
		INLINE u32 digitsAt() const { return w[3]; }
		INLINE u32 restAt() const { return w[4]; }
		INLINE u32 bases() const { return w[5] & 0xffff; }
		INLINE u32 first() const { return w[5] >> 16; }
		INLINE u32 named0() const { return w[6]; }
		INLINE u32 named1() const { return w[7]; }
	};
	static INLINE Plane planeOf(const u8 *meta, u32 i) { return Plane{(const u32 *)meta + TABLE + 8 * i}; }

	// lengthOf returns the length of a stored row whose head is there.
	template <class W> static INLINE u32 lengthOf(const RowCodec &codec, const W &stored)
	{
		u32 field = codec.params[0] & 0xff;
		return codec.params[1] + (stored.at(0) & ((1u << 8 * field) - 1));
	}
	template <int N, class W>
	static INLINE u32 storedLength(const RowCodec &codec, const u8 *, const W &stored, const Tile<N> &)
	{
		u32 n = lengthOf(codec, stored);
		return n < codec.rowBytes ? n : 0;
	}

	// spread puts the lowest four fields of some bits, at most 8, in a byte each.
	static INLINE u32 spread(u32 x, u32 bits)
	{
		u32 two = (1u << 2 * bits) - 1, one = ((1u << bits) - 1) * 0x00010001;
		x = (x & two) | (x >> 2 * bits & two) << 16;
		return (x & one) | (x & one << bits) << (8 - bits);
	}

	// wordIn returns the 32 bits from a bit position on, or from there after some words, as bitsAt does where the row has them.
	template <class W> static INLINE u32 wordIn(const W &stored, u32 bit, u32 words = 0)
	{
		u32 x[5];
		stored.window(bit / 32 + words, x);
		return funnelWrap(x[0], x[1], bit);
	}

	// restsOf returns the rests of elements e to e + 3, which have four bits and are in a word: see docs/format/parts.md.
	template <class W> static INLINE u32 restsOf(const Plane &p, const W &stored, u32 e)
	{
		u32 x = wordIn(stored, p.restAt() + e / 8 * 32);
		x = funnelWrap(x, x, e & 4 ? 28 : 0);
		return p.rotate() && p.stride() == 1 ? (x << 1 & 0x0e0e0e0e) | (x >> 7 & 0x01010101) : x & 0x0f0f0f0f;
	}

	// passedOn has a bit for each digit that passes its element on.
	static INLINE u32 passedOn(u32 digits, u32 bits) { return bits == 2 ? digits & digits >> 1 & 0x55555555 : digits; }

	// addBytes adds bytes, each modulo 256.
	static INLINE u32 addBytes(u32 a, u32 b) { return ((a & 0x7f7f7f7f) + (b & 0x7f7f7f7f)) ^ ((a ^ b) & 0x80808080); }

	// places returns what all lanes of a tile have before each unit of the lane, and all of it. A unit has at most 16.
	template <int N, u32 K> static INLINE u32 places(u32 lanes, const u32 (&own)[K], u32 (&at)[K])
	{
		constexpr u32 FIELD = 32 / K, MASK = ~0u >> (32 - FIELD);
		u32 packed = 0, all = 0;
#pragma unroll
		for (u32 k = 0; k < K; k++)
			packed |= own[k] << FIELD * k;
		u32 sums = tileScan<N>(lanes, packed), last = tileFrom<N>(lanes, sums, N - 1);
		sums -= packed;
#pragma unroll
		for (u32 k = 0; k < K; k++) {
			at[k] = all + (sums >> FIELD * k & MASK);
			all += last >> FIELD * k & MASK;
		}
		return all;
	}

	// decodeSegment decodes the n elements of a coded plane from element from on, whose level 1 begins at bit pos, and returns where their
	// escapes end. It calls put(first element, elements, unit, bytes) for each unit of a live tile.
	template <int N, class W, class PUT>
	static INLINE u32 decodeSegment(const Plane &p, const u8 *meta, const W &stored, u32 lanes, u32 lane, bool live, u32 from, u32 n, u32 pos, const PUT &put)
	{
		constexpr u32 K = SEGMENT / (16 * N);
		const u32 shape = p.shape(), symbol = shape & 0xff, bits0 = shape >> 8 & 0xff, bits1 = shape >> 16;
		const u32 *table = (const u32 *)meta;
		const u32 *table0 = table + (bits0 == 2 ? 0 : 256), *table1 = table + (bits1 == 2 ? 0 : 256);
		const u32 four0 = lowBits(4 * bits0), four1 = lowBits(4 * bits1), rest = 8 - symbol;
		const u32 unit = n <= 4 * N ? 4 : 16, each = unit * N;
		// digitsOf has those of a unit in level 0, and laterOf those of its passed elements in level 1, from the place at on.
		auto digitsOf = [&](u32 first) {
			u32 have = first < n ? minimum(unit, n - first) : 0;
			return wordIn(stored, p.digitsAt() + (from + first) * bits0) & lowBits(have * bits0);
		};
		auto laterOf = [&](u32 at, u32 passed) { return wordIn(stored, pos + at * bits1) & lowBits(passed * bits1); };
		u32 own[K], at[K], behind[K]; // own: elements passed on, then escapes; at and behind: those before the unit
#pragma unroll
		for (u32 k = 0; k < K; k++)
			own[k] = live && k * each < n ? popcount(passedOn(digitsOf((k * N + lane) * unit), bits0)) : 0;
		u32 all = places<N, K>(lanes, own, at);
#pragma unroll
		for (u32 k = 0; k < K; k++)
			own[k] = k * each < n ? popcount(passedOn(laterOf(at[k], own[k]), bits1)) : 0;
		const u32 end = pos + all * bits1;
		all = places<N, K>(lanes, own, behind);
#pragma unroll
		for (u32 k = 0; k < K; k++)
			at[k] |= behind[k] << 16;
		// Not unrolled, lest the code be longer than what multiprocessors cache: the unit is always number 0.
#pragma unroll 1
		for (u32 first = lane * unit; live && first < n; first += each) {
			// Symbols of elements passed on, in their order: of level 1 and escapes.
			u32 x = digitsOf(first), passed = popcount(passedOn(x, bits0)), digits = laterOf(at[0] & 0xffff, passed);
			u32 z[4] = {0, 0, 0, 0}, bit = end + (at[0] >> 16) * symbol;
#pragma unroll
			for (u32 g = 0; g < 4; g++)
				if (4 * g < passed) {
					u32 entry = table1[digits & four1], more = entry >> 16, escaped = 0;
					digits >>= 4 * bits1;
					if (more != 0) {
						escaped = spread(wordIn(stored, bit), symbol) << rest;
						bit += (more >> 3) * symbol;
					}
					z[g] = permute(p.named1(), escaped, entry);
				}
			u32 bytes[4] = {0, 0, 0, 0};
			bit = p.restAt() + (from + first) * rest;
#pragma unroll
			for (u32 g = 0; g < 4; g++)
				if (4 * g < unit) {
					u32 entry = table0[x & four0];
					x >>= 4 * bits0;
					bytes[g] = permute(p.named0(), z[0], entry) |
						   (rest == 4 && (from + first + 4 * g | 7) < p.elements() ? restsOf(p, stored, from + first + 4 * g) : spread(wordIn(stored, bit + 4 * g * rest), rest));
#pragma unroll
					for (u32 i = 0; i + g < 3; i++)
						z[i] = funnel(z[i], z[i + 1], entry >> 16);
				}
			if (p.bases() != 0) {
				const u32 *bases = (const u32 *)(meta + p.bases() + from + first);
#pragma unroll
				for (u32 g = 0; g < 4; g++)
					if (4 * g < unit)
						bytes[g] = addBytes(bytes[g], bases[g]);
			}
			put(from + first, minimum(unit, n - first), bytes);
#pragma unroll
			for (u32 k = 1; k < K; k++)
				at[k - 1] = at[k];
		}
		return end + all * symbol;
	}

	// decodeQuads is decodeSegment for planes of kind QUADS, of which each lane has at most K units of 16 elements. It writes them to the row.
	template <int N, u32 K, class W>
	static INLINE u32 decodeQuads(const RowCodec &codec, const Plane &p, const u8 *meta, const W &stored, u32 lanes, u32 lane, bool live, u32 from, u32 n, u32 pos, u8 *row)
	{
		constexpr u32 SYMBOLS = 0x78787878, MAGNITUDES = 0x7f7f7f7f;
		// entryOf returns the entry of the table for four digits of x.
		auto entryOf = [&](u32 x, u32 g) { return *(const u32 *)(meta + ((g == 0 ? x << 2 : x >> (8 * g - 2)) & 0x3fc)); };
		const u32 units = live ? n / 16 : 0;
		u32 x[K], y[K], own[K], at[K]; // digits of level 0 and 1; elements passed on, then escapes; those before the unit
#pragma unroll
		for (u32 k = 0; k < K; k++) {
			u32 digits = wordIn(stored, p.digitsAt() + 2 * from, k * N + lane);
			x[k] = k * N + lane < units ? digits : 0;
			own[k] = popcount(passedOn(x[k], 2));
		}
		u32 all = places<N, K>(lanes, own, at);
#pragma unroll
		for (u32 k = 0; k < K; k++) {
			y[k] = wordIn(stored, pos + 2 * at[k]) & lowBits(2 * own[k]);
			own[k] = popcount(passedOn(y[k], 2));
		}
		const u32 end = pos + 2 * all;
		all = places<N, K>(lanes, own, at);
#pragma unroll 1
		for (u32 unit = lane; unit < units; unit += N) {
			u32 passed = popcount(passedOn(x[0], 2)), bit = end + 4 * at[0], w[5], z[4] = {0, 0, 0, 0};
			stored.window(bit / 32, w);
			u32 low8 = funnelWrap(w[0], w[1], bit), high8 = funnelWrap(w[1], w[2], bit); // escapes
#pragma unroll
			for (u32 g = 0; g < 4; g++)
				if (g < 2 || 4 * g < passed) {
					u32 entry = entryOf(y[0], g), two = permute(low8, 0, 0x1100);
					z[g] = permute(p.named1(), choose(0x00ff00ff, two << 3, two >> 1), entry);
					low8 = funnel(low8, high8, entry >> 17), high8 >>= entry >> 17;
				}
			bit = p.restAt() + 4 * from;
			stored.window(bit / 32 + 2 * unit, w);
			low8 = funnelWrap(w[0], w[1], bit), high8 = funnelWrap(w[1], w[2], bit); // rests
			u32 bytes[4] = {low8, funnelWrap(low8, low8, 28), high8, funnelWrap(high8, high8, 28)};
#pragma unroll
			for (u32 g = 0; g < 4; g++) {
				u32 entry = entryOf(x[0], g);
				bytes[g] = choose(SYMBOLS, permute(p.named0(), z[0], entry), bytes[g]);
#pragma unroll
				for (u32 i = 0; i + g < 3; i++)
					z[i] = funnel(z[i], z[i + 1], entry >> 16);
			}
			if (p.bases() != 0) {
				u32x4 bases = *(const u32x4 *)(meta + p.bases() + from + 16 * unit);
#pragma unroll
				for (u32 g = 0; g < 4; g++)
					bytes[g] = choose(MAGNITUDES, (bytes[g] & MAGNITUDES) + bases[g], bytes[g]);
			}
			u32 quad = (p.at() + from) / 16 + unit;
			storeQuad(row, quad, u32x4{bytes[0], bytes[1], bytes[2], bytes[3]}, 16 * quad + 16, codec.store);
#pragma unroll
			for (u32 k = 1; k < K; k++)
				x[k - 1] = x[k], y[k - 1] = y[k], at[k - 1] = at[k];
		}
		return end + 4 * all;
	}

	// decodeShort decodes a plane of kind SHORT. Each lane counts in the digits of all elements: that takes no scan.
	template <int N, class W> static INLINE u32 decodeShort(const Plane &p, const W &stored, u32 lane, bool live, u32 pos, u8 *row)
	{
		const u32 bits0 = p.shape() >> 8 & 0xff, bits1 = p.shape() >> 16, n = live ? p.elements() : 0;
		const u32 x = wordIn(stored, p.digitsAt()) & lowBits(n * bits0), passed = passedOn(x, bits0), all = popcount(passed);
		const u32 y = wordIn(stored, pos) & lowBits(all * bits1), escaped = passedOn(y, bits1), end = pos + all * bits1;
#pragma unroll 1
		for (u32 e = lane; e < n; e += N) {
			u32 value = permute(p.named0(), 0, x >> e * bits0 & lowBits(bits0));
			if (passed >> e * bits0 & 1) {
				u32 at = popcount(passed & lowBits(e * bits0)) * bits1;
				value = permute(p.named1(), 0, y >> at & lowBits(bits1));
				if (escaped >> at & 1)
					value = wordIn(stored, end + popcount(escaped & lowBits(at)) * 8);
			}
			row[p.at() + e] = (u8)value;
		}
		return end + popcount(escaped) * 8;
	}

	// storeBytes writes the lowest n bytes of x, at most 4, at byte at of a row.
	static INLINE void storeBytes(const RowCodec &codec, u8 *row, u32 at, u32 x, u32 n)
	{
		if (n == 4 && at % 4 == 0 && codec.store != STORE_1) {
			storeOut((u32 *)(row + at), x);
			return;
		}
#pragma unroll 1
		for (u32 i = 0; i < n; i++)
			row[at + i] = (u8)(x >> 8 * i);
	}

	// putBytes writes n elements, at most 16, of a part of bytes.
	static INLINE void putBytes(const RowCodec &codec, const Plane &p, u32 e, u32 n, u32 (&x)[4], u8 *row)
	{
		if (p.rotate())
#pragma unroll
			for (u32 g = 0; g < 4; g++)
				x[g] = (x[g] >> 1 & 0x7f7f7f7f) | (x[g] << 7 & 0x80808080);
		if (n == 16 && (p.at() + e) % 16 == 0) {
			storeQuad(row, (p.at() + e) / 16, u32x4{x[0], x[1], x[2], x[3]}, codec.rowBytes, codec.store);
			return;
		}
#pragma unroll 1
		for (u32 at = p.at() + e, end = at + n; at < end; at += 4) {
			storeBytes(codec, row, at, x[0], minimum(4, end - at));
			x[0] = x[1], x[1] = x[2], x[2] = x[3];
		}
	}

	// planeBytes returns the bytes of elements e to e + 3 of a plane, e being a multiple of 4. Coded planes are in the scratch memory.
	template <class W> static INLINE u32 planeBytes(const Plane &p, const W &stored, const u8 *scratch, u32 e)
	{
		if (p.kind() == CONSTANT)
			return p.value() * 0x01010101u;
		return p.kind() == CODED ? *(const u32 *)(scratch + p.first() + e) : bitsAt(stored, p.restAt() + 8 * e);
	}

	// joinPart writes a part of elements of several bytes whose planes begin at plane i.
	template <int N, class W>
	static INLINE void joinPart(const RowCodec &codec, const u8 *meta, u32 i, const Plane &p, const W &stored, const u8 *scratch, u32 lane, u8 *row)
	{
		u32 start = p.at() - p.byte();
#pragma unroll 1
		for (u32 e = 4 * lane; e < p.elements(); e += 4 * N) {
			u64 z[4] = {0, 0, 0, 0};
#pragma unroll 1
			for (u32 k = 0; k < p.stride(); k++) {
				u32 x = planeBytes(planeOf(meta, i + k), stored, scratch, e);
#pragma unroll
				for (u32 j = 0; j < 4; j++)
					z[j] |= (u64)(x >> 8 * j & 0xff) << 8 * k;
			}
#pragma unroll
			for (u32 j = 0; j < 4; j++)
				if (e + j < p.elements()) {
					u64 x = p.rotate() ? z[j] >> 1 | (z[j] & 1) << (8 * p.stride() - 1) : z[j];
					u32 at = start + (e + j) * p.stride();
					storeBytes(codec, row, at, (u32)x, minimum(4, p.stride()));
					if (p.stride() == 8)
						storeBytes(codec, row, at + 4, (u32)(x >> 32), 4);
				}
		}
	}

	// decodeBy is decode by tiles of which lanes, a bit each, go the same way. A row without a length is not written.
	template <int N, class W>
	static INLINE bool decodeBy(const RowCodec &codec, const u8 *meta, const W &stored, u32 length, u8 *scratch, u32 lanes, u32 lane, u8 *row)
	{
		const u32 planes = codec.params[0] >> 16;
		const bool live = length != 0 && lengthOf(codec, stored) == length;
		u32 pos = codec.params[2];
#pragma unroll 1
		for (u32 i = 0; i < planes; i++) {
			Plane p = planeOf(meta, i);
			if (p.kind() == CODED) {
				auto put = [&](u32 e, u32 n, u32(&x)[4]) {
					if (p.stride() == 1) {
						putBytes(codec, p, e, n, x, row);
						return;
					}
#pragma unroll
					for (u32 g = 0; g < 4; g++)
						if (4 * g < n)
							*(u32 *)(scratch + p.first() + e + 4 * g) = x[g];
				};
#pragma unroll 1
				for (u32 from = 0; from < p.elements(); from += SEGMENT)
					pos = decodeSegment<N>(p, meta, stored, lanes, lane, live, from, minimum(SEGMENT, p.elements() - from), pos, put);
			} else if (p.kind() == QUADS) {
				constexpr u32 UNITS = SEGMENT / (16 * N);
				if (UNITS > 2 && p.elements() <= 2 * 16 * N) {
					pos = decodeQuads<N, 2>(codec, p, meta, stored, lanes, lane, live, 0, p.elements(), pos, row);
					continue;
				}
#pragma unroll 1
				for (u32 from = 0; from < p.elements(); from += SEGMENT)
					pos = decodeQuads<N, UNITS>(codec, p, meta, stored, lanes, lane, live, from, minimum(SEGMENT, p.elements() - from), pos, row);
			} else if (p.kind() == SHORT) {
				pos = decodeShort<N>(p, stored, lane, live, pos, row);
			} else if (p.stride() == 1) {
#pragma unroll 1
				for (u32 e = 16 * lane; live && e < p.elements(); e += 16 * N) {
					u32 x[4];
#pragma unroll
					for (u32 g = 0; g < 4; g++)
						x[g] = planeBytes(p, stored, scratch, e + 4 * g);
					putBytes(codec, p, e, minimum(16, p.elements() - e), x, row);
				}
			}
			if (p.stride() > 1 && p.byte() == p.stride() - 1) {
				warpSync(lanes); // its planes are in the scratch memory
				if (live)
					joinPart<N>(codec, meta, i - p.byte(), p, stored, scratch, lane, row);
			}
		}
		warpSync(lanes); // the scratch memory is free
		return live && maximum(1, (pos + 7) / 8) == length;
	}

	template <int N, class W>
	static INLINE bool decode(const RowCodec &codec, const u8 *meta, const W &stored, u32 length, u8 *scratch, const Tile<N> &tile, u8 *row)
	{
		return decodeBy<N>(codec, meta, stored, length, scratch, tile.lanes, tile.lane, row);
	}
	static INLINE RowCodec plan(const RowCodec &codec, const u8 *, const u32 *) { return codec; }
	// decode is called by all lanes of a warp together; tiles without a row to decode have length 0.
	template <int N>
	static INLINE bool decode(const RowCodec &codec, const u8 *meta, const u32 *, const Words<SHARED> &stored, u32 length, u8 *scratch, const Tile<N> &tile, u8 *row)
	{
		return decodeBy<N>(codec, meta, stored, length, scratch, ~0u, tile.lane, row);
	}
};
