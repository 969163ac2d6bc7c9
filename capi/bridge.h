/* What the C and the Go side of the library share. */
#ifndef TENSORCACHE_BRIDGE_H
#define TENSORCACHE_BRIDGE_H

#include "tensorcache.h"

/* Not 0 in a child of fork. */
extern volatile int tcgo_forked;

/* Keeps the text of an error for tc_last_error of the calling thread, and returns its status: TC_ERROR_FORKED, and TC_ERROR_ARGUMENT of a pointer that is NULL. */
tc_status tcgo_in_child(void);
tc_status tcgo_null(const char *name);

/* Begins every function that returns a status. */
#define ENTER()                                 \
	do {                                        \
		if (__builtin_expect(tcgo_forked, 0))   \
			return tcgo_in_child();             \
	} while (0)

/* Refuses a null pointer. */
#define NEED(pointer)                           \
	do {                                        \
		if ((pointer) == NULL)                  \
			return tcgo_null(#pointer);         \
	} while (0)

/* Keeps a text for tc_last_error of the calling thread. */
void tcgo_set_error(const void *text, size_t bytes);

extern char **environ;

/*
 * Copies n row numbers, if to is not NULL. Says whether all of them are at least 0 and below limit, which is at most 2^50. id_type is TC_INT32 or
 * TC_INT64. Neither need be aligned.
 */
int tcgo_copy_rows(void *restrict to, const void *restrict ids, int32_t id_type, int64_t n, int64_t limit);

#endif
