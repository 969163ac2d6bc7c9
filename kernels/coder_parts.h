// KERNELS parts PartsCoder lanes=8 quads=8 fill one=1024 ROW_ELEMENT=1
//
// quads, fill and one are those of zipnn, whose decoders also have a lane for each half of a region; no GPU has measured others here.
//
// Rows of parts of different types: see docs/format/parts.md. ROW_ELEMENT says which pooled kernels there are: those of float8 values with
// scales.
//
// Params: regions, the length of a field << 8 and planes << 16; blocks of symbols; bytes before the codes. Metadata: 8
// words for each plane: number of its first symbol; elements; the table's first word; kind, bits of a symbol << 8, constant value << 16 and
// bits of a table's index << 24; bit position of the rests; byte of the row at which it begins; bytes of an element, rotation << 8; 0. Then
// tables, by the next bits, the first being the lowest: codec/parts/codec.go, type entry.
//
// A lane decodes the symbols of half a region, upwards from its first bit or downwards from its last, to bytes in the scratch memory. Then all
// lanes put symbols and rests together.
#pragma once
#include "coder.h"

struct PartsCoder {
	static constexpr int LANES = 8, BLOCKS = 3;
	static constexpr u32 BLOCK = 4, RAW = 0, CONSTANT = 1, CODED = 2, WORDS = 8;

	struct Plane {
		u32 first, elements, table, kind, symbol, value, limit, restAt, at, stride, rotate;
		INLINE u32 rest() const { return kind == CODED ? 8 - symbol : 8; }
	};
	static INLINE Plane planeOf(const u8 *meta, u32 i)
	{
		const u32x4 *w = (const u32x4 *)meta + 2 * i;
		u32x4 a = w[0], b = w[1];
		return Plane{a.x, a.y, a.z, a.w & 0xff, a.w >> 8 & 0xff, a.w >> 16 & 0xff, a.w >> 24, b.x, b.y, b.z & 0xff, b.z >> 8};
	}

	struct Shape {
		u32 regions, field, planes, blocks, codes; // codes: the bytes before them
	};
	static INLINE Shape shapeOf(const RowCodec &codec)
	{
		u32 x = codec.params[0];
		return Shape{x & 0xff, x >> 8 & 0xff, x >> 16, codec.params[1], codec.params[2]};
	}

	// bytesBefore returns the bytes of the codes of the regions before one.
	template <class W> static INLINE u32 bytesBefore(const Shape &s, const W &stored, u32 region)
	{
		u32 n = 0;
#pragma unroll 1
		for (u32 g = 0; g < region; g++)
			n += bitsAt(stored, 8 * s.field * g) & (s.field == 1 ? 0xff : 0xffff);
		return n;
	}

