#ifndef TENSORCACHE_GATHER_ROWS_H
#define TENSORCACHE_GATHER_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* Copies slot bytes, a multiple of 16, from each offset in mem to dst, which is aligned to 16. Offsets beyond mem copy nothing. */
void tensorcache_gather_rows(void *dst, size_t slot, const void *mem, size_t bytes, const uint64_t *offsets, size_t count);

/* A share as its workers see it; addresses of what Sharer.gather in share.go uses. */
struct tensorcache_share {
	uintptr_t opened, closed, low, claimed, listed, ready, halt; /* 32-bit words, atomic */
	uintptr_t list, mem, staging;
	size_t bytes, slot;
	uint32_t number, pieces, piece, unit;
};

/* Gathers up to limit pieces as Sharer.gather does, and returns how many it has. */
uint32_t tensorcache_share_gather(const struct tensorcache_share *share, uint32_t limit);

#endif
