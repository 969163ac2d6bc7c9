/* What the C and the Go side of the library share. */
#ifndef TENSORCACHE_BRIDGE_H
#define TENSORCACHE_BRIDGE_H

#include "tensorcache.h"

/* Every call passes a buffer of so many bytes for the text of an error. */
#define TCGO_MESSAGE_BYTES 4096

extern char **environ;

/* Whether all of n row numbers are at least 0 and below limit, which is at most 2^50. id_type is TC_INT32 or TC_INT64. */
int tcgo_rows_within(const void *ids, int32_t id_type, int64_t n, int64_t limit);

#endif
