#ifndef TENSORCACHE_GATHER_ROWS_H
#define TENSORCACHE_GATHER_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* Copies slot bytes, a multiple of 16, from each offset in mem to dst, which is aligned to 16. Offsets beyond mem copy nothing. */
void tensorcache_gather_rows(void *dst, size_t slot, const void *mem, size_t bytes, const uint64_t *offsets, size_t count);

#endif