	template <int N, class W>
	static INLINE u32 storedLength(const RowCodec &codec, const u8 *meta, const W &stored, const Tile<N> &)
	{
		Shape s = shapeOf(codec);
		u32 n = s.codes + bytesBefore(s, stored, s.regions);
		return n < codec.rowBytes ? n : 0;
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

	// spread puts the lowest four fields of some bits, at most 8, in a byte each.
	static INLINE u32 spread(u32 x, u32 bits)
	{
		u32 two = (1u << 2 * bits) - 1, one = ((1u << bits) - 1) * 0x00010001;
		x = (x & two) | (x >> 2 * bits & two) << 16;
		return (x & one) | (x & one << bits) << (8 - bits);
	}

	// Out gathers symbols, and writes whole words of them.
	struct Out {
		u32 *to;
		u64 pending;
		u32 bytes;
		INLINE void put(u32 symbols, u32 n)
		{
			pending |= (u64)symbols << 8 * bytes;
			bytes += n;
			if (bytes >= 4) {
				*to++ = (u32)pending;
				pending >>= 32;
				bytes -= 4;
			}
		}
	};

	// decodePlane decodes the symbols from e to to of a plane at bit position at, which it moves on.
	template <class W>
	static INLINE void decodePlane(const Plane &p, const u8 *meta, const W &stored, u8 *scratch, u32 e, u32 to, u32 &at, bool down)
	{
		const u32 *table = (const u32 *)meta + p.table;
		u32 index = (1u << p.limit) - 1, low = (1u << p.symbol) - 1;
		Out out{(u32 *)(scratch + e), 0, 0};
#pragma unroll 1
		while (e < to) {
			u32 x = window(stored, at, down), a = table[x & index], n = a >> 20 & 7, symbols, bits;
			if (n == 0) { // an escape
				u32 first = a >> 27, value = x >> first;
				symbols = down ? __builtin_bitreverse32(value) >> (32 - p.symbol) : value & low;
				bits = first + p.symbol, n = 1;
			} else if (e + 2 * BLOCK <= to) {
				bits = a >> 23 & 15;
				u32 b = table[x >> bits & index]; // of none if an escape is next
				out.put(spread(a & 0xfffff, p.symbol), n);
				e += n;
				symbols = spread(b & 0xfffff, p.symbol), n = b >> 20 & 7;
				bits += b >> 23 & 15;
			} else { // the last ones, one by one
				symbols = a & low, bits = a >> 27, n = 1;
			}
			out.put(symbols, n);
			e += n;
			at = moved(at, bits, down);
		}
		if (out.bytes != 0)
			*out.to = (u32)out.pending;
	}

	// planeBytes returns the bytes of elements e to e + 3 of a plane, e being a multiple of 4.
	template <class W> static INLINE u32 planeBytes(const Plane &p, const W &stored, const u8 *scratch, u32 e)
	{
		if (p.kind == CONSTANT)
			return p.value * 0x01010101u;
		u32 bits = p.rest(), x = 0;
		if (bits != 0)
			x = spread(bitsAt(stored, p.restAt + e * bits), bits);
		if (p.kind == CODED)
			x |= *(const u32 *)(scratch + p.first + e) << bits;
		return x;
	}

	// joinBytes returns four elements of a part of bytes.
	template <class W> static INLINE u32 joinBytes(const Plane &p, const W &stored, const u8 *scratch, u32 e)
	{
		u32 x = planeBytes(p, stored, scratch, e);
		return p.rotate ? (x >> 1 & 0x7f7f7f7f) | (x << 7 & 0x80808080) : x;
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

	// joinPart writes a part whose planes begin at plane i.
	template <int N, class W>
	static INLINE void joinPart(const RowCodec &codec, const u8 *meta, u32 i, const Plane &p, const W &stored, const u8 *scratch, const Tile<N> &tile, u8 *row)
	{
		u32 from = 0;
		if (p.stride == 1) {
			if (p.at % 16 == 0) {
				from = p.elements & ~15u;
#pragma unroll 1
				for (u32 e = 16 * tile.lane; e < from; e += 16 * N) {
					u32 y[4];
#pragma unroll
					for (u32 k = 0; k < 4; k++)
						y[k] = joinBytes(p, stored, scratch, e + 4 * k);
					storeQuad(row, (p.at + e) / 16, u32x4{y[0], y[1], y[2], y[3]}, codec.rowBytes, codec.store);
				}
			}
#pragma unroll 1
			for (u32 e = from + 4 * tile.lane; e < p.elements; e += 4 * N)
				storeBytes(codec, row, p.at + e, joinBytes(p, stored, scratch, e), minimum(4, p.elements - e));
			return;
		}
#pragma unroll 1
		for (u32 e = 4 * tile.lane; e < p.elements; e += 4 * N) {
			u64 z[4] = {0, 0, 0, 0};
#pragma unroll 1
			for (u32 k = 0; k < p.stride; k++) {
				u32 x = planeBytes(planeOf(meta, i + k), stored, scratch, e);
#pragma unroll
				for (u32 j = 0; j < 4; j++)
					z[j] |= (u64)(x >> 8 * j & 0xff) << 8 * k;
			}
#pragma unroll
			for (u32 j = 0; j < 4; j++)
				if (e + j < p.elements) {
					u64 x = p.rotate ? z[j] >> 1 | (z[j] & 1) << (8 * p.stride - 1) : z[j];
					u32 at = p.at + (e + j) * p.stride;
					storeBytes(codec, row, at, (u32)x, minimum(4, p.stride));
					if (p.stride == 8)
						storeBytes(codec, row, at + 4, (u32)(x >> 32), 4);
				}
		}
	}

	template <int N, class W>
	static INLINE bool decode(const RowCodec &codec, const u8 *meta, const W &stored, u32 length, u8 *scratch, const Tile<N> &tile, u8 *row)
	{
		Shape s = shapeOf(codec);
		if (length == 0 || storedLength(codec, meta, stored, tile) != length)
			return false;
		bool ok = true;
#pragma unroll 1
		for (u32 from = 0; from < 2 * s.regions; from += N) {
			u32 half = from + tile.lane, region = half / 2, at = 0;
			bool in = region < s.regions, down = half & 1;
			if (in) {
				at = 8 * (s.codes + bytesBefore(s, stored, region + down));
				u32 first = region * s.blocks / s.regions, end = (region + 1) * s.blocks / s.regions, middle = (first + end + 1) / 2;
				u32 begin = BLOCK * (down ? middle : first), to = BLOCK * (down ? end : middle);
#pragma unroll 1
				for (u32 i = 0; i < s.planes; i++) {
					Plane p = planeOf(meta, i);
					if (p.kind == CODED)
						decodePlane(p, meta, stored, scratch, maximum(begin, p.first), minimum(to, p.first + p.elements), at, down);
				}
			}
			// The decoders of a region must have met, within a byte.
			u32 other = tile.from(at, tile.lane ^ 1);
			ok = ok && (!in || (down ? at - other : other - at) < 8);
		}
		ok = tile.vote(!ok) == 0;
		tile.sync(); // the scratch memory is written
#pragma unroll 1
		for (u32 i = 0; i < s.planes;) {
			Plane p = planeOf(meta, i);
			joinPart(codec, meta, i, p, stored, scratch, tile, row);
			i += p.stride;
		}
		tile.sync(); // and free
		return ok;
	}
};
