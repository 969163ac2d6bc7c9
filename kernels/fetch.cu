#include "fetch_coded.h"
#include "publish.h"

// Reads the misses of a batch from the host tier, over the link, and writes their rows to the output, by a coder: ROW_CODER of
// ROW_HEADER.
//
// Asynchronous copies bring a row's bytes to shared memory, in aligned lines of 128 bytes. Of the first and the last line only the 32-byte
// sectors of the row are read. In rows below LINE_ROW a lane copies 16 bytes, so that a warp asks for four lines at once. In longer rows a
// lane copies 4 bytes, and a warp asks for one line after the other. On an H200 over PCIe 5, 16 bytes a lane read 53 GB/s at 512 bytes
// against 46, but 49 against 57 at 2408.
//
// The length of a compressed row in place is not known before its first bytes have arrived. Therefore FetchArgs.ahead bytes are read first.
// From them follows the row's length. The rest, seldom more than a sector, is read then.

#ifdef ROW_PAIRS
#include "fetch_long.h"
#else
// Fetches rows that are too long for a stage: a warp decodes a row directly from the host tier. Shared memory: the scratch of each warp.
template <class C> INLINE void fetchCodedLong(const FetchArgs &a)
{
	extern __shared__ u32x4 dynamic[];
	const Tile<32> tile = Tile<32>::make();
	u8 *scratch = (u8 *)dynamic + threadID() / 32 * a.codec.scratch;
	const u8 *meta = (const u8 *)a.codec.meta;
	u32 misses = ((const Counters *)a.counters)->misses, warps = gridBlocks() * (blockThreads() / 32);
	u64 moved = 0;
	for (u32 i = threadID() / 32 * gridBlocks() + blockID(); i < misses; i += warps) {
		Miss m = missOf(a, loadConst((const u32x4 *)(a.misses + i * a.step)));
		Words<GLOBAL> stored{(const u32 *)m.at, 0, (m.length + 3) / 4};
		bool ok = true;
		if (!m.compressed) {
			copyRow(a.codec, stored, tile, m.row);
		} else {
			if (!m.known) {
				u32 length = C::storedLength(a.codec, meta, stored, tile);
				ok = length - 1 < m.length;
				m.length = length;
				stored.limit = (length + 3) / 4;
			}
			ok = ok && m.length != 0 && C::decode(a.codec, meta, stored, m.length, scratch, tile, m.row);
		}
		if (ok)
			moved += m.length;
		else if (tile.lane == 0)
			corruptRow(a.counters, m.position);
		tile.sync(); // the scratch is free
	}
	if (tile.lane == 0 && moved != 0)
		addHostBytes(a.counters, moved);
}
#endif

KERNEL void __launch_bounds__(256) fetch32(const FetchArgs a)
{
	if (missesOf(a) != 0)
		fetchCoded<ROW_CODER, false>(a, blockID(), gridBlocks());
	endBatch<END_FETCH>(a.counters, a.end);
}
KERNEL void __launch_bounds__(256) fetchLong(const FetchArgs a)
{
#ifdef ROW_PAIRS
	fetchLongRows<ROW_CODER::CHUNK, ROW_CODER::STEPS>(a);
#else
	fetchCodedLong<ROW_CODER>(a);
#endif
	endBatch<END_FETCH>(a.counters, a.end);
}
