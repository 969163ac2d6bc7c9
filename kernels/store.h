// Stores of rows that do not begin at multiples of 16 bytes.
//
// A lane has a quad of a row in registers. Stored where it belongs it would be several stores of 4 or 8 bytes, between which the other
// lanes' lie: every store instruction would touch all sectors of the row. So the row is put together in shared memory, where it was staged, and
// neighbouring lanes store neighbouring units.
#pragma once
#include "words.h"

// storeUnits writes the first bytes of a row that begins at a multiple of UNIT bytes, by LANES lanes, each up to COUNT units. from is in shared
// memory.
template <class UNIT, int LANES, int COUNT> INLINE void storeUnits(u8 *row, const u8 *from, u32 lane, u32 bytes)
{
#pragma unroll
	for (u32 i = 0; i < COUNT; i++)
		if (u32 at = (lane + i * LANES) * sizeof(UNIT); at < bytes)
			storeOut((UNIT *)(row + at), *(const UNIT *)(from + at));
}

// storeStaged writes a row of which all bytes lie in shared memory at from, by LANES lanes that have up to QUADS quads each; lane is the
// caller's. store is that of RowCodec.
template <int LANES, int QUADS> INLINE void storeStaged(u32 store, u8 *row, const u8 *from, u32 lane, u32 rowBytes)
{
	if (store == STORE_8) {
		storeUnits<u32x2, LANES, 2 * QUADS>(row, from, lane, rowBytes);
	} else if (store == STORE_4) {
		storeUnits<u32, LANES, 4 * QUADS>(row, from, lane, rowBytes);
	} else {
		// Words of memory have parts of two words of the row. Bytes outside whole words are stored by themselves.
		u32 head = minimum(-(u32)(u64)row & 3, rowBytes), end = head + (rowBytes - head) / 4 * 4;
#pragma unroll
		for (u32 i = 0; i < 4 * QUADS; i++)
			if (u32 at = head + (lane + i * LANES) * 4; at < end) {
				const u32 *x = (const u32 *)(from + (at & ~3u));
				storeOut((u32 *)(row + at), funnel(x[0], x[1], 8 * head));
			}
		if (lane < head)
			row[lane] = from[lane];
		if (lane < rowBytes - end)
			row[end + lane] = from[end + lane];
	}
}

// storeWhole writes a row of whole units from shared memory, by LANES lanes, and storeBuilt any row. There is a word behind the row in
// shared memory.
template <class UNIT, int LANES> INLINE void storeWhole(u8 *row, const u8 *from, u32 lane, u32 bytes)
{
	constexpr u32 STEP = LANES * sizeof(UNIT);
#pragma unroll 1
	for (u32 at = lane * sizeof(UNIT); at < bytes; at += 4 * STEP) {
		UNIT x[4];
#pragma unroll
		for (u32 i = 0; i < 4; i++)
			if (at + i * STEP < bytes)
				x[i] = *(const UNIT *)(from + at + i * STEP);
#pragma unroll
		for (u32 i = 0; i < 4; i++)
			if (at + i * STEP < bytes)
				*(UNIT *)(row + at + i * STEP) = x[i];
	}
}
template <int LANES> INLINE void storeBuilt(u32 store, u8 *row, const u8 *from, u32 lane, u32 rowBytes)
{
	if (store == STORE_16) {
		storeWhole<u32x4, LANES>(row, from, lane, rowBytes);
	} else if (store == STORE_8) {
		storeWhole<u32x2, LANES>(row, from, lane, rowBytes);
	} else if (store == STORE_4) {
		storeWhole<u32, LANES>(row, from, lane, rowBytes);
	} else {
		u32 head = minimum(-(u32)(u64)row & 3, rowBytes), end = head + (rowBytes - head) / 4 * 4;
#pragma unroll 1
		for (u32 at = head + lane * 4; at < end; at += LANES * 4) {
			const u32 *x = (const u32 *)(from + (at & ~3u));
			*(u32 *)(row + at) = funnel(x[0], x[1], 8 * head);
		}
		if (lane < head)
			row[lane] = from[lane];
		if (lane < rowBytes - end)
			row[end + lane] = from[end + lane];
	}
}
