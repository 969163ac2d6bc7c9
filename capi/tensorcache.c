/*
 * What is not Go: the text of errors, as Go has no memory of the caller's thread; children of fork, which have no Go; and the check of row numbers. The functions that
 * only call Go are in calls.c.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge.h"

/*
 * The text of each thread's last error, of up to TEXT_BYTES - 1 bytes, which is allocated at its first error and freed at its end. It is no
 * _Thread_local variable: Go has such variables placed where a library that is loaded by dlopen has room for very few.
 */
static pthread_key_t texts;

enum { TEXT_BYTES = 8192 };

/* Set in children of fork. A handler of fork is cheaper than asking for the process number at every call. */
volatile int tcgo_forked;

static void in_child(void)
{
	tcgo_forked = 1;
}

__attribute__((constructor)) static void loaded(void)
{
	pthread_atfork(NULL, NULL, in_child);
	pthread_key_create(&texts, free);
}

/* The buffer for the text of this thread, NULL if there is no memory. */
static char *text_buffer(void)
{
	char *text = pthread_getspecific(texts);
	if (text == NULL && (text = calloc(1, TEXT_BYTES)) != NULL && pthread_setspecific(texts, text) != 0) {
		free(text);
		text = NULL;
	}
	return text;
}

void tcgo_set_error(const void *from, size_t bytes)
{
	char *text = text_buffer();
	if (text == NULL)
		return;
	if (bytes > TEXT_BYTES - 1)
		bytes = TEXT_BYTES - 1;
	memcpy(text, from, bytes);
	text[bytes] = 0;
}

static tc_status fail(tc_status status, const char *format, const char *value)
{
	char *text = text_buffer();
	if (text != NULL)
		snprintf(text, TEXT_BYTES, format, value);
	return status;
}

tc_status tcgo_in_child(void)
{
	return fail(TC_ERROR_FORKED, "%s", "tensorcache: this process is a child of fork, which the library does not work in: open it in this process, or start workers by spawn");
}

tc_status tcgo_null(const char *name)
{
	return fail(TC_ERROR_ARGUMENT, "tensorcache: %s (NULL) must not be NULL", name);
}

/*
 * A number is 0 to limit - 1 if neither it nor limit - 1 - number is negative: so the sign of what all of these have in common by OR tells, and
 * the loops have no branch, which the compiler makes vectors of.
 */
#define COPY_ROWS(type, store)                                                           \
	do {                                                                                 \
		type all = 0, most = (type)(limit - 1);                                          \
		for (int64_t i = 0; i < n; i++) {                                                \
			type id;                                                                     \
			memcpy(&id, (const char *)ids + i * (int64_t)sizeof id, sizeof id);          \
			all |= id | (type)(most - id);                                               \
			if (store)                                                                   \
				memcpy((char *)to + i * (int64_t)sizeof id, &id, sizeof id);             \
		}                                                                                \
		return all >> (sizeof all * 8 - 1) == 0;                                         \
	} while (0)

int tcgo_copy_rows(void *restrict to, const void *restrict ids, int32_t id_type, int64_t n, int64_t limit)
{
	if (n == 0)
		return 1;
	if (limit < 1)
		return 0;
	if (id_type == TC_INT32) {
		if (limit > INT32_MAX)
			limit = (int64_t)INT32_MAX + 1;
		if (to == NULL)
			COPY_ROWS(uint32_t, 0);
		COPY_ROWS(uint32_t, 1);
	}
	if (to == NULL)
		COPY_ROWS(uint64_t, 0);
	COPY_ROWS(uint64_t, 1);
}

const char *tc_version(void)
{
	return TC_VERSION;
}

const char *tc_last_error(void)
{
	const char *text = pthread_getspecific(texts);
	return text != NULL ? text : "";
}

void tc_free(void *text)
{
	free(text);
}
