/* What the C and the Go side of the library share. */
#ifndef TENSORCACHE_BRIDGE_H
#define TENSORCACHE_BRIDGE_H

#include "tensorcache.h"

/* Keeps a text for tc_last_error of the calling thread. */
void tcgo_set_error(const void *text, size_t bytes);

extern char **environ;

/*
 * Copies n row numbers, if to is not NULL. Says whether all of them are at least 0 and below limit, which is at most 2^50. id_type is TC_INT32 or
 * TC_INT64. Neither need be aligned.
 */
int tcgo_copy_rows(void *restrict to, const void *restrict ids, int32_t id_type, int64_t n, int64_t limit);

#endif
