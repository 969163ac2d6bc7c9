// The decoder of rows as IBP stores them, by tiles of lanes. See docs/format/ibp.md for the device metadata.
//
// A lane decodes quads: four 4-byte chunks or two 8-byte chunks, which have at most 128 bits of payload. The lane reads them as a window of
// five words at the quad's bit position. The metadata give the bit position for rows all of whose chunks participate. Each chunk before the
// quad that does not participate takes as many bits more as its mask has ones: these bits are the excess. A scan over the tile sums the
// excess, of two quads a lane at once.
//
// A row whose payload does not end at the stored length is corrupt.
#pragma once
#include "words.h"

// Planes are the metadata by which a quad is expanded.
template <int STEPS> struct Planes {
	u32x4 mask, val, moves[STEPS ? STEPS : 1];
};

// Meta is IBP's device metadata for one mask: see docs/format/ibp.md.
template <Space SPACE, int STEPS> struct Meta {
	static constexpr u32 BLOCK = (2 + STEPS) * 128 + 64;
	const u8 *p;
	INLINE u32x4 plane(u32 quad, u32 i) const
	{
		const u32x4 *q = (const u32x4 *)(p + (quad / 8) * BLOCK + i * 128 + (quad % 8) * 16);
		return SPACE == GLOBAL ? loadConst(q) : *q;
	}
	INLINE u32 word(u32 quad, u32 i) const
	{
		const u32 *q = (const u32 *)(p + (quad / 8) * BLOCK + (2 + STEPS) * 128 + i * 32 + (quad % 8) * 4);
		return SPACE == GLOBAL ? loadConst(q) : *q;
	}
	// planes returns a quad's planes with the first N of the moves.
	template <int N = STEPS> INLINE Planes<N> planes(u32 quad) const
	{
		Planes<N> x;
		x.mask = plane(quad, 0), x.val = plane(quad, 1);
#pragma unroll
		for (int i = 0; i < N; i++)
			x.moves[i] = plane(quad, 2 + i);
		return x;
	}
	// keptBefore returns the kept bits of all chunks before the quad, and masked the masked bits of each chunk of the quad, a byte each.
	INLINE u32 keptBefore(u32 quad) const { return word(quad, 0); }
	INLINE u32 masked(u32 quad) const { return word(quad, 1); }
};

// The params of IBP with one mask: the bits in front of a row's payload, which are its participation bits, one a chunk; and the bits of
// the payload of a row all of whose chunks participate.
INLINE u32 headBits(const RowCodec &codec) { return codec.params[0]; }
INLINE u32 keptBits(const RowCodec &codec) { return codec.params[1]; }

// bytesOf returns a byte of ones for each bit that is set of the lowest four, the others being 0.
INLINE u32 bytesOf(u32 bits) { return permute(bits * 0x10204080, 0, 0xba98); }

// quadBits returns the participation bits of a quad's chunks, each as a byte of ones or zeros.
template <int CHUNK, class W> INLINE u32 quadBits(const W &words, u32 quad)
{
	constexpr u32 N = 16 / CHUNK; // chunks a quad
	return bytesOf(words.at(quad * N / 32) >> (quad * N & 31) & ((1 << N) - 1));
}

// chunksAt returns a quad's chunks of 4 bytes as they are packed, with any bits above their own. x is the five words from the one on in which the quad's bits begin, at bit
// (at modulo 32). part and masked are the participation and the masked bits of the quad's chunks.
INLINE u32x4 chunksAt(const u32 (&x)[5], u32 at, u32 part, u32 masked)
{
	u32 b0 = funnelWrap(x[0], x[1], at), b1 = funnelWrap(x[1], x[2], at);
	u32 b2 = funnelWrap(x[2], x[3], at), b3 = funnelWrap(x[3], x[4], at);
	u32x4 y;
	u32 n = 0x20202020 - (masked & part);
	u32 n0 = n & 0xff, n1 = permute(n, 0, 0x4441), n2 = permute(n, 0, 0x4442);
	y.x = b0;
	b0 = funnel(b0, b1, n0), b1 = funnel(b1, b2, n0), b2 = funnel(b2, b3, n0);
	y.y = b0;
	b0 = funnel(b0, b1, n1), b1 = funnel(b1, b2, n1);
	y.z = b0;
	y.w = funnel(b0, b1, n2);
	return y;
}

