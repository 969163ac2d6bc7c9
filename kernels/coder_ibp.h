// KERNELS ibp4x3 IbpMask lanes=8 encode ROW_CHUNK=4 ROW_STEPS=3
// KERNELS ibp4x5 IbpMask lanes=8 encode ROW_CHUNK=4 ROW_STEPS=5
// KERNELS ibp8x4 IbpMask lanes=8 encode ROW_CHUNK=8 ROW_STEPS=4
// KERNELS ibp8x6 IbpMask lanes=8 encode ROW_CHUNK=8 ROW_STEPS=6
// KERNELS ibpc2 IbpSets lanes=8 encode ROW_CHUNK=2
// KERNELS ibpc4 IbpSets lanes=8 encode ROW_CHUNK=4
// KERNELS ibpc8 IbpSets lanes=8 encode ROW_CHUNK=8
//
// IBP: see docs/format/ibp.md. ROW_CHUNK is the chunk, in bytes.
//
// IbpMask is IBP with one mask, of chunks of 4 or 8 bytes. ROW_STEPS is the steps of expansion that the metadata have. Params: the chunks of
// a row; the bits of its payload when all chunks participate; and by how many distances bits of a chunk move when it is packed, at most, 0 if none does.
// Metadata: the blocks that ibp.h describes. Its hits, encoding and long misses have kernels of their own: decode_pairs.cu, decode_two.cu, encode_quads.cu and fetch_long.h.
//
// IbpSets is IBP of 2-byte chunks, and clustered IBP of 2, 4 or 8. Params: the chunks of a row, the bits of the set's number behind the
// participation bits (0 where there is one set), the sets, and the metadata of each. Metadata: 32 bits for each set, its kept bits, padded
// to 16 bytes; then for each set the blocks that ibp.h describes, of 4, 5 or 6 steps for chunks of 2, 4 or 8, or of 2-byte chunks those
// below.
#pragma once
#include "coder.h"
#include "encode.h"

#ifdef ROW_STEPS
struct IbpMask {
	static constexpr int LANES = 8, BLOCKS = 3, CHUNK = ROW_CHUNK, STEPS = ROW_STEPS;
	static constexpr bool SHARED_META = true, SMALL = true;
	using Blocks = Meta<SHARED, STEPS>;

	template <int N, class W>
	static INLINE u32 storedLength(const RowCodec &codec, const u8 *meta, const W &stored, const Tile<N> &tile)
	{
		return storedBytes(codec, tileExcess<CHUNK, N>(stored, Blocks{meta}, tile.lanes, tile.lane, 0, codec.quads));
	}

	template <int N, class W>
	static INLINE bool decode(const RowCodec &codec, const u8 *meta, const W &stored, u32 length, u8 *, const Tile<N> &tile, u8 *row)
	{
		u32 excess = tileDecode<CHUNK, STEPS, N>(codec, stored, stored, Blocks{meta}, tile.lanes, tile.lane, 0, codec.quads, 0, row);
		return storedBytes(codec, excess) == length;
	}
};
#else

// Meta2 are the blocks for chunks of 2 bytes: masked has 8 bytes a quad, one for each chunk.
struct Meta2 {
	static constexpr u32 BLOCK = 6 * 128 + 32 + 64;
	const u8 *p;
	INLINE const u8 *block(u32 quad) const { return p + quad / 8 * BLOCK; }
	INLINE u32x4 plane(u32 quad, u32 i) const { return *(const u32x4 *)(block(quad) + i * 128 + quad % 8 * 16); }
	INLINE u32 keptBefore(u32 quad) const { return *(const u32 *)(block(quad) + 768 + quad % 8 * 4); }
	INLINE u32x2 masked(u32 quad) const { return *(const u32x2 *)(block(quad) + 800 + quad % 8 * 8); }
};

// Two are the participation bits, or counts, of a quad's eight chunks, a byte each.
INLINE u32x2 bytesOf8(u32 bits) { return u32x2{bytesOf(bits & 15), bytesOf(bits >> 4 & 15)}; }
INLINE u32 excessOf(u32x2 masked, u32x2 part) { return byteSum(masked.x & ~part.x) + byteSum(masked.y & ~part.y); }

struct IbpSets {
	static constexpr int LANES = 8, BLOCKS = 3, STEPS = ROW_CHUNK == 2 ? 4 : ROW_CHUNK == 4 ? 5 : 6;

