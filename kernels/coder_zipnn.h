// KERNELS zipnn1 ZipnnCoder lanes=8 ROW_ELEMENT=1
// KERNELS zipnn2 ZipnnCoder lanes=8 ROW_ELEMENT=2
// KERNELS zipnn4 ZipnnCoder lanes=8 ROW_ELEMENT=4
// KERNELS zipnn8 ZipnnCoder lanes=8 ROW_ELEMENT=8
//
// quads, fill and alone: only as many lanes decode as a row has halves of regions, about one for 256 bytes; all put the bytes together.
// Measured on an H200, float32, as a share of the plain gather: 8 quads 0.69 to 0.72, 0.76 and 0.78 at 512, 1024 and 4096 bytes, 4 quads
// 0.73 and 0.66 at the first two, 16 quads 0.36 at the last; whole blocks instead of fill 0.58 and 0.61 at 1024 and 4096 bytes. alone: see
// docs/notebook/hits.md, Long rows without prefetching.
//
// ZipNN: see docs/format/zipnn.md. ROW_ELEMENT is the bytes of an element: 1, 2, 4 or 8.
//
// Params: the row's elements; exponent bits, the length of a field << 8, regions << 16 and the coded planes << 24; the planes'
// kinds, two bits each, lowest first: 0 raw, 1 constant, 2 coded; and the bytes before the code bits, raw planes << 16. Metadata:
// the planes' constant values, a byte each, padded to 8; 2^32 / regions, rounded up, 0 if that is 1; padded to 16. Then tables by the next
// 12 bits, the first being the lowest. For each coded plane, lowest first, 16 bits: length << 9 | symbol. Of an only coded plane
// instead 32 bits, of up to two values: codec/zipnn/device.go.
//
// A lane decodes half a region: upwards from its first bit, or downwards from its last. Rows below LONG_ROW are decoded to bytes in
// the scratch memory, plane by plane, and put together by quads; of longer ones each lane writes its elements.
#pragma once
#include "coder.h"

struct ZipnnCoder {
	static constexpr int LANES = 8, BLOCKS = 3;
	static constexpr u32 EACH = 16 / ROW_ELEMENT, TABLE = 4096, ESCAPE = 256, ESCAPES = 1 << 28;
	static constexpr u32 RAW = 0, CONSTANT = 1, CODED = 2;
	static constexpr u32 FLOATS = CODED << 2 * (ROW_ELEMENT - 1); // kinds of most floats' planes: raw but the highest

	struct Shape {
		u32 elements, exponent, field, regions, coded, kinds, head, raw, tail, stride, inverse;
		const u8 *values;
		const u8 *tables;
		INLINE u32 kind(u32 plane) const { return kinds >> 2 * plane & 3; }
		// rawBytes is the bytes behind the code bits.
		INLINE u32 rawBytes() const { return raw * elements + tail; }
		// first is the first element of a region: region * elements / regions.
		INLINE u32 first(u32 region) const { return region == regions ? elements : (u32)((u64)(region * elements) * inverse >> 32); }
	};
	static INLINE Shape shapeOf(const RowCodec &codec, const u8 *meta)
	{
		Shape s;
		s.elements = codec.params[0];
		s.exponent = codec.params[1] & 0xff, s.field = codec.params[1] >> 8 & 0xff, s.regions = codec.params[1] >> 16 & 0xff;
		s.coded = codec.params[1] >> 24, s.kinds = codec.params[2], s.head = codec.params[3] & 0xffff, s.raw = codec.params[3] >> 16;
		s.tail = codec.rowBytes - s.elements * ROW_ELEMENT;
		s.stride = (s.elements + 15) & ~15u;
		s.values = meta;
		s.inverse = *(const u32 *)(meta + 8);
		s.tables = meta + 16;
		return s;
	}

	template <class W> static INLINE u32 numberAt(const Shape &s, const W &stored, u32 i)
	{
		return bitsAt(stored, 8 * s.field * i) & (s.field == 2 ? 0xffff : 0xffffff);
	}