// expandQuad returns a quad. x is the five words from the one on in which the quad's bits begin, at bit (at modulo 32). part and masked are
// the participation and the masked bits of the quad's chunks.
template <int CHUNK, int STEPS>
INLINE u32x4 expandQuad(const u32 (&x)[5], u32 at, const Planes<STEPS> &planes, u32 part, u32 masked)
{
	u32 b0 = funnelWrap(x[0], x[1], at), b1 = funnelWrap(x[1], x[2], at);
	u32 b2 = funnelWrap(x[2], x[3], at), b3 = funnelWrap(x[3], x[4], at);
	u32x4 y;
	if (CHUNK == 4) {
		u32 n = 0x20202020 - (masked & part);
		u32 n0 = n & 0xff, n1 = permute(n, 0, 0x4441), n2 = permute(n, 0, 0x4442);
		y.x = b0;
		b0 = funnel(b0, b1, n0), b1 = funnel(b1, b2, n0), b2 = funnel(b2, b3, n0);
		y.y = b0;
		b0 = funnel(b0, b1, n1), b1 = funnel(b1, b2, n1);
		y.z = b0;
		y.w = funnel(b0, b1, n2);
		u32x4 e = y;
#pragma unroll
		for (int i = STEPS - 1; i >= 0; i--)
			e ^= (e ^ e << (1 << i)) & planes.moves[i];
		e = (e & ~planes.mask) | planes.val;
		y.x = part & 0x01 ? e.x : y.x;
		y.y = part & 0x0100 ? e.y : y.y;
		y.z = part & 0x010000 ? e.z : y.z;
		y.w = part & 0x01000000 ? e.w : y.w;
	} else {
		u32 n = 64 - (masked & part & 0xff);
		y.x = b0, y.y = b1;
		bool far = n >= 32;
		u32 c0 = far ? b1 : b0, c1 = far ? b2 : b1, c2 = far ? b3 : b2;
		n -= far ? 32 : 0;
		y.z = funnel(c0, c1, n);
		y.w = funnel(c1, c2, n);
		u64 first = (u64)y.y << 32 | y.x, second = (u64)y.w << 32 | y.z;
#pragma unroll
		for (int i = STEPS - 1; i >= 0; i--) {
			first ^= (first ^ first << (1 << i)) & ((u64)planes.moves[i].y << 32 | planes.moves[i].x);
			second ^= (second ^ second << (1 << i)) & ((u64)planes.moves[i].w << 32 | planes.moves[i].z);
		}
		u32x4 e = {(u32)first, (u32)(first >> 32), (u32)second, (u32)(second >> 32)};
		e = (e & ~planes.mask) | planes.val;
		if (part & 0x01)
			y.x = e.x, y.y = e.y;
		if (part & 0x0100)
			y.z = e.z, y.w = e.w;
	}
	return y;
}

// decodeQuad returns a quad, given its bit position and its chunks' participation and masked bits.
template <int CHUNK, int STEPS, class W, class M>
INLINE u32x4 decodeQuad(const W &words, const M &meta, u32 quad, u32 at, u32 part, u32 masked)
{
	u32 x[5];
	words.window(at / 32, x);
	return expandQuad<CHUNK, STEPS>(x, at, meta.planes(quad), part, masked);
}

// tileDecode decodes the quads from up to to of a row. excess is the excess of the chunks before quad from; the excess of those before quad to
// is returned. header has the participation bits, payload the row's words.
template <int CHUNK, int STEPS, int LANES, class H, class W, class M>
INLINE u32 tileDecode(const RowCodec &codec, const H &header, const W &payload, const M &meta, u32 lanes, u32 lane, u32 from,
		      u32 to, u32 excess, u8 *row)
{
	for (u32 quad = from; quad < to; quad += 2 * LANES) {
		u32 qa = quad + lane, qb = qa + LANES;
		bool a = qa < to, b = qb < to;
		u32 partA = 0, maskedA = 0, partB = 0, maskedB = 0;
		if (a) {
			partA = quadBits<CHUNK>(header, qa);
			maskedA = meta.masked(qa);
		}
		if (b) {
			partB = quadBits<CHUNK>(header, qb);
			maskedB = meta.masked(qb);
		}
		u32 moreA = byteSum(maskedA & ~partA), moreB = byteSum(maskedB & ~partB);
		u32 sums = tileScan<LANES>(lanes, moreA | moreB << 16);
		u32 all = tileFrom<LANES>(lanes, sums, LANES - 1);
		if (a) {
			u32 at = headBits(codec) + meta.keptBefore(qa) + excess + (sums & 0xffff) - moreA;
			storeQuad(row, qa, decodeQuad<CHUNK, STEPS>(payload, meta, qa, at, partA, maskedA), codec.rowBytes, codec.store);
		}
		excess += all & 0xffff;
		if (b) {
			u32 at = headBits(codec) + meta.keptBefore(qb) + excess + (sums >> 16) - moreB;
			storeQuad(row, qb, decodeQuad<CHUNK, STEPS>(payload, meta, qb, at, partB, maskedB), codec.rowBytes, codec.store);
		}
		excess += all >> 16;
	}
	return excess;
}

// tileExcess returns the excess of the quads from up to to, without decoding them.
template <int CHUNK, int LANES, class H, class M>
INLINE u32 tileExcess(const H &header, const M &meta, u32 lanes, u32 lane, u32 from, u32 to)
{
	u32 sum = 0;
	for (u32 quad = from + lane; quad < to; quad += LANES)
		sum += byteSum(meta.masked(quad) & ~quadBits<CHUNK>(header, quad));
	return tileSum<LANES>(lanes, sum);
}

// storedBytes returns the stored length, in bytes, of a row with that excess.
INLINE u32 storedBytes(const RowCodec &codec, u32 excess) { return (headBits(codec) + keptBits(codec) + excess + 7) / 8; }