	// Set is a mask and bitval with what derives from them, and what the row's stored form begins with.
	struct Set {
		const u8 *p;
		u32 kept, before; // bits: kept when all chunks participate, and before the payload
		bool ok;
	};
	static INLINE Set setAt(const RowCodec &codec, const u8 *meta, u32 i)
	{
		u32 sets = codec.params[2];
		return Set{
			meta + ((sets * 4 + 15) & ~15u) + minimum(i, sets - 1) * codec.params[3], ((const u32 *)meta)[minimum(i, sets - 1)],
			codec.params[0] + codec.params[1], i < sets,
		};
	}
	template <class W> static INLINE Set setOf(const RowCodec &codec, const u8 *meta, const W &stored)
	{
		return setAt(codec, meta, bitsAt(stored, codec.params[0]) & ((1u << codec.params[1]) - 1));
	}
	static INLINE u32 lengthOf(const Set &set, u32 excess) { return set.ok ? (set.before + set.kept + excess + 7) / 8 : 0; }

#if ROW_CHUNK == 2
	template <class W> static INLINE u32x2 quadBits(const W &stored, u32 quad) { return bytesOf8(stored.at(quad / 4) >> quad % 4 * 8); }

	// expandQuad returns a quad, as ibp.h's does.
	template <class W> static INLINE u32x4 expandQuad(const W &stored, u32 at, const Meta2 &meta, u32 quad, u32x2 part, u32x2 masked)
	{
		u32 x[5], b[4];
		stored.window(at / 32, x);
#pragma unroll
		for (int i = 0; i < 4; i++)
			b[i] = funnelWrap(x[i], x[i + 1], at);
		u32x2 n = 0x10101010 - (masked & part);
		u32 y[4], in[4] = {permute(part.x, 0, 0x1100), permute(part.x, 0, 0x3322), permute(part.y, 0, 0x1100), permute(part.y, 0, 0x3322)};
#pragma unroll
		for (int i = 0; i < 4; i++) {
			u32 two = (i < 2 ? n.x : n.y) >> i % 2 * 16, first = two & 0xff, both = first + (two >> 8 & 0xff);
			y[i] = permute(b[0], i < 3 ? funnel(b[0], b[1], first) : b[0] >> first, 0x5410);
#pragma unroll
			for (int j = 0; j + i < 3; j++)
				b[j] = funnel(b[j], b[j + 1], both);
		}
		u32x4 z = {y[0], y[1], y[2], y[3]}, e = z, p = {in[0], in[1], in[2], in[3]};
#pragma unroll
		for (int i = STEPS - 1; i >= 0; i--)
			e ^= (e ^ e << (1 << i)) & meta.plane(quad, 2 + i);
		e = (e & ~meta.plane(quad, 0)) | meta.plane(quad, 1);
		return (z & ~p) | (e & p);
	}

	template <int N, class W>
	static INLINE u32 storedLength(const RowCodec &codec, const u8 *meta, const W &stored, const Tile<N> &tile)
	{
		Set set = setOf(codec, meta, stored);
		Meta2 m{set.p};
		u32 excess = 0;
		for (u32 quad = tile.lane; quad < codec.quads; quad += N)
			excess += excessOf(m.masked(quad), quadBits(stored, quad));
		return lengthOf(set, tile.sum(excess));
	}

	template <int N, class W>
	static INLINE bool decode(const RowCodec &codec, const u8 *meta, const W &stored, u32 length, u8 *, const Tile<N> &tile, u8 *row)
	{
		Set set = setOf(codec, meta, stored);
		Meta2 m{set.p};
		u32 excess = 0;
		for (u32 from = 0; from < codec.quads; from += N) {
			u32 quad = from + tile.lane, more = 0;
			bool in = quad < codec.quads;
			u32x2 part = {0, 0}, masked = {0, 0};
			if (in) {
				part = quadBits(stored, quad);
				masked = m.masked(quad);
				more = excessOf(masked, part);
			}
			u32 sum = tile.scan(more);
			if (in) {
				u32 at = set.before + m.keptBefore(quad) + excess + sum - more;
				storeQuad(row, quad, expandQuad(stored, at, m, quad, part, masked), codec.rowBytes, codec.store);
			}
			excess += tile.from(sum, N - 1);
		}
		return lengthOf(set, excess) == length;
	}

	using EncodeMeta = Meta2;
	static INLINE u32x2 participating(const Meta2 &m, u32 quad, u32x4 x)
	{
		u32x4 bad = (x & m.plane(quad, 0)) ^ m.plane(quad, 1);
		u32 bits = 0;
#pragma unroll
		for (int i = 0; i < 4; i++)
			bits |= ((bad[i] & 0xffff) == 0 ? 1u : 0) << (2 * i) | (bad[i] >> 16 == 0 ? 2u : 0) << (2 * i);
		return bytesOf8(bits);
	}
	static INLINE u32 excessIn(const Meta2 &m, u32 quad, u32x4 x) { return excessOf(m.masked(quad), participating(m, quad, x)); }

