/* Openings in the background, handles, files and adopted memory. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void gathers(tc_cache *cache, int32_t of, const float *table)
{
	enum { N = 500 };
	int64_t *ids = ids_new(TC_INT64, N, ROWS, 3);
	char *out = malloc(N * ROW);
	OK(tc_gather_host(cache, 0, of, ids, TC_INT64, N, out, 0));
	same_rows(table, ids, TC_INT64, N, out, ROW);
	free(ids);
	free(out);
}

void check_openings(void)
{
	float *table = table_new();
	tc_config config;
	config_new(&config);
	tc_table tables[3];
	char name[16];
	for (int i = 0; i < 3; i++) {
		table_desc(&tables[i], table);
		tables[i].name = NULL;
	}
	tc_training training[2] = {{1, TC_INT64, ids_new(TC_INT64, 4000, ROWS, 1), 4000}, {2, TC_INT32, ids_new(TC_INT32, 4000, ROWS, 2), 4000}};
	config.training = training;
	config.training_batches = 2;
	config.gpu_memory = 2 << 20;
	strcpy(name, "three");
	config.name = name;
	tc_opening *opening;
	OK(tc_open_begin(&config, tables, 3, &opening));
	/* Structures and texts may be reused at once. */
	memset(&config, 0xff, sizeof config);
	memset(tables, 0xff, sizeof tables);
	memset(name, 'x', sizeof name - 1);
	tc_cache *cache;
	tc_status status;
	tc_progress progress;
	progress.size = sizeof progress;
	while ((status = tc_opening_wait(opening, 0.001, &cache)) == TC_PENDING) {
		CHECK(cache == NULL);
		OK(tc_opening_progress(opening, &progress));
		CHECK(progress.tables == 3 && progress.table >= 0 && progress.table < 3 && progress.rows <= ROWS);
	}
	OK(status);
	OK(tc_opening_progress(opening, &progress));
	CHECK(progress.filled && progress.rows == ROWS && progress.of == ROWS && progress.table == 2);
	tc_cache *again;
	REFUSED(TC_ERROR_CLOSED, "handed over", tc_opening_wait(opening, 0, &again));
	tc_opening_destroy(opening);
	tc_opening_destroy(opening);
	REFUSED(TC_ERROR_CLOSED, "opening", tc_opening_wait(opening, 0, &again));
	REFUSED(TC_ERROR_CLOSED, "opening", tc_opening_cancel(opening));
	REFUSED(TC_ERROR_CLOSED, "opening", tc_opening_progress(opening, &progress));
	tc_table_info info;
	info.size = sizeof info;
	OK(tc_table_get_info(cache, 2, &info));
	CHECK(strcmp(info.name, "table 2") == 0);
	for (int i = 0; i < 3; i++)
		gathers(cache, i, table);
	OK(tc_close(cache));

	/* A large table, cancelled: it ends long before it would have been read. */
	enum { LARGE = 512 << 20 };
	char *large = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(large != MAP_FAILED);
	config_new(&config);
	table_desc(&tables[0], (float *)large);
	tables[0].rows = LARGE / ROW;
	for (int destroy = 0; destroy < 2; destroy++) {
		OK(tc_open_begin(&config, tables, 1, &opening));
		do {
			usleep(1000);
			OK(tc_opening_progress(opening, &progress));
		} while (progress.rows == 0);
		double begun = now();
		if (destroy) {
			tc_opening_destroy(opening);
		} else {
			OK(tc_opening_cancel(opening));
			WANT(TC_ERROR_CANCELLED, tc_opening_wait(opening, -1, &cache));
			WANT(TC_ERROR_CANCELLED, tc_opening_wait(opening, 0, &cache));
			tc_opening_destroy(opening);
		}
		CHECK(now() - begun < 60);
	}
	munmap(large, LARGE);

	/* An opening that is destroyed with its cache. */
	table_desc(&tables[0], table);
	OK(tc_open_begin(&config, tables, 1, &opening));
	usleep(300 * 1000);
	tc_opening_destroy(opening);
	free((void *)training[0].ids);
	free((void *)training[1].ids);
	free(table);
}

