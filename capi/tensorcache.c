/*
 * The exported functions. Each one refuses to run in a child of fork, copies the structures it is given to those of this version, and
 * calls its namesake tcgo_* in Go. Text of errors is kept here, as Go has no memory of the caller's thread.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"
#include "bridge.h"

/*
 * The text of each thread's last error, of up to TEXT_BYTES - 1 bytes, which is allocated at its first error and freed at its end. It is no
 * _Thread_local variable: Go has such variables placed where a library that is loaded by dlopen has room for very few.
 */
static pthread_key_t texts;

enum { TEXT_BYTES = 8192 };

/* Set in children of fork. A handler of fork is cheaper than asking for the process number at every call. */
static volatile int forked;

static void in_child(void)
{
	forked = 1;
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

static tc_status fail(tc_status status, const char *format, ...)
{
	char *text = text_buffer();
	va_list values;
	va_start(values, format);
	if (text != NULL)
		vsnprintf(text, TEXT_BYTES, format, values);
	va_end(values);
	return status;
}

/* Begins every function that returns a status. */
#define ENTER()                                                                                                           \
	do {                                                                                                                  \
		if (__builtin_expect(forked, 0))                                                                                  \
			return fail(TC_ERROR_FORKED, "tensorcache: this process is a child of fork, which the library does not work " \
										 "in: open it in this process, or start workers by spawn");                       \
	} while (0)

/* Refuses a null pointer. */
#define NEED(pointer)                                                                        \
	do {                                                                                     \
		if ((pointer) == NULL)                                                               \
			return fail(TC_ERROR_ARGUMENT, "tensorcache: " #pointer " (NULL) must not be NULL"); \
	} while (0)

/*
 * Copies a structure that begins with its size, of any version, to one of this version, whose size is known. Fields that the caller does not
 * have are 0, which is their default. Fields that this version does not have must be 0.
 */
static tc_status take(void *to, size_t known, const void *from, size_t size, const char *what)
{
	if (size < sizeof(size_t) || size > 65536)
		return fail(TC_ERROR_ARGUMENT, "tensorcache: %s.size (%zu) must be set by %s_default", what, size, what);
	memset(to, 0, known);
	memcpy(to, from, size < known ? size : known);
	for (size_t i = known; i < size; i++)
		if (((const char *)from)[i] != 0)
			return fail(TC_ERROR_ARGUMENT, "tensorcache: %s has a field at byte %zu that this library (version " TC_VERSION
										   ", %zu bytes) does not know", what, i, known);
	memcpy(to, &known, sizeof known);
	return TC_OK;
}

/* Copies a structure of this version to the caller's, of any version, whose size stays. */
static tc_status give(void *to, const void *from, size_t known, const char *what)
{
	size_t size;
	memcpy(&size, to, sizeof size);
	if (size < sizeof(size_t) || size > 65536)
		return fail(TC_ERROR_ARGUMENT, "tensorcache: %s.size (%zu) must be the size of the structure", what, size);
	memset((char *)to + sizeof size, 0, size - sizeof size);
	memcpy((char *)to + sizeof size, (const char *)from + sizeof size, (size < known ? size : known) - sizeof size);
	return TC_OK;
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

/* ---- the library ---- */

const char *tc_version(void)
{
	return TC_VERSION;
}

const char *tc_last_error(void)
{
	const char *text = pthread_getspecific(texts);
	return text != NULL ? text : "";
}

const char *tc_status_name(tc_status status)
{
	static const char *const names[] = {
		"TC_OK", "TC_PENDING", "TC_ERROR_ARGUMENT", "TC_ERROR_CLOSED", "TC_ERROR_TABLE", "TC_ERROR_ROWS", "TC_ERROR_BUDGET",
		"TC_ERROR_OUT_OF_MEMORY", "TC_ERROR_FILE", "TC_ERROR_DEVICE", "TC_ERROR_CAPTURE", "TC_ERROR_CORRUPT", "TC_ERROR_POLICY",
		"TC_ERROR_CANCELLED", "TC_ERROR_FORKED", "TC_ERROR_INTERNAL", "TC_ERROR_OWNER",
	};
	return (unsigned)status < sizeof names / sizeof *names ? names[status] : "unknown status";
}

tc_status tc_gpu_count(int32_t *count)
{
	ENTER();
	NEED(count);
	return tcgo_gpu_count(count);
}

void tc_free(void *text)
{
	free(text);
}

/* Functions that return text begin with it. */
#define JSON(json)      \
	do {                \
		ENTER();        \
		NEED(json);     \
		*(json) = NULL; \
	} while (0)

tc_status tc_logs_json(char **json)
{
	JSON(json);
	return tcgo_logs_json(json);
}

/* ---- opening ---- */

enum { MAX_TABLES = 256, MAX_POOLED = 1 << 16 };

/* Copies what is to be opened. The caller frees *copies. */
static tc_status take_all(tc_config *config, tc_table **copies, const tc_config *from, const tc_table *tables, int32_t count)
{
	*copies = NULL;
	NEED(from);
	NEED(tables);
	const tc_config *tc_config = from;
	tc_status status = take(config, sizeof *config, tc_config, tc_config->size, "tc_config");
	if (status != TC_OK)
		return status;
	if (count < 1 || count > MAX_TABLES)
		return fail(TC_ERROR_ARGUMENT, "tensorcache: count (%d) of tables must be 1 to %d", (int)count, MAX_TABLES);
	tc_table *all = calloc((size_t)count, sizeof *all);
	if (all == NULL)
		return fail(TC_ERROR_OUT_OF_MEMORY, "tensorcache: no memory for %d tables", (int)count);
	for (int32_t i = 0; i < count && status == TC_OK; i++) {
		const char *at = (const char *)tables + (size_t)i * tables->size;
		size_t size;
		memcpy(&size, at, sizeof size);
		if (size != tables->size)
			status = fail(TC_ERROR_ARGUMENT, "tensorcache: tc_table.size (%zu) of table %d must be that of table 0 (%zu)", size, (int)i,
				tables->size);
		else
			status = take(&all[i], sizeof all[i], at, size, "tc_table");
	}
	if (status != TC_OK) {
		free(all);
		return status;
	}
	*copies = all;
	return TC_OK;
}

tc_status tc_open(const tc_config *config, const tc_table *tables, int32_t count, tc_cache **cache)
{
	ENTER();
	NEED(cache);
	*cache = NULL;
	tc_config taken;
	tc_table *copies;
	tc_status status = take_all(&taken, &copies, config, tables, count);
	if (status == TC_OK)
		status = tcgo_open(&taken, copies, count, (uintptr_t *)cache);
	free(copies);
	return status;
}

tc_status tc_attach(const char *address, const tc_attach_config *config, tc_cache **cache)
{
	ENTER();
	NEED(cache);
	*cache = NULL;
	NEED(address);
	tc_attach_config taken;
	tc_attach_config_default(&taken);
	if (config != NULL) {
		tc_status status = take(&taken, sizeof taken, config, config->size, "tc_attach_config");
		if (status != TC_OK)
			return status;
	}
	return tcgo_attach((char *)address, &taken, (uintptr_t *)cache);
}

tc_status tc_table_describe(const tc_table *table, tc_table_info *info)
{
	ENTER();
	NEED(table);
	NEED(info);
	tc_table taken;
	tc_table_info found;
	memset(&found, 0, sizeof found);
	tc_status status = take(&taken, sizeof taken, table, table->size, "tc_table");
	if (status == TC_OK)
		status = tcgo_table_describe(&taken, &found);
	return status == TC_OK ? give(info, &found, sizeof found, "tc_table_info") : status;
}

tc_status tc_listen(tc_cache *cache, const char *address, const tc_listen_config *config)
{
	ENTER();
	NEED(address);
	tc_listen_config taken;
	tc_listen_config_default(&taken);
	if (config != NULL) {
		tc_status status = take(&taken, sizeof taken, config, config->size, "tc_listen_config");
		if (status != TC_OK)
			return status;
	}
	return tcgo_listen((uintptr_t)cache, (char *)address, &taken);
}

tc_status tc_open_begin(const tc_config *config, const tc_table *tables, int32_t count, tc_opening **opening)
{
	ENTER();
	NEED(opening);
	*opening = NULL;
	tc_config taken;
	tc_table *copies;
	tc_status status = take_all(&taken, &copies, config, tables, count);
	if (status == TC_OK)
		status = tcgo_open_begin(&taken, copies, count, (uintptr_t *)opening);
	free(copies);
	return status;
}

tc_status tc_opening_wait(tc_opening *opening, double seconds, tc_cache **cache)
{
	ENTER();
	NEED(cache);
	*cache = NULL;
	return tcgo_opening_wait((uintptr_t)opening, seconds, (uintptr_t *)cache);
}

tc_status tc_opening_progress(tc_opening *opening, tc_progress *progress)
{
	ENTER();
	NEED(progress);
	tc_progress now;
	memset(&now, 0, sizeof now);
	tc_status status = tcgo_opening_progress((uintptr_t)opening, &now);
	return status == TC_OK ? give(progress, &now, sizeof now, "tc_progress") : status;
}

tc_status tc_opening_cancel(tc_opening *opening)
{
	ENTER();
	return tcgo_opening_cancel((uintptr_t)opening);
}

void tc_opening_destroy(tc_opening *opening)
{
	if (!forked && opening != NULL)
		tcgo_opening_destroy((uintptr_t)opening);
}

tc_status tc_close(tc_cache *cache)
{
	if (cache == NULL)
		return TC_OK;
	ENTER();
	return tcgo_close((uintptr_t)cache);
}

/* ---- what a cache is ---- */

tc_status tc_table_count(tc_cache *cache, int32_t *count)
{
	ENTER();
	NEED(count);
	return tcgo_counts((uintptr_t)cache, count, NULL);
}

tc_status tc_device_count(tc_cache *cache, int32_t *count)
{
	ENTER();
	NEED(count);
	return tcgo_counts((uintptr_t)cache, NULL, count);
}

tc_status tc_table_get_info(tc_cache *cache, int32_t table, tc_table_info *info)
{
	ENTER();
	NEED(info);
	tc_table_info now;
	memset(&now, 0, sizeof now);
	tc_status status = tcgo_table_info((uintptr_t)cache, table, &now);
	return status == TC_OK ? give(info, &now, sizeof now, "tc_table_info") : status;
}

tc_status tc_device_get_info(tc_cache *cache, int32_t device, tc_device_info *info)
{
	ENTER();
	NEED(info);
	tc_device_info now;
	memset(&now, 0, sizeof now);
	tc_status status = tcgo_device_info((uintptr_t)cache, device, &now);
	return status == TC_OK ? give(info, &now, sizeof now, "tc_device_info") : status;
}

/* ---- gathering ---- */

tc_status tc_gather(tc_cache *cache, int32_t device, int32_t table, const void *ids, int32_t id_type, int64_t n, void *out,
	int64_t row_stride, void *stream, tc_batch **batch)
{
	ENTER();
	if (batch != NULL)
		*batch = NULL;
	return tcgo_gather((uintptr_t)cache, device, table, (uintptr_t)ids, id_type, n, (uintptr_t)out, row_stride, (uintptr_t)stream, 0,
		(uintptr_t *)batch);
}

tc_status tc_gather_host_ids(tc_cache *cache, int32_t device, int32_t table, const void *ids, int32_t id_type, int64_t n, void *out,
	int64_t row_stride, void *stream, tc_batch **batch)
{
	ENTER();
	if (batch != NULL)
		*batch = NULL;
	return tcgo_gather((uintptr_t)cache, device, table, (uintptr_t)ids, id_type, n, (uintptr_t)out, row_stride, (uintptr_t)stream, 1,
		(uintptr_t *)batch);
}

tc_status tc_gather_host(tc_cache *cache, int32_t device, int32_t table, const void *ids, int32_t id_type, int64_t n, void *out,
	int64_t row_stride)
{
	ENTER();
	return tcgo_gather_host((uintptr_t)cache, device, table, (void *)ids, id_type, n, out, row_stride);
}

/* Copies pooled batches. The caller frees *copies. */
static tc_status take_pooled(tc_pooled **copies, const tc_pooled *batches, int32_t count)
{
	*copies = NULL;
	if (count < 0 || count > MAX_POOLED)
		return fail(TC_ERROR_ARGUMENT, "tensorcache: count (%d) of batches must be 0 to %d", (int)count, MAX_POOLED);
	if (count == 0)
		return TC_OK;
	NEED(batches);
	tc_pooled *all = calloc((size_t)count, sizeof *all);
	if (all == NULL)
		return fail(TC_ERROR_OUT_OF_MEMORY, "tensorcache: no memory for %d batches", (int)count);
	tc_status status = TC_OK;
	for (int32_t i = 0; i < count && status == TC_OK; i++) {
		const char *at = (const char *)batches + (size_t)i * batches->size;
		size_t size;
		memcpy(&size, at, sizeof size);
		if (size != batches->size)
			status = fail(TC_ERROR_ARGUMENT, "tensorcache: tc_pooled.size (%zu) of batch %d must be that of batch 0 (%zu)", size, (int)i,
				batches->size);
		else
			status = take(&all[i], sizeof all[i], at, size, "tc_pooled");
	}
	if (status != TC_OK) {
		free(all);
		return status;
	}
	*copies = all;
	return TC_OK;
}

tc_status tc_gather_pooled(tc_cache *cache, int32_t device, const tc_pooled *batches, int32_t count, void *stream, tc_batch **batch)
{
	ENTER();
	if (batch != NULL)
		*batch = NULL;
	tc_pooled *copies;
	tc_status status = take_pooled(&copies, batches, count);
	if (status == TC_OK)
		status = tcgo_gather_pooled((uintptr_t)cache, device, copies, count, (uintptr_t)stream, (uintptr_t *)batch);
	free(copies);
	return status;
}

tc_status tc_gather_pooled_host(tc_cache *cache, int32_t device, const tc_pooled *batches, int32_t count)
{
	ENTER();
	tc_pooled *copies;
	tc_status status = take_pooled(&copies, batches, count);
	if (status == TC_OK)
		status = tcgo_gather_pooled_host((uintptr_t)cache, device, copies, count);
	free(copies);
	return status;
}

tc_status tc_batch_wait(tc_batch *batch)
{
	ENTER();
	return tcgo_batch((uintptr_t)batch, 1);
}

tc_status tc_batch_error(tc_batch *batch)
{
	ENTER();
	return tcgo_batch((uintptr_t)batch, 0);
}

void tc_batch_destroy(tc_batch *batch)
{
	if (!forked && batch != NULL)
		tcgo_batch_destroy((uintptr_t)batch);
}

tc_status tc_check(tc_cache *cache, int32_t wait)
{
	ENTER();
	return tcgo_check((uintptr_t)cache, wait);
}

/* ---- changing ---- */

tc_status tc_update(tc_cache *cache, int32_t table, const void *ids, int32_t id_type, int64_t n, const void *rows, int64_t row_stride)
{
	ENTER();
	return tcgo_update((uintptr_t)cache, table, (void *)ids, id_type, n, (void *)rows, row_stride);
}

tc_status tc_invalidate(tc_cache *cache, int32_t table, const void *ids, int32_t id_type, int64_t n)
{
	ENTER();
	return tcgo_invalidate((uintptr_t)cache, table, (void *)ids, id_type, n);
}

tc_status tc_prefetch(tc_cache *cache, int32_t table, const void *ids, int32_t id_type, int64_t n)
{
	ENTER();
	return tcgo_prefetch((uintptr_t)cache, table, (void *)ids, id_type, n);
}

tc_status tc_refresh(tc_cache *cache)
{
	ENTER();
	return tcgo_refresh((uintptr_t)cache);
}

tc_status tc_retarget(tc_cache *cache, int32_t table, int64_t target)
{
	ENTER();
	return tcgo_retarget((uintptr_t)cache, table, target);
}

tc_status tc_merge_updates(tc_cache *cache, int32_t table)
{
	ENTER();
	return tcgo_merge_updates((uintptr_t)cache, table);
}

tc_status tc_set_gpu_memory(tc_cache *cache, int64_t bytes)
{
	ENTER();
	return tcgo_set_gpu_memory((uintptr_t)cache, bytes);
}

tc_status tc_snapshot(tc_cache *cache, const char *path)
{
	ENTER();
	NEED(path);
	return tcgo_snapshot((uintptr_t)cache, (char *)path);
}

/* ---- knowing ---- */

tc_status tc_stats_json(tc_cache *cache, int32_t table, char **json)
{
	JSON(json);
	return tcgo_stats_json((uintptr_t)cache, table, json);
}

tc_status tc_explain_json(tc_cache *cache, int32_t table, const void *ids, int32_t id_type, int64_t n, char **json)
{
	JSON(json);
	return tcgo_explain_json((uintptr_t)cache, table, (void *)ids, id_type, n, json);
}

tc_status tc_plan_json(const char *config_json, char **json)
{
	JSON(json);
	NEED(config_json);
	return tcgo_command_json(0, (char *)config_json, json);
}

tc_status tc_bench_json(const char *config_json, char **json)
{
	JSON(json);
	NEED(config_json);
	return tcgo_command_json(1, (char *)config_json, json);
}