	// codeBits is the number of a row's code bits, and lengthOf the row's length that follows from it, 0 if there is none.
	template <class W> static INLINE u32 codeBits(const Shape &s, const W &stored) { return s.coded == 0 ? 0 : numberAt(s, stored, 0); }
	static INLINE u32 lengthOf(const RowCodec &codec, const Shape &s, u32 bits)
	{
		u32 n = s.head + (bits + 7) / 8 + s.rawBytes();
		return n < codec.rowBytes ? n : 0;
	}

	template <int N, class W>
	static INLINE u32 storedLength(const RowCodec &codec, const u8 *meta, const W &stored, const Tile<N> &)
	{
		Shape s = shapeOf(codec, meta);
		return lengthOf(codec, s, codeBits(s, stored));
	}

	// load reads a word of the row, limit + 4 at most.
	template <Space SPACE> static INLINE u32 load(const Words<SPACE> &stored, u32 w)
	{
		return SPACE == GLOBAL ? loadConst(stored.p + w) : stored.p[w];
	}
	template <class W> static INLINE u32 load(const W &stored, u32 w) { return stored.load(w); }

	// window returns the next 32 bits from bit position at on, upwards or downwards, the first being the lowest.
	template <class W> static INLINE u32 window(const W &stored, u32 at, bool down)
	{
		u32 high = minimum(at / 32 + !down, stored.limit + 1), low = maximum(high, 1) - 1;
		u32 x = funnelWrap(load(stored, low), load(stored, high), at);
		return down ? __builtin_bitreverse32(x) : x;
	}
	static INLINE u32 moved(u32 at, u32 bits, bool down) { return down ? at - bits : at + bits; }

	// next decodes a value of a coded plane at bit position at, which it moves on.
	template <class W> static INLINE u32 next(const Shape &s, const W &stored, u32 coded, u32 &at, bool down)
	{
		u32 x = window(stored, at, down), length, value;
		bool escape;
		if (s.coded == 1) {
			u32 entry = ((const u32 *)s.tables)[x & (TABLE - 1)];
			length = entry >> 24 & 15, value = entry >> 8, escape = entry & ESCAPES;
		} else {
			u32 entry = ((const u16 *)s.tables)[coded * TABLE + (x & (TABLE - 1))];
			length = entry >> 9, value = entry, escape = entry & ESCAPE;
		}
		if (escape) {
			value = x >> length;
			length += 8;
			if (down)
				value = __builtin_bitreverse32(value) >> 24;
		}
		at = moved(at, length, down);
		return value & 0xff;
	}

	// decodePairs decodes the values of the only coded plane of elements from e to to.
	template <class W>
	static INLINE void decodePairs(const Shape &s, const W &stored, u8 *decoded, u32 e, u32 to, u32 &at, bool down)
	{
		const u32 *table = (const u32 *)s.tables;
#pragma unroll 1
		while (e + 4 <= to) { // what a look-up has less than two values of is written over
			u32 x = window(stored, at, down);
			u32 a = table[x & (TABLE - 1)];
			x = funnelWrap(x, 0, a);
			u32 b = table[x & (TABLE - 1)];
			decoded[e] = (u8)(a >> 8);
			decoded[e + 1] = (u8)(a >> 16);
			e += a >> 30;
			decoded[e] = (u8)(b >> 8);
			decoded[e + 1] = (u8)(b >> 16);
			e += b >> 30;
			at = moved(at, (a + b) & 0xff, down);
			if (b & ESCAPES) // or a
				decoded[e++] = (u8)next(s, stored, 0, at, down);
		}
#pragma unroll 1
		for (; e < to; e++)
			decoded[e] = (u8)next(s, stored, 0, at, down);
	}

	// reorder is the inverse of bringing the exponent to the top.
	static INLINE u64 reorder(const Shape &s, u64 x)
	{
		constexpr u32 width = 8 * ROW_ELEMENT;
		u64 low = ((u64)1 << (width - 1 - s.exponent)) - 1, sign = (u64)1 << (width - 1), exponent = (sign - 1) & ~low;
		if (width == 16) // two elements
			low |= low << 16, sign |= sign << 16, exponent |= exponent << 16;
		if (width == 8)
			return x;
		return (x >> 1 & exponent) | (x << s.exponent & sign) | (x & low);
	}

