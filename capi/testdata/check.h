/* What the checks of the library share. A check is a function that exits with a message where something is wrong. */
#ifndef CHECK_H
#define CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorcache.h"

#define FAIL(...)                                     \
	do {                                              \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
		fprintf(stderr, __VA_ARGS__);                 \
		fputc('\n', stderr);                          \
		exit(1);                                      \
	} while (0)

#define CHECK(condition)             \
	do {                             \
		if (!(condition))            \
			FAIL("%s", #condition);  \
	} while (0)

/* The call must return this status. */
#define WANT(status, call)                                                                                                       \
	do {                                                                                                                         \
		tc_status got_ = (call);                                                                                                 \
		if (got_ != (status))                                                                                                    \
			FAIL("%s: %s (%s), want %s", #call, tc_status_name(got_), got_ > TC_PENDING ? tc_last_error() : "", tc_status_name(status)); \
	} while (0)

#define OK(call) WANT(TC_OK, call)

/* The call must fail with this status and a text that has the words. */
#define REFUSED(status, words, call)                                                              \
	do {                                                                                          \
		WANT(status, call);                                                                       \
		if (strstr(tc_last_error(), words) == NULL)                                               \
			FAIL("%s: text \"%s\" lacks \"%s\"", #call, tc_last_error(), words);                  \
	} while (0)

enum { ROWS = 5000, COLUMNS = 60, ROW = 4 * COLUMNS };

extern int on_cuda; /* the checks run on a GPU */

/* Memory and streams of the device: the GPU's, or the host's. */
void device_begin(void);
void *device_alloc(size_t bytes);
void device_free(void *p);
void device_put(void *to, const void *from, size_t bytes);
void device_get(void *to, const void *from, size_t bytes);
void *stream_new(void);
void stream_wait(void *stream);
/* A stream that copies of device_put and device_get do not wait for. */
void *stream_apart(void);
/* Whether the GPU is emulated. */
int emulated(void);
/* Allocates all memory of the GPU but that much. */
void *device_fill(size_t left);
void *graph_begin(void *stream);
void *graph_end(void *stream);
void graph_launch(void *graph, void *stream);
void graph_destroy(void *graph);

/* A table of ROWS x COLUMNS numbers, all different. */
float *table_new(void);
/* n row numbers below rows, of TC_INT32 or TC_INT64. */
void *ids_new(int32_t id_type, int64_t n, int64_t rows, unsigned seed);
int64_t id_at(const void *ids, int32_t id_type, int64_t i);
/* A cache of table_new's table. */
tc_cache *cache_new(const float *table);
void config_new(tc_config *config);
void table_desc(tc_table *t, const float *table);
/* Exits unless out has the rows of the table, stride bytes apart. */
void same_rows(const float *table, const void *ids, int32_t id_type, int64_t n, const char *out, int64_t stride);

void check_gathers(void);
void check_pooled(void);
void check_errors(void);
void check_changes(const char *folder);
void check_openings(void);
void check_handles(void);
void check_files(const char *path);
void check_pages(const char *dir);
void check_models(const char *dir);
void check_adopt(void);
void check_threads(void);
void check_growth(int opens);
void check_calls(int all);
void check_fork(void);
void check_telemetry(void);
void check_graphs(void);
void check_parts(void);
void check_device_source(void);
void check_attach(const char *address);
void check_owner(const char *address);
void bench(int64_t rows);

#endif
