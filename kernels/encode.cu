#include "coder.h"
#include "encode.h"

// Encodes rows in their places by a coder, ROW_CODER of ROW_HEADER, to the same bytes as the Go encoder. Rows begin at multiples of 4 bytes.
// Bytes behind a stored row keep their values.

// A warp encodes a row: it stages the row in shared memory, encodes it into a second buffer there, and writes that back if it is
// shorter. Shared memory: the metadata, if they fit, then for each warp two buffers of a.rowBytes and its scratch.
template <class C> INLINE void encodeCoded(const EncodeArgs &a)
{
	extern __shared__ u32x4 dynamic[];
	__shared__ Tally all;
	if (threadID() == 0)
		all.clear();
	blockSync();
	const Tile<32> tile = Tile<32>::make();
	const u8 *meta = metaOf<C>(a.codec, (u8 *)dynamic);
	u32 lane = tile.lane, warp = threadID() / 32, warps = gridBlocks() * blockThreads() / 32;
	u8 *stage = (u8 *)dynamic + a.codec.metaBytes + warp * (2 * a.rowBytes + a.codec.scratch);
	u32 *out = (u32 *)(stage + a.rowBytes);
	u8 *scratch = stage + 2 * a.rowBytes;
	u32 rowBytes = a.codec.rowBytes, room = a.rowBytes / 4;
	Tally mine;
	mine.clear();
	for (u32 i = (blockID() * blockThreads() + threadID()) / 32; i < a.count; i += warps) {
		u64 at = a.rows + (u64)i * a.stride, base = at & ~127ull;
		for (u64 from = base + lane * 16; from < at + rowBytes; from += 512)
			if (from + 16 > at)
				copyAsync16(stage + (from - base), from);
		for (u32 w = lane; w < room; w += 32)
			out[w] = 0;
		copyWait();
		tile.sync();
		u32 *row = (u32 *)(stage + (at - base));
		if (lane == 0 && rowBytes % 4 != 0)
			row[rowBytes / 4] &= (1u << (rowBytes % 4 * 8)) - 1;
		tile.sync();
		u32 length = C::encode(a.codec, meta, row, out, room, scratch, tile);
		tile.sync();
		if (length < rowBytes) {
			u32 *to = (u32 *)at;
			for (u32 w = lane; w < length / 4; w += 32)
				to[w] = out[w];
			if (lane < (length & 3))
				((u8 *)at)[length / 4 * 4 + lane] = (u8)(out[length / 4] >> (8 * lane));
		}
		if (lane == 0)
			mine.add(a, i, length);
		tile.sync(); // the buffers are free
	}
	if (lane == 0)
		all.join(mine);
	blockSync();
	if (threadID() == 0)
		all.flush(a);
}

KERNEL void __launch_bounds__(256) encode32(const EncodeArgs a) { encodeCoded<ROW_CODER>(a); }