	// put sets a quad's kept and participation bits.
	static INLINE void put(const RowCodec &codec, const Meta2 &m, u32 *out, u32 bit, u32 quad, u32x4 x)
	{
		u32x2 part = participating(m, quad, x), masked = m.masked(quad);
		u32x4 y = x & ~m.plane(quad, 0);
#pragma unroll
		for (int i = 0; i < STEPS; i++) {
			u32x4 t = y & m.plane(quad, 2 + i);
			y = (y ^ t) | t >> (1 << i);
		}
		u32 on = 0, chunks = codec.params[0] - quad * 8;
#pragma unroll
		for (u32 c = 0; c < 8; c++)
			if (c < chunks) {
				u32 of = c < 4 ? part.x : part.y, less = c < 4 ? masked.x : masked.y;
				bool in = of >> c % 4 * 8 & 1;
				u32 n = 16 - (in ? less >> c % 4 * 8 & 0xff : 0);
				on |= (u32)in << c;
				putBits(out, bit, (in ? y[c / 2] : x[c / 2]) >> c % 2 * 16 & 0xffff, n);
				bit += n;
			}
		atomicOrShared(out + quad / 4, on << quad % 4 * 8);
	}
#else
	// plain returns the codec as the decoder of one set takes it.
	static INLINE RowCodec plain(const RowCodec &codec, const Set &set)
	{
		RowCodec c = codec;
		c.params[0] = set.before;
		c.params[1] = set.kept;
		return c;
	}

	template <int N, class W>
	static INLINE u32 storedLength(const RowCodec &codec, const u8 *meta, const W &stored, const Tile<N> &tile)
	{
		Set set = setOf(codec, meta, stored);
		Meta<SHARED, STEPS> m{set.p};
		return lengthOf(set, tileExcess<ROW_CHUNK, N>(stored, m, tile.lanes, tile.lane, 0, codec.quads));
	}

	template <int N, class W>
	static INLINE bool decode(const RowCodec &codec, const u8 *meta, const W &stored, u32 length, u8 *, const Tile<N> &tile, u8 *row)
	{
		Set set = setOf(codec, meta, stored);
		Meta<SHARED, STEPS> m{set.p};
		u32 excess = tileDecode<ROW_CHUNK, STEPS, N>(plain(codec, set), stored, stored, m, tile.lanes, tile.lane, 0, codec.quads, 0, row);
		return lengthOf(set, excess) == length;
	}

	using EncodeMeta = Meta<SHARED, STEPS>;
	static INLINE u32 excessIn(const EncodeMeta &m, u32 quad, u32x4 x)
	{
		return byteSum(m.masked(quad) & ~participation<ROW_CHUNK>(x, m.plane(quad, 0), m.plane(quad, 1)));
	}
	static INLINE void put(const RowCodec &codec, const EncodeMeta &m, u32 *out, u32 bit, u32 quad, u32x4 x)
	{
		u32 part, masked = m.masked(quad);
		u32x4 y = packQuad<ROW_CHUNK, STEPS>(m, quad, x, part);
		putQuad<ROW_CHUNK>(out, bit, out, quad, codec.params[0] - quad * (16 / ROW_CHUNK), x, y, part, masked);
	}
#endif

	// encode stores the row by the set that makes it shortest, the first of several.
	static INLINE u32 encode(const RowCodec &codec, const u8 *meta, const u32 *words, u32 *out, u32 room, u8 *, const Tile<32> &tile)
	{
		u32 best = 0, bits = ~0u;
		for (u32 i = 0; i < codec.params[2]; i++) {
			Set set = setAt(codec, meta, i);
			EncodeMeta m{set.p};
			u32 excess = 0;
			for (u32 quad = tile.lane; quad < codec.quads; quad += 32)
				excess += excessIn(m, quad, rowQuad(words, quad, codec.rowBytes));
			u32 n = set.before + set.kept + tile.sum(excess);
			if (n < bits)
				best = i, bits = n;
		}
		if ((bits + 7) / 8 >= codec.rowBytes)
			return codec.rowBytes;
		Set set = setAt(codec, meta, best);
		EncodeMeta m{set.p};
		if (tile.lane == 0)
			putBits(out, codec.params[0], best, codec.params[1]);
		u32 excess = 0;
		for (u32 from = 0; from < codec.quads; from += 32) {
			u32 quad = from + tile.lane, more = 0;
			bool in = quad < codec.quads;
			u32x4 x = {0, 0, 0, 0};
			if (in) {
				x = rowQuad(words, quad, codec.rowBytes);
				more = excessIn(m, quad, x);
			}
			u32 sum = tile.scan(more);
			if (in)
				put(codec, m, out, set.before + m.keptBefore(quad) + excess + sum - more, quad, x);
			excess += tile.from(sum, 31);
		}
		return (bits + 7) / 8;
	}
};
#endif