/* Handles that are none, were given up, or are of another kind, are errors. */
void check_handles(void)
{
	float *table = table_new();
	tc_cache *cache = cache_new(table), *closed = cache_new(table);
	tc_opening *opening;
	tc_config config;
	config_new(&config);
	tc_table t;
	table_desc(&t, table);
	OK(tc_open_begin(&config, &t, 1, &opening));
	OK(tc_close(closed));
	tc_batch *batch;
	void *ids = device_alloc(8), *out = device_alloc(ROW);
	int64_t id = 3;
	device_put(ids, &id, 8);
	OK(tc_gather(cache, 0, 0, ids, TC_INT64, 1, out, 0, NULL, &batch));
	stream_wait(NULL);
	uintptr_t wrong[] = {0, 1, 2, 3, 17, (uintptr_t)closed, (uintptr_t)opening, (uintptr_t)batch, (uintptr_t)table, (uintptr_t)-1, (uintptr_t)cache + 16,
		(uintptr_t)cache ^ (1ULL << 33), 1ULL << 63 | 1};
	for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		tc_cache *c = (tc_cache *)wrong[i];
		char *json;
		int32_t n;
		tc_batch *b;
		WANT(TC_ERROR_CLOSED, tc_gather(c, 0, 0, ids, TC_INT64, 1, out, 0, NULL, &b));
		WANT(TC_ERROR_CLOSED, tc_gather_host_ids(c, 0, 0, &id, TC_INT64, 1, out, 0, NULL, NULL));
		WANT(TC_ERROR_CLOSED, tc_gather_host(c, 0, 0, &id, TC_INT64, 1, table, 0));
		WANT(TC_ERROR_CLOSED, tc_stats_json(c, 0, &json));
		WANT(TC_ERROR_CLOSED, tc_explain_json(c, 0, &id, TC_INT64, 1, &json));
		WANT(TC_ERROR_CLOSED, tc_update(c, 0, &id, TC_INT64, 1, table, 0));
		WANT(TC_ERROR_CLOSED, tc_invalidate(c, 0, &id, TC_INT64, 1));
		WANT(TC_ERROR_CLOSED, tc_prefetch(c, 0, &id, TC_INT64, 1));
		WANT(TC_ERROR_CLOSED, tc_refresh(c));
		WANT(TC_ERROR_CLOSED, tc_check(c, 1));
		WANT(TC_ERROR_CLOSED, tc_set_gpu_memory(c, 1 << 20));
		WANT(TC_ERROR_CLOSED, tc_snapshot(c, "x"));
		WANT(TC_ERROR_CLOSED, tc_table_count(c, &n));
		if (wrong[i] != 0)
			WANT(TC_ERROR_CLOSED, tc_close(c));
		if (wrong[i] != (uintptr_t)batch) {
			WANT(TC_ERROR_CLOSED, tc_batch_wait((tc_batch *)wrong[i]));
			WANT(TC_ERROR_CLOSED, tc_batch_error((tc_batch *)wrong[i]));
			tc_batch_destroy((tc_batch *)wrong[i]);
		}
		if (wrong[i] != (uintptr_t)opening) {
			WANT(TC_ERROR_CLOSED, tc_opening_cancel((tc_opening *)wrong[i]));
			tc_opening_destroy((tc_opening *)wrong[i]);
		}
	}
	OK(tc_close(NULL));
	tc_batch_destroy(NULL);
	tc_opening_destroy(NULL);
	/* A batch outlives its cache. */
	OK(tc_close(cache));
	OK(tc_batch_wait(batch));
	tc_batch_destroy(batch);
	WANT(TC_ERROR_CLOSED, tc_batch_wait(batch));
	tc_opening_destroy(opening);
	device_free(ids);
	device_free(out);
	free(table);
}

/* Rows and row numbers in memory of a mapped file that has become shorter are errors, and the process goes on. */
static void shrunk_files(const float *table)
{
	FILE *file = tmpfile();
	CHECK(file != NULL);
	size_t bytes = (size_t)ROWS * ROW;
	CHECK(ftruncate(fileno(file), (off_t)bytes) == 0);
	void *mapped = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fileno(file), 0);
	CHECK(mapped != MAP_FAILED && ftruncate(fileno(file), 0) == 0);
	tc_config config;
	config_new(&config);
	tc_table t;
	table_desc(&t, mapped);
	tc_cache *cache;
	REFUSED(TC_ERROR_FILE, "table numbers: transfer: source at rows from 0 of 5000: ", tc_open(&config, &t, 1, &cache));
	for (int32_t type = TC_INT32; type <= TC_INT64; type++) {
		table_desc(&t, table);
		tc_training batch = {.table = 0, .id_type = type, .ids = mapped, .n = 1000};
		config.training = &batch;
		config.training_batches = 1;
		REFUSED(TC_ERROR_FILE, "training batch 0: ", tc_open(&config, &t, 1, &cache));
	}
	CHECK(munmap(mapped, bytes) == 0);
	fclose(file);
}

void check_files(const char *path)
{
	float *table = table_new();
	tc_config config;
	config_new(&config);
	tc_table t[2];
	tc_table_default(&t[0]);
	t[0].path = path;
	t[0].name = "named";
	table_desc(&t[1], table);
	t[1].codec = "none";
	tc_cache *cache;
	OK(tc_open(&config, t, 2, &cache));
	tc_table_info info;
	info.size = sizeof info;
	OK(tc_table_get_info(cache, 0, &info));
	CHECK(info.rows == ROWS && info.row_bytes == ROW && info.dtype == TC_FLOAT32 && strcmp(info.name, "named") == 0);
	OK(tc_table_get_info(cache, 1, &info));
	CHECK(strcmp(info.codec, "none") == 0);
	gathers(cache, 0, table);
	gathers(cache, 1, table);
	OK(tc_close(cache));
	shrunk_files(table);
	free(table);
}

void check_adopt(void)
{
	float *table = table_new(), *memory;
	size_t bytes = (size_t)ROWS * ROW;
	CHECK(posix_memalign((void **)&memory, 4096, (bytes + 4095) / 4096 * 4096) == 0);
	memcpy(memory, table, bytes);
	tc_config config;
	config_new(&config);
	tc_table t;
	table_desc(&t, memory);
	t.memory = TC_MEMORY_ADOPT;
	t.restore = 1;
	t.codec = "ibp4";
	tc_cache *cache;
	OK(tc_open(&config, &t, 1, &cache));
	gathers(cache, 0, table);
	int32_t id = 17;
	OK(tc_update(cache, 0, &id, TC_INT32, 1, table, 0));
	OK(tc_close(cache));
	CHECK(memcmp(memory, table, (size_t)17 * ROW) == 0 && memcmp(memory + 17 * COLUMNS, table, ROW) == 0);
	CHECK(memcmp(memory + 18 * COLUMNS, table + 18 * COLUMNS, bytes - 18 * ROW) == 0);
	config.host_packed = 1;
	WANT(TC_ERROR_ARGUMENT, tc_open(&config, &t, 1, &cache));
	free(memory);
	free(table);
}