	// planeBytes returns EACH bytes of a plane from element first on, a multiple of EACH, four a word.
	template <class W>
	static INLINE void planeBytes(const Shape &s, const W &stored, u32 payload, u32 plane, const u8 *decoded, u32 first, u32 (&x)[4])
	{
		u32 kind = s.kind(plane);
		u32 of = 0; // the planes before that are as this
#pragma unroll
		for (u32 p = 0; p < ROW_ELEMENT; p++)
			of += p < plane && s.kind(p) == kind;
		u32 begin = payload + of * s.elements; // raw planes lie within the stored length
#pragma unroll
		for (u32 i = 0; i < (EACH + 3) / 4; i++) {
			if (kind == CONSTANT)
				x[i] = s.values[plane] * 0x01010101u;
			else if (kind != RAW)
				x[i] = EACH >= 4 ? *(const u32 *)(decoded + of * s.stride + first + 4 * i) : *(const u16 *)(decoded + of * s.stride + first);
			else if (EACH >= 4)
				x[i] = funnelWrap(load(stored, begin / 4 + first / 4 + i), load(stored, begin / 4 + first / 4 + i + 1), 8 * begin);
			else
				x[i] = bitsAt(stored, 8 * (begin + first));
		}
	}

	// joinQuad returns the elements from first on, in row order.
	template <class W> static INLINE u32x4 joinQuad(const Shape &s, const W &stored, u32 payload, const u8 *decoded, u32 first)
	{
		u32 y[4], p[ROW_ELEMENT][4];
#pragma unroll
		for (u32 i = 0; i < ROW_ELEMENT; i++)
			planeBytes(s, stored, payload, i, decoded, first, p[i]);
#if ROW_ELEMENT == 1
#pragma unroll
		for (int i = 0; i < 4; i++)
			y[i] = p[0][i];
#elif ROW_ELEMENT == 8
		u32 two[4];
#pragma unroll
		for (int i = 0; i < 4; i++)
			two[i] = permute(p[2 * i][0], p[2 * i + 1][0], 0x5140);
#pragma unroll
		for (int i = 0; i < 2; i++) {
			u32 pick = i == 0 ? 0x5410 : 0x7632;
			u64 z = reorder(s, (u64)permute(two[2], two[3], pick) << 32 | permute(two[0], two[1], pick));
			y[2 * i] = (u32)z, y[2 * i + 1] = (u32)(z >> 32);
		}
#else
		constexpr u32 top = ROW_ELEMENT - 1;
		if (s.exponent == 8) // a plane: four elements at once
#pragma unroll
			for (u32 i = 0; i < EACH / 4; i++) {
				u32 exponents = p[top][i], rest = p[top - 1][i];
				p[top][i] = (exponents >> 1 & 0x7f7f7f7f) | (rest & 0x80808080);
				p[top - 1][i] = (exponents << 7 & 0x80808080) | (rest & 0x7f7f7f7f);
			}
#if ROW_ELEMENT == 2
#pragma unroll
		for (int i = 0; i < 4; i++)
			y[i] = permute(p[0][i / 2], p[1][i / 2], i & 1 ? 0x7362 : 0x5140);
#else
#pragma unroll
		for (int i = 0; i < 2; i++) {
			u32 low = permute(p[0][0], p[1][0], i == 0 ? 0x5140 : 0x7362), high = permute(p[2][0], p[3][0], i == 0 ? 0x5140 : 0x7362);
			y[2 * i] = permute(low, high, 0x5410);
			y[2 * i + 1] = permute(low, high, 0x7632);
		}
#endif
		if (s.exponent != 8 && s.exponent != 0)
#pragma unroll
			for (int i = 0; i < 4; i++)
				y[i] = (u32)reorder(s, y[i]);
#endif
		return u32x4{y[0], y[1], y[2], y[3]};
	}

	// joinRow writes a row's whole elements.
	template <int N, class W>
	static INLINE void joinRow(const RowCodec &codec, const Shape &s, const W &stored, u32 payload, const u8 *decoded, const Tile<N> &tile, u8 *row)
	{
#pragma unroll 1
		for (u32 first = tile.lane * EACH; first < s.elements; first += N * EACH)
			storeQuad(row, first / EACH, joinQuad(s, stored, payload, decoded, first), codec.rowBytes, codec.store);
	}

	// storeElement writes element i.
	static INLINE void storeElement(const RowCodec &codec, u8 *row, u32 i, u64 x)
	{
		if (ROW_ELEMENT == 1)
			row[i] = (u8)x;
		else if (ROW_ELEMENT == 2)
			storeHalf(codec, row, i, (u32)x);
		else if (ROW_ELEMENT == 4)
			storeWord(codec, row, i, (u32)x);
		else
			storeDouble(codec, row, i, x);
	}

	// decodeDirect decodes and writes elements from e to to, a lane by itself.
	template <class W>
	static INLINE void decodeDirect(const RowCodec &codec, const Shape &s, const W &stored, u32 payload, u32 e, u32 to, u32 &at, bool down,
					u8 *row)
	{
#pragma unroll 1
		for (; e < to; e++) {
			u64 x = 0;
			u32 coded = 0, raw = 0;
#pragma unroll 1
			for (u32 p = 0; p < ROW_ELEMENT; p++) {
				u32 kind = s.kind(p), value;
				if (kind == RAW)
					value = bitsAt(stored, 8 * (payload + raw++ * s.elements + e)) & 0xff;
				else if (kind == CONSTANT)
					value = s.values[p];
				else
					value = next(s, stored, coded++, at, down);
				x |= (u64)value << 8 * p;
			}
			storeElement(codec, row, e, reorder(s, x));
		}
	}

	template <int N, class W>
	static INLINE bool decode(const RowCodec &codec, const u8 *meta, const W &stored, u32 length, u8 *scratch, const Tile<N> &tile, u8 *row)
	{
		Shape s = shapeOf(codec, meta);
		u32 bits = codeBits(s, stored), start = 8 * s.head, payload = s.head + (bits + 7) / 8;
		if (lengthOf(codec, s, bits) != length || length == 0)
			return false;
		bool direct = codec.rowBytes >= LONG_ROW, ok = true;
		u32 halves = direct || s.coded != 0 ? 2 * s.regions : 0;
#pragma unroll 1
		for (u32 from = 0; from < halves; from += N) {
			u32 half = from + tile.lane, at = 0, region = half / 2;
			bool in = half < halves, down = half & 1;
			if (in) {
				u32 begin = region == 0 || s.coded == 0 ? 0 : numberAt(s, stored, region);
				u32 end = region + 1 == s.regions || s.coded == 0 ? bits : numberAt(s, stored, region + 1);
				ok = ok && begin <= end && end <= bits;
				u32 first = s.first(region), last = s.first(region + 1), middle = (first + last + 1) / 2;
				at = start + (down ? end : begin);
				u32 from = down ? middle : first, to = down ? last : middle;
				if (direct)
					decodeDirect(codec, s, stored, payload, from, to, at, down, row);
				else if (s.coded == 1)
					decodePairs(s, stored, scratch, from, to, at, down);
				else
#pragma unroll 1
					for (u32 e = from; e < to; e++)
#pragma unroll 1
						for (u32 p = 0; p < s.coded; p++)
							scratch[p * s.stride + e] = (u8)next(s, stored, p, at, down);
			}
			// The decoders of a region must have met.
			u32 other = tile.from(at, tile.lane ^ 1);
			ok = ok && (!in || at == other);
		}
		ok = tile.vote(!ok) == 0;
		tile.sync(); // the scratch memory is written
		if (!direct && s.kinds == FLOATS && s.exponent == (ROW_ELEMENT == 2 || ROW_ELEMENT == 4 ? 8 : 0)) {
			Shape floats = s; // of known planes
			floats.kinds = FLOATS, floats.exponent = ROW_ELEMENT == 2 || ROW_ELEMENT == 4 ? 8 : 0;
			joinRow(codec, floats, stored, payload, scratch, tile, row);
		} else if (!direct) {
			joinRow(codec, s, stored, payload, scratch, tile, row);
		}
		tile.sync(); // the last quad's lane wrote over the tail bytes
		if (tile.lane < s.tail)
			row[s.elements * ROW_ELEMENT + tile.lane] = (u8)bitsAt(stored, 8 * (length - s.tail + tile.lane));
		return ok;
	}
};
